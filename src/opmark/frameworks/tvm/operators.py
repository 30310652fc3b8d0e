"""The operators with a schedule: their expression, and for CPUs and GPUs their space and how loops are arranged.

What needs TVM is imported on first use, so that spaces can be read without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from math import prod
from typing import Any, Literal, NamedTuple

from opmark.errors import Unsupported
from opmark.frameworks.tvm import knobs
from opmark.frameworks.tvm.knobs import ContractionShape, window_sizes
from opmark.plugin import Configuration, Params, Space
from opmark.schema.tensor import sizeof

Kind = Literal["cpu", "cuda"]
"""The schedule: loops of a CPU, or thread blocks of a GPU."""
_CPUS = frozenset({"", "llvm", "c", "hexagon"})
Arrange = Callable[[Any, Params, Configuration], None]
"""arrange(schedule, params, configuration) changes the schedule in place."""

SCHEDULE = "schedule"
"""Name of the implementations with a schedule."""
METASCHEDULE = "metaschedule"
"""Name in a configuration of records of TVM's own tuner, as JSON: a list of objects with `workload` and `record`."""
_PACKAGE = "opmark.frameworks.tvm"


def kind_of(target: str) -> Kind:
    """Return which schedules a target takes, by its text: `llvm -mcpu=cortex-a72`, or JSON. No text is a CPU."""
    named = re.search(r'"kind"\s*:\s*"(\w+)"', target) or re.match(r"\s*(\w*)", target)
    assert named is not None
    return "cpu" if named[1] in _CPUS else "cuda"


class DeviceSchedule(NamedTuple):
    space: Callable[[Params], Space]
    arrange: Callable[[Any, Params], Arrange]
    """arrange(schedules, params): from the module of schedules for this kind of device."""


@dataclass(frozen=True)
class ScheduledOperator:
    expression: str
    """`FUNCTION` of expressions.py, or `FUNCTION:ARGUMENT`, which makes one."""
    cpu: DeviceSchedule
    cuda: DeviceSchedule
    general: Callable[[Params], Params] = dict
    """Returns the parameters that the expression takes, from those of the operator."""

    def space(self, kind: Kind, params: Params) -> Space:
        return self._of(kind).space(self.general(params))

    def module(self, kind: Kind, params: Params, configuration: Configuration) -> Any:
        """Return the TVM module, whose function `main` takes the inputs, in the operator's order, and the output."""
        from opmark.frameworks.tvm.library import te, tvm

        name, _, argument = self.expression.partition(":")
        express, params = getattr(import_module(f"{_PACKAGE}.expressions"), name), self.general(params)
        tensors = (express(argument) if argument else express)(params, configuration)
        function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
        schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
        self.arrange(kind, params)(schedule, params, configuration)
        return schedule.mod

    def arrange(self, kind: Kind, params: Params) -> Arrange:
        """Return the function that arranges the loops of a schedule."""
        return self._of(kind).arrange(import_module(f"{_PACKAGE}.schedules.{kind}"), self.general(params))

    def _of(self, kind: Kind) -> DeviceSchedule:
        return self.cpu if kind == "cpu" else self.cuda


# Products and convolutions.


def _product(row: int, column: int) -> tuple[DeviceSchedule, DeviceSchedule]:
    def shape(p: Params) -> ContractionShape:
        return ContractionShape(p["M"], p["N"], p["K"], sizeof(p["dtype"]), packs=True)

    return (
        DeviceSchedule(lambda p: knobs.contraction_cpu(shape(p)), lambda m, p: m.contraction(row, column)),
        DeviceSchedule(lambda p: knobs.contraction_cuda(shape(p)), lambda m, p: m.contraction(row, column)),
    )


def _conv(p: Params) -> ContractionShape:
    inside = p["in_channels"] // p["groups"]
    return ContractionShape(p["out_channels"], window_sizes(p)[1], inside, sizeof(p["dtype"]), pads=p["padding"] > 0)


def _image(p: Params) -> ContractionShape:
    """Return the loops of a convolution whose rows and columns of the image are run through as one."""
    return replace(_conv(p), columns=prod(window_sizes(p)), pads=False)


_CONV_CPU = DeviceSchedule(lambda p: knobs.contraction_cpu(_conv(p)), lambda m, p: m.contraction(1, 3))
_CONV_CUDA = DeviceSchedule(lambda p: knobs.contraction_cuda(_image(p)), lambda m, p: m.contraction(1, 2, fused=True))
_POINTWISE_CPU = DeviceSchedule(
    lambda p: knobs.contraction_cpu(replace(_image(p), width=p["image"][1])), lambda m, p: m.contraction(1, 3)
)


def _pointwise(p: Params) -> Params:
    return {**p, "kernel": [1, 1], "stride": 1, "padding": 0, "dilation": 1, "groups": 1}


def _depthwise(p: Params) -> ContractionShape:
    height, width = window_sizes(p)
    return ContractionShape(height, width, p["kernel"][0], sizeof(p["dtype"]), pads=p["padding"] > 0)


_DEPTHWISE = (
    DeviceSchedule(lambda p: knobs.contraction_cpu(_depthwise(p)), lambda m, p: m.contraction(2, 3)),
    DeviceSchedule(
        lambda p: knobs.elements_cuda(p["batch"] * p["channels"] * p["multiplier"] * prod(window_sizes(p))),
        lambda m, p: m.elements,
    ),
)

# Along an axis.


def _row_count(p: Params) -> int:
    if p.get("axis", -1) % len(p["shape"]) != len(p["shape"]) - 1:
        raise Unsupported("the schedule works along the last axis")
    return prod(p["shape"][:-1])


def _rows(*reduced: str, power: str = "") -> tuple[DeviceSchedule, DeviceSchedule]:
    """`reduced`: the stages that reduce a row; `power`: that of the powers of a softmax."""
    exponential = bool(power)
    return (
        DeviceSchedule(
            lambda p: knobs.rows_cpu(
                _row_count(p),
                p["shape"][-1],
                alone=len(p["shape"]) == 1,
                exponential=exponential,
                polynomial=p["dtype"] != "float64",
            ),
            lambda m, p: m.rows(*reduced, power=power),
        ),
        DeviceSchedule(
            lambda p: knobs.rows_cuda(_row_count(p), p["shape"][-1], exponential=exponential),
            lambda m, p: m.rows(*reduced, power=power),
        ),
    )


def _is_last(p: Params) -> bool:
    return bool(p["axis"] % len(p["shape"]) == len(p["shape"]) - 1)


def _reduction_cpu(p: Params) -> Space:
    shape = p["shape"]
    if _is_last(p):
        return knobs.rows_cpu(prod(shape[:-1]), shape[-1], alone=len(shape) == 1, elements=False)
    return knobs.columns_cpu(shape[p["axis"]], shape[-1])


def _reduction_cuda(p: Params) -> Space:
    shape = p["shape"]
    if _is_last(p):
        return knobs.rows_cuda(prod(shape[:-1]), shape[-1])
    return knobs.elements_cuda(prod(shape) // shape[p["axis"]])


_REDUCTIONS = {"reduce_sum": "sum", "reduce_mean": "mean", "amax": "max", "amin": "min"}
_REDUCTION = (
    DeviceSchedule(_reduction_cpu, lambda m, p: m.rows("acc", elements=False) if _is_last(p) else m.columns),
    DeviceSchedule(_reduction_cuda, lambda m, p: m.rows("acc", elements=False) if _is_last(p) else m.elements),
)

# Pools.

_POOL = (
    DeviceSchedule(lambda p: knobs.pool_cpu(*window_sizes(p), pads=p["padding"] > 0), lambda m, p: m.pool),
    DeviceSchedule(
        lambda p: knobs.elements_cuda(p["batch"] * p["channels"] * prod(window_sizes(p))), lambda m, p: m.elements
    ),
)


def _global(p: Params) -> Params:
    """Return a global pool as a sliding one, whose window is the image."""
    return {**p, "kernel": list(p["image"]), "stride": 1, "padding": 0, "count_include_pad": True}


SCHEDULED = {
    "matmul": ScheduledOperator("matmul", *_product(0, 1)),
    "batched_matmul": ScheduledOperator("batched_matmul", *_product(1, 2)),
    "conv2d": ScheduledOperator("conv2d", _CONV_CPU, _CONV_CUDA),
    "grouped_conv2d": ScheduledOperator("conv2d", _CONV_CPU, _CONV_CUDA),
    "pointwise_conv2d": ScheduledOperator("conv2d", _POINTWISE_CPU, _CONV_CUDA, _pointwise),
    "depthwise_conv2d": ScheduledOperator("depthwise_conv2d", *_DEPTHWISE),
    "softmax": ScheduledOperator("softmax", *_rows("largest", "total", power="power")),
    "layer_norm": ScheduledOperator("layer_norm", *_rows("total", "squares")),
    "rms_norm": ScheduledOperator("rms_norm", *_rows("squares")),
    **{name: ScheduledOperator(f"reduction:{kind}", *_REDUCTION) for name, kind in _REDUCTIONS.items()},
    "max_pool2d": ScheduledOperator("pool2d:max", *_POOL),
    "avg_pool2d": ScheduledOperator("pool2d:avg", *_POOL),
    "global_avg_pool2d": ScheduledOperator("pool2d:avg", *_POOL, _global),
}
"""Schedules by the name of the operator."""


def space_of(name: str, kind: Callable[[], Kind], params: Params) -> Space:
    """Return the space of an operator for the kind of device that is asked for then."""
    return SCHEDULED[name].space(kind(), params)
