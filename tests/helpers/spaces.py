"""Small cases of every operator with a TVM schedule, and tasks with a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opmark.plugin import Configuration
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Settings, Task

SMALL: dict[str, list[dict[str, Any]]] = {
    "matmul": [
        {"M": 48, "N": 96, "K": 40}, {"M": 13, "N": 17, "K": 19}, {"M": 32, "N": 32, "K": 32, "dtype": "float16"},
    ],
    "batched_matmul": [{"B": 3, "M": 16, "N": 32, "K": 24}],
    "conv2d": [
        {"batch": 2, "in_channels": 4, "image": [8, 8], "out_channels": 8},
        {
            "batch": 1, "in_channels": 6, "image": [9, 7], "out_channels": 10, "kernel": [3, 1], "stride": 2,
            "padding": 0, "groups": 2,
        },
    ],
    "grouped_conv2d": [{"batch": 1, "in_channels": 8, "image": [8, 8], "out_channels": 8, "groups": 4}],
    "pointwise_conv2d": [{"batch": 2, "in_channels": 8, "image": [7, 14], "out_channels": 16}],
    "depthwise_conv2d": [{"batch": 1, "channels": 4, "image": [8, 8], "multiplier": 2, "stride": 2}],
    "softmax": [{"shape": [12, 64]}, {"shape": [32]}, {"shape": [2, 3, 32], "dtype": "float64"}],
    "layer_norm": [{"shape": [12, 64]}, {"shape": [2, 3, 50], "bias": False}],
    "rms_norm": [{"shape": [12, 64]}],
    "reduce_sum": [
        {"shape": [12, 64]}, {"shape": [40]}, {"shape": [3, 12, 64], "axis": 1, "keepdims": True},
        {"shape": [12, 64], "dtype": "int32"},
    ],
    "reduce_mean": [{"shape": [12, 64], "axis": 0, "dtype": "float16"}],
    "amax": [{"shape": [12, 64]}],
    "amin": [{"shape": [12, 64], "axis": 0}],
    "max_pool2d": [{"batch": 1, "channels": 4, "image": [9, 9], "kernel": [3, 3], "stride": 2, "padding": 1}],
    "avg_pool2d": [
        {"batch": 2, "channels": 4, "image": [8, 8]},
        {
            "batch": 1, "channels": 4, "image": [9, 9], "kernel": [3, 3], "stride": 2, "padding": 1,
            "count_include_pad": False,
        },
    ],
    "global_avg_pool2d": [{"batch": 2, "channels": 4, "image": [7, 7]}],
}  # fmt: skip


def small_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and all parameters of every small case."""
    for name, several in SMALL.items():
        for params in several:
            yield name, operator(name).complete(params)


def configured_task(
    op: str, params: dict[str, Any], backend: str, implementation: str, configuration: Configuration, threads: int = 1
) -> Task:
    """A task that compiles, verifies and measures nothing."""
    settings = Settings(
        threads=threads,
        effort="quick",
        sampling=EFFORTS["quick"],
        configuration=tuple(configuration.items()),
        compile_only=True,
    )
    return Task(Case.of(op, operator(op).complete(params), "forward"), backend, implementation, settings)
