"""Samples: what a predictor knows of each call, in columns, and the figures of the chips that ran them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from opmark.errors import UserError
from opmark.plugin.operator import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema.call_sizes import CallSizes
from opmark.schema.case import Case
from opmark.schema.cost import Cost
from opmark.schema.machine import MEMORY, Peaks

LINEAR, BATCHED, CONVOLUTION, ROWS, OTHER = "linear", "bmm", "conv", "row-wise", "other"
CLASSES = (LINEAR, BATCHED, CONVOLUTION, ROWS)
"""Classes with features of their own. Every other class is a category of the catalogue (`reduction`, `sorting`); OTHER
is what is not in the catalogue. Each class has a model of its own."""
PRODUCTS = {
    "matmul": LINEAR, "linear": LINEAR, "linear_no_bias": LINEAR, "batched_matmul": BATCHED, "conv2d": CONVOLUTION,
}  # fmt: skip
ROW_CATEGORIES = frozenset({
    "element-wise", "activation", "normalization", "comparison", "logical", "in-place", "regularization", "creation",
    "memory", "quantization",
})  # fmt: skip
"""Categories whose operators pass over their data once, row by row."""
NEAR_ROWS = frozenset({
    "reduction", "pooling", "shaping", "joining", "loss", "resizing", "sequence", "callable", "opinfo",
    "trace", OTHER,
})  # fmt: skip
"""Classes that a model of row-wise operators answers for where it has learnt nothing nearer: moving data limits
them."""
BEYOND_CACHE = 4
"""Data of so many times the size of the last-level cache come from memory."""
NUMBERS = 8
"""Number of an operator's own parameters that are features."""
PICOJOULES_PER_NANOMETRE = 1.6
"""Energy of one float32 operation, in picojoules per nanometre of the chip's process. One constant explains the rates
that chips of 16, 12 and 7 nm sustain at their power limits; it says how soon a chip throttles, and sets no bound."""


class ChipFigures(Struct, frozen=True):
    """What a prediction needs of a chip."""

    chip: str
    flops: float
    """Operations per second in the element type of the case."""
    bandwidth: float
    multiprocessors: float
    cache: float
    """Bytes of the last-level cache."""
    power: float
    clock: float
    process: float
    """Nanometres."""

    @property
    def power_demand(self) -> float:
        """Watts that the peak rate would draw, divided by those that the chip may draw."""
        return self.flops * PICOJOULES_PER_NANOMETRE * 1e-12 * self.process / self.power


def chip_figures(peaks: Peaks, dtype: str, threads: int | None = None) -> ChipFigures:
    """Return the figures of a chip; UserError names those that its datasheet does not have."""
    bandwidth = peaks.memory_bandwidth
    rate = peaks.flops.get(dtype)
    missing = [
        *([] if rate else [f"flops.{dtype}"]),
        *([] if bandwidth else ["levels.memory"]),
    ]
    if missing or rate is None or bandwidth is None:
        raise UserError(
            f"the datasheet of {peaks.chip} lacks {', '.join(missing)}, without which there is no roofline",
            "`opmark calibrate` measures the peaks of this machine; docs/add-a-chip.md says how to add a datasheet",
        )
    caches = [level.nbytes for level in peaks.levels if level.name != MEMORY and level.nbytes]
    units = peaks.multiprocessors or threads or peaks.threads or peaks.cores
    # Unknown figures are typical ones: a forest then answers as for the average chip.
    return ChipFigures(
        peaks.chip, rate, bandwidth, float(units or 64), float(max(caches, default=4 << 20)),
        peaks.power or 250.0, peaks.clock or 1.4e9, peaks.process or 12.0,
    )  # fmt: skip


def least_flops(call: CallSizes) -> float:
    """Return the operations of the fastest known way to compute a call. Winograd's, for tiles of 4 x 4 outputs, needs
    as few as a quarter of those of a convolution by windows of 3 x 3 that lie next to each other."""
    if class_of(call.operator) != CONVOLUTION or call.stride != 1:
        return call.flops
    window = max(1.0, call.k / call.channels) ** 0.5
    return float(call.flops * ((window + 3) / (4 * window)) ** 2)


def missing_figures(peaks: Peaks) -> list[str]:
    """Return the figures that a prediction for a chip it was not trained on has to replace by typical ones."""
    has_cache = any(level.nbytes for level in peaks.levels if level.name != MEMORY)
    known = {
        "multiprocessors": peaks.multiprocessors, "L2": has_cache, "power": peaks.power, "clock": peaks.clock,
        "process": peaks.process,
    }  # fmt: skip
    return [name for name, value in known.items() if not value]


@dataclass
class Samples:
    """Calls in columns. Rows are shapes, not measurements: repeated measurements of a shape are one row."""

    operator: np.ndarray
    batch: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    """Sizes of a product; of a row-wise operator, m are rows and n are columns. A convolution is a product of its
    windows (m), channels out (n) and elements of a window (k)."""
    image: np.ndarray
    """Height of the output of a convolution; 1 elsewhere."""
    channels: np.ndarray
    """Channels that a convolution reads; 1 elsewhere."""
    stride: np.ndarray
    """Stride of a convolution's windows; 1 elsewhere."""
    numbers: np.ndarray
    """A row of NUMBERS for each call: the parameters of the operator in its order, without shapes of data; then 0."""
    flops: np.ndarray
    nbytes: np.ndarray
    written: np.ndarray
    """Bytes of the results, of all that are read and written."""
    device: np.ndarray
    seconds: np.ndarray
    """Measured time; NaN where it is asked for."""
    bound: np.ndarray
    """Seconds that no implementation can beat."""
    chips: dict[str, ChipFigures]

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, index: Any) -> Samples:
        return Samples(**{one.name: getattr(self, one.name)[index] for one in fields(self) if one.name != "chips"},
                       chips=self.chips)  # fmt: skip

    def of_chip(self, name: str) -> np.ndarray:
        """Return a figure of the chip of each call."""
        found = np.empty(len(self))
        for chip in set(self.device):
            found[self.device == chip] = getattr(self.chips[chip], name)
        return found

    @property
    def computing(self) -> np.ndarray:
        return np.asarray(self.flops / self.of_chip("flops"))

    @property
    def moving(self) -> np.ndarray:
        return np.asarray(self.nbytes / self.of_chip("bandwidth"))

    @property
    def roofline(self) -> np.ndarray:
        return np.asarray(np.maximum(np.maximum(self.computing, self.moving), 1e-9))

    @property
    def shape_keys(self) -> np.ndarray:
        """The same number for the same operator and sizes, whatever device."""
        columns = (self.operator, self.batch, self.m, self.n, self.k, self.image, self.channels, self.stride,
                   map(bytes, self.numbers))  # fmt: skip
        keys: dict[Any, int] = {}
        return np.asarray([keys.setdefault(key, len(keys)) for key in zip(*columns, strict=True)])


@cache
def class_of(operator: str) -> str:
    """Return the class of an operator as samples name it: with its phase, and what its second input is."""
    name = operator.partition(" ")[0]
    if name in PRODUCTS:
        return PRODUCTS[name]
    try:
        category = find_operator(name).category
    except UserError:
        return OTHER
    return ROWS if category in ROW_CATEGORIES else category


def sizes_of_case(operator: Operator, case: Case, cost: Cost | None = None) -> CallSizes | None:
    """Return the sizes of a case; None if its work is not known or it only makes a view."""
    if operator.foreign and cost is None:
        return None
    cost = cost or operator.phase_cost(case.params, case.phase, case.wrt)
    if cost is None or cost.traffic is not None or not cost.bytes_moved:
        return None
    params = case.params
    name = case.op if case.phase == "forward" else f"{case.op} {case.phase}"
    if params.get("y", "same") != "same":
        name = f"{name} y={params['y']}"  # a smaller second input is another operator: it is read from a cache
    kind = class_of(name)
    work = (float(cost.flops or 0), float(cost.bytes_moved))
    written = float(cost.bytes_written)
    if kind in (LINEAR, BATCHED):
        return CallSizes(name, params.get("B", 1), params["M"], params["N"], params["K"], *work, written=written)
    if kind == CONVOLUTION:
        height, width = (
            (size + 2 * params["padding"] - params["dilation"] * (window - 1) - 1) // params["stride"] + 1
            for size, window in zip(params["image"], params["kernel"], strict=True)
        )
        channels = params["in_channels"] / params["groups"]
        windows, elements = params["batch"] * height * width, channels * prod(params["kernel"])
        return CallSizes(name, params["batch"], windows, params["out_channels"], elements, *work, height,
                         channels, written, stride=params["stride"])  # fmt: skip
    if operator.foreign:
        return CallSizes(name, 1, max(1.0, cost.bytes_moved / 4096), 1024, 1, *work, written=written)
    largest = max(operator.inputs(params).values(), key=lambda tensor: tensor.nbytes, default=None)
    shape = largest.shape if largest and largest.shape else (1,)
    numbers = _numbers(operator, params)
    return CallSizes(name, 1, prod(shape[:-1]), shape[-1], 1, *work, written=written, numbers=numbers)


def _numbers(operator: Operator, params: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the parameters of a case as numbers, each by its place: a choice by its index, an element type not at all.
    The shape of the data is not among them, because rows and columns tell it."""
    found: list[float] = []
    for param in operator.params:
        value = params.get(param.name, param.default)
        if param.name == "shape" or param.kind in ("dtype", "amount"):
            continue
        if isinstance(value, str):
            found.append(float(param.choices.index(value)) if value in param.choices else 0.0)
        elif isinstance(value, (list, tuple)):
            found += [float(one) for one in value if isinstance(one, (int, float))]
        elif isinstance(value, (int, float)):
            found.append(float(value))
    return tuple(found[:NUMBERS])


def samples_of(
    calls: Sequence[CallSizes],
    devices: Sequence[str],
    seconds: Iterable[float],
    chips: Mapping[str, ChipFigures],
    bounds: Sequence[float] | None = None,
) -> Samples:
    """Return columns of calls. Without bounds, nothing can beat the roofline of the datasheet, with the operations of
    the fastest known way to compute a call."""

    def column(name: str) -> np.ndarray:
        return np.asarray([getattr(call, name) for call in calls], dtype=float)

    made = Samples(
        np.asarray([call.operator for call in calls], dtype=object), column("batch"), column("m"), column("n"),
        column("k"), column("image"), column("channels"), column("stride"),
        np.asarray([(*call.numbers, *(0.0,) * (NUMBERS - len(call.numbers))) for call in calls], dtype=float),
        column("flops"), column("nbytes"), column("written"),
        np.asarray(devices, dtype=object), np.asarray(list(seconds), dtype=float), np.zeros(len(calls)), dict(chips),
    )  # fmt: skip
    if bounds is None:
        least = np.asarray([least_flops(call) for call in calls], dtype=float)
        made.bound = np.maximum(least / made.of_chip("flops"), made.moving) if calls else made.bound
    else:
        made.bound = np.asarray(bounds, dtype=float)
    return made


def join_samples(parts: Sequence[Samples]) -> Samples:
    names = [one.name for one in fields(Samples) if one.name != "chips"]
    chips = {name: figures for part in parts for name, figures in part.chips.items()}
    return Samples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}, chips=chips)
