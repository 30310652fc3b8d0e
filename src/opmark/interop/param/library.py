"""PARAM from Python: runs a config and returns its results as objects, and helps to write configs in code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opmark.api.requests import talk
from opmark.errors import InvalidFile, UnknownName
from opmark.interop.param.importer import options_in_file
from opmark.interop.param.options import ParamOptions
from opmark.interop.param.results import CaseResult, read, run
from opmark.interop.visible_devices import set_variables
from opmark.plugin.registry import resolve
from opmark.runner.workload_source import problem_lines


def run_config(
    config: Mapping[str, Any] | str | os.PathLike[str],
    settings: ParamOptions | None = None,
    *,
    on_result: Callable[[CaseResult], None] | None = None,
    say: Callable[[str], None] = talk,
    **options: Any,
) -> list[CaseResult]:
    """Return the results of all cases in the order of the config, failed ones included.

    `options` are fields of `settings`, as in warmup=5, iteration=50, backward=True, device="cuda:1"; where there are no
    `settings`, the `run_options` of a batch file are the defaults. Runs are not stored unless `db` names a store.
    Problems of the config are reported through `say`; with strict=True, and if no case is left, they are an error.
    """
    if settings:
        settings = replace(settings, **options)
    else:
        settings = ParamOptions(**{"db": ":memory:", **options_in_file(config), **options})
    target, whole = settings.target(), read(config, settings)
    for line in [*problem_lines(whole.problems, whole.notes), *settings.notes(target)]:
        say(line)
    if not whole.spots:
        raise InvalidFile("the config has no case", "as in {'torch.add': {'config': [{'input': [...]}], ...}}")
    found: list[CaseResult] = []

    def add(result: CaseResult) -> None:
        found.append(result)
        if on_result:
            on_result(result)

    with set_variables(target.environ):
        run(whole, settings, target, add, say=say)
    return found


# PARAM's helpers to write a config in code, with their own names (lib/pytorch/config_util).

_GENERATOR = "PyTorch:DefaultDataGenerator"
_NUMBERS = ("int", "long", "float", "double")
_TYPES: dict[str, dict[str, Any]] = {
    **{name: {"type": name, "value": None} for name in (*_NUMBERS, "bool", "device", "str", "genericlist", "tuple")},
    **{f"{name}_range": {"type": name, "value_range": None} for name in _NUMBERS},
    "tensor": {"type": "tensor", "dtype": "float", "shape": None},
}


def create_bench_config(name: str) -> dict[str, Any]:
    """Return a config of one operator, to be filled in."""
    return {name: create_op_info()}


def create_op_info() -> dict[str, Any]:
    """Return an operator without iterators; put results of `create_op_args` into `config[0]["input"]`."""
    return {
        "build_data_generator": _GENERATOR,
        "input_data_generator": _GENERATOR,
        "config": [{"build": [], "input": []}],
    }


def create_op_args(args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}


def create_type(type: str) -> dict[str, Any]:
    """Return an argument of a type, also of `int_range` and the like, whose value is to be set."""
    if type not in _TYPES:
        raise UnknownName("type of PARAM", type, _TYPES)
    return dict(_TYPES[type])


# The two networks that PARAM has as operators, `pytorch.model.alex_net` and `pytorch.model.resnet`.

# Channels in and out, kernel, stride and padding of convolutions; `pool` halves the image.
_ALEX_NET: tuple[tuple[int, ...] | str, ...] = (
    (3, 64, 11, 4, 2), "pool", (64, 192, 5, 1, 2), "pool", (192, 384, 3, 1, 1), (384, 256, 3, 1, 1),
    (256, 256, 3, 1, 1), "pool",
)  # fmt: skip
# Channels of the narrow part of a block, for each stage; the output of a block has four times as many.
_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4


class AlexNet:
    """Krizhevsky's network in one column (2014), for images of at least 63x63."""

    def __new__(cls, num_classes: int = 1000, dropout: float = 0.5) -> Any:
        nn = resolve("torch.nn")
        layers: list[Any] = []
        for item in _ALEX_NET:
            layers += [nn.MaxPool2d(3, 2)] if isinstance(item, str) else [nn.Conv2d(*item), nn.ReLU(inplace=True)]
        layers += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]
        for size in (256 * 6 * 6, 4096):
            layers += [nn.Dropout(dropout), nn.Linear(size, 4096), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.Linear(4096, num_classes))


class ResNet:
    """ResNet-50 with the stride in the 3x3 convolution of a block; `layers` are the blocks of each stage."""

    def __new__(cls, layers: Sequence[int] = (3, 4, 6, 3), num_classes: int = 1000) -> Any:
        nn = resolve("torch.nn")
        made: list[Any] = [*_conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, (blocks, width) in enumerate(zip(layers, _WIDTHS, strict=True)):
            for block in range(blocks):
                made.append(_bottleneck(channels, width, 2 if stage and not block else 1))
                channels = _EXPANSION * width
        return nn.Sequential(*made, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def _conv_norm(into: int, out: int, kernel: int, stride: int = 1) -> list[Any]:
    nn = resolve("torch.nn")
    return [nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)]


def _bottleneck(channels: int, width: int, stride: int) -> Any:
    """Return a block: narrow, 3x3 and wide convolution, plus its input, projected if the shape differs."""
    nn = resolve("torch.nn")
    out = _EXPANSION * width

    class Bottleneck(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Sequential(
                *_conv_norm(channels, width, 1), nn.ReLU(inplace=True),
                *_conv_norm(width, width, 3, stride), nn.ReLU(inplace=True),
                *_conv_norm(width, out, 1),
            )  # fmt: skip
            same = channels == out and stride == 1
            self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_norm(channels, out, 1, stride))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.branch(x).add_(self.shortcut(x)))

    return Bottleneck()
