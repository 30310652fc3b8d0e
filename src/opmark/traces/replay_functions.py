"""Finds what a recorded call calls here: an operator of this torch, a substitute on the host, a kernel of a compiler.

Only workers import this.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from opmark.models.calls import OverloadQuestion
from opmark.models.overloads import find_schema
from opmark.traces.calls import argument_kind
from opmark.traces.trace import TraceNode, Value

_FILES = frozenset({"filename", "path", "file"})
"""Names of arguments of operators that read or write a file."""
_REFUSED_SPACES = frozenset({"prim", "debugprims", "profiler"})


class Gap(Exception):
    """The reason why a call cannot be replayed."""


def find_overload(node: TraceNode) -> tuple[Any, Any]:
    """Return (operator, schema) of a call. Raise Gap if this torch has none."""
    if not (text := node.schema):  # some files have names alone
        kinds = [argument_kind(value) for value in node.inputs]
        text = find_schema(OverloadQuestion(node.name, kinds)) if "::" in node.name else ""
        if not text:
            raise Gap("this torch has no such operator that takes the recorded arguments")
    try:
        schema = torch._C.parse_schema(text)
    except RuntimeError:
        raise Gap(f"its schema cannot be read: {text[:80]}") from None
    return _overload(schema.name, schema.overload_name)


def _overload(name: str, overload: str) -> tuple[Any, Any]:
    space, _, function = name.partition("::")
    if space in _REFUSED_SPACES:
        raise Gap(f"operators of `{space}` are not computations")
    packet = getattr(getattr(torch.ops, space, None), function, None) if space.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise Gap(f"torch {torch.__version__} has no operator {name}" + _library_hint(space))
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise Gap(f"torch {torch.__version__} has no variant `{overload}` of {name}")
    if any(argument.name in _FILES for argument in found._schema.arguments):
        raise Gap("it reads or writes a file, which a trace may not ask for")
    return found, found._schema


def _library_hint(space: str) -> str:
    return "" if space == "aten" else f"; it belongs to the library `{space}`, which is not loaded"


@dataclass(frozen=True)
class _Substitute:
    """An operator of the host that computes what an operator of a device does."""

    name: str
    arguments: tuple[Any, ...]
    """Places of the arguments among the recorded ones; anything that is no number stands for itself."""


_HOST_OPERATORS = {
    "pin_memory": _Substitute("aten::alias", (0,)),
    "cudnn_convolution": _Substitute("aten::convolution", (0, 1, None, 3, 2, 4, False, [0, 0], 5)),
    "miopen_convolution": _Substitute("aten::convolution", (0, 1, 2, 4, 3, 5, False, [0, 0], 6)),
    "cudnn_batch_norm": _Substitute("aten::native_batch_norm", (0, 1, 2, 3, 4, 5, 6, 7)),
    "miopen_batch_norm": _Substitute("aten::native_batch_norm", (0, 1, 2, 3, 4, 5, 6, 7)),
    "cudnn_batch_norm_backward": _Substitute(
        "aten::native_batch_norm_backward", (1, 0, 2, 3, 4, 5, 6, True, 7, [True, True, True])
    ),
    "miopen_batch_norm_backward": _Substitute(
        "aten::native_batch_norm_backward", (1, 0, 2, 3, 4, 5, 6, True, 7, [True, True, True])
    ),
    "_scaled_dot_product_flash_attention": _Substitute(
        "aten::_scaled_dot_product_flash_attention_for_cpu", (0, 1, 2, "0", 4)
    ),
    "_scaled_dot_product_efficient_attention": _Substitute(
        "aten::_scaled_dot_product_flash_attention_for_cpu", (0, 1, 2, "0", 6)
    ),
    "_scaled_dot_product_flash_attention_backward": _Substitute(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward", (0, 1, 2, 3, 4, 5, "0", 11)
    ),
    "_scaled_dot_product_efficient_attention_backward": _Substitute(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward", (0, 1, 2, 3, 5, 6, "0", 11)
    ),
}
"""Operators that only devices have. Attention of the host has no dropout: it is 0 there."""


def find_substitute(name: str, given: list[Value], device: torch.device) -> tuple[Any, Any, list[Value]] | None:
    """Return (operator, schema, arguments) that compute the same where the device has no such operator."""
    found = _HOST_OPERATORS.get(name)
    if found is None or device.type != "cpu":
        return None
    arguments: list[Value] = []
    for one in found.arguments:
        if type(one) is int:
            if one >= len(given):
                raise Gap(f"recorded with {len(given)} arguments; its substitute needs more")
            arguments.append(given[one])
        else:
            arguments.append(0.0 if one == "0" else one)
    return (*_overload(found.name, ""), arguments)


# Kernels of inductor.


def load_kernel(node: TraceNode, folder: Path) -> Any:
    """Return the Triton kernel of a call. A trace is not trusted with paths: its file has to lie beside the trace."""
    recorded = str(node.attributes.get("kernel_file", ""))
    if not recorded:
        raise Gap("the trace does not name the file of the kernel")
    file = folder / Path(recorded).name
    if not file.is_file():
        raise Gap(f"the file of the kernel, {Path(recorded).name}, does not lie beside the trace")
    if importlib.util.find_spec("triton") is None:
        raise Gap("Triton is not installed, and it is a kernel of Triton")
    spec = importlib.util.spec_from_file_location(f"opmark_kernel_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    candidates = [getattr(module, node.name, None), getattr(module, "triton_", None)]
    candidates += [value for value in vars(module).values() if hasattr(value, "run") and hasattr(value, "fn")]
    kernel = next((one for one in candidates if hasattr(one, "run")), None)
    if kernel is None:
        raise Gap(f"{file.name} contains no kernel of inductor")
    return kernel


def call_kernel(kernel: Any, grid: Any, device: torch.device) -> Callable[..., Any]:
    def call(*args: Any) -> None:
        stream = torch.get_device_module(device).current_stream().cuda_stream
        if grid is None:
            kernel.run(*args, stream=stream)
        else:
            kernel.run(*args, grid=grid, stream=stream)

    return call
