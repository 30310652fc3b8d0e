"""Samples from stored records, and cases from samples: what was measured, and what to measure next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.plugin.operator import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.class_model import FEWEST
from opmark.prediction.features import size_axes
from opmark.prediction.predictor import ENERGY
from opmark.prediction.samples import (
    BATCHED,
    BEYOND_CACHE,
    CONVOLUTION,
    LINEAR,
    ChipFigures,
    Samples,
    chip_figures,
    class_of,
    least_flops,
    samples_of,
    sizes_of_case,
)  # fmt: skip
from opmark.schema import Case, Entry
from opmark.schema.call_sizes import CallSizes
from opmark.schema.machine import Peaks
from opmark.schema.record import COUNTED, Figure

TIMES = ("device_time", "latency", "host_time")
"""Quantities that a predictor learns, the first that most records have."""
FAMILIES = (
    "matmul", "linear", "batched_matmul", "batched_matmul", "conv2d", "conv2d", "conv2d", "add", "mul", "gelu", "relu",
    "softmax", "layer_norm", "reduce_sum", "argmax", "max_pool2d", "avg_pool2d", "embedding", "gather", "transpose",
    "concat", "scaled_dot_product_attention", "scaled_dot_product_attention", "sort", "topk",
)  # fmt: skip
"""Operators that `opmark predict train --measure` measures."""
_VARIANTS: dict[str, tuple[Any, ...]] = {
    "kernel": ([1, 1], [3, 3], [3, 3], [5, 5]), "stride": (1, 1, 2), "axis": (-1, -1, 0), "causal": (False, True),
}  # fmt: skip
"""Values of parameters that presets leave at their default and that decide which code runs."""
_IMAGES = ("convolution", "pooling", "resizing")
_LARGEST = (2e9, 6.4e7)
"""Most operations and bytes of a case on a processor: larger ones take most of the time, and teach no more."""
_ON_DEVICE = 64
_DRAWS = 500


def device_name(chip: str, dtype: str) -> str:
    """Return the name of a chip in samples: a chip in another element type has other peaks."""
    return chip if dtype == "float32" else f"{chip} [{dtype}]"


def case_call(case: Case, peaks: Peaks, *, cold: bool = False) -> tuple[CallSizes, ChipFigures, float] | str:
    """Return sizes, figures of the chip and the least time of a case; or why there are none."""
    try:
        operator = find_operator(case.op)
    except UnknownName:
        return f"`{case.op}` is not in the catalogue"
    sizes = sizes_of_case(operator, case)
    if sizes is None:
        return f"the work of `{case.op}` is not known"
    return sizes, *bound_call(sizes, str(case.params.get("dtype", "float32")), peaks, cold=cold)


def bound_call(sizes: CallSizes, dtype: str, peaks: Peaks, *, cold: bool = False) -> tuple[ChipFigures, float]:
    """Return the figures of a chip and the least time of a call there."""
    figures = chip_figures(peaks, dtype, peaks.threads)
    moving = peaks.moving_time(int(sizes.nbytes), cold=cold)
    return figures, max(least_flops(sizes) / figures.flops, moving.seconds if moving else 0.0)


def samples_of_figures(
    figures: Sequence[Figure], cases: Mapping[str, Case], peaks: Mapping[str, tuple[str, Peaks]], backend: str,
    quantity: str | None = None,
) -> tuple[Samples, str]:  # fmt: skip
    """Return the samples of a backend, a row for each case and chip, and their quantity. `peaks` has name and peaks of
    the chip by environment."""
    own = [one for one in figures if one.backend == backend and one.status in COUNTED and one.median and not one.load]
    kinds = Counter((one.quantity, one.cache) for one in own if one.quantity in ((quantity,) if quantity else TIMES))
    if not kinds:
        what = "energy" if quantity == ENERGY else "times"
        given = f" --quantity {quantity}" if quantity else ""
        sensor = ", where there is a sensor (RAPL, NVML)" if quantity == ENERGY else ""
        raise UserError(
            f"the store has no {what} of {backend} to learn from",
            f"`opmark predict train --measure --backend {backend}{given} --budget 10m` measures them{sensor}",
        )
    chosen = min(kinds, key=lambda kind: (-kinds[kind], TIMES.index(kind[0]) if kind[0] in TIMES else 9))
    times: dict[tuple[str, str], list[float]] = {}
    for one in own:
        if (one.quantity, one.cache) == chosen and one.environment in peaks and one.case in cases and one.median:
            times.setdefault((one.case, one.environment), []).append(one.median)
    calls, devices, seconds, bounds = [], [], [], []
    chips: dict[str, ChipFigures] = {}
    for (case_id, environment), medians in times.items():
        name, own_peaks = peaks[environment]
        case = cases[case_id]
        dtype = str(case.params.get("dtype", "float32"))
        if dtype not in own_peaks.flops or own_peaks.memory_bandwidth is None:
            continue
        found = case_call(case, own_peaks, cold=chosen[1] != "warm")
        if isinstance(found, str):
            continue
        device = device_name(name, dtype)
        calls.append(found[0])
        chips.setdefault(device, found[1])
        devices.append(device)
        if chosen[0] == ENERGY:
            # Learnt as the seconds in which the chip's rated power is as much; nothing is known to bound it.
            seconds.append(float(np.median(medians)) / found[1].power)
            bounds.append(0.0)
        else:
            seconds.append(float(np.median(medians)))
            bounds.append(min(found[2], seconds[-1]))
            if own_peaks.backend:  # measured peaks
                chips[device] = _raised(chips[device], found[0], seconds[-1])
    if not calls:
        raise UserError(
            f"no record of {backend} is on a chip with known peaks",
            "`opmark calibrate` measures the peaks of this machine",
        )
    return _once(samples_of(calls, devices, seconds, chips, bounds)), chosen[0]


def _raised(figures: ChipFigures, call: CallSizes, seconds: float) -> ChipFigures:
    """Return the measured peaks of a chip, at least as high as what a call has reached: another backend may have
    measured them, or a busy machine, and what was reached is possible. Small data may come from a cache."""
    moved = call.nbytes / seconds if call.nbytes > BEYOND_CACHE * figures.cache else 0.0
    return replace(
        figures, flops=max(figures.flops, least_flops(call) / seconds), bandwidth=max(figures.bandwidth, moved)
    )


def _once(samples: Samples) -> Samples:
    """Keep the median of each shape on each chip."""
    keys = samples.shape_keys
    rows: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(zip(keys, samples.device, strict=True)):
        rows.setdefault(key, []).append(row)
    kept = samples.take(np.asarray([same[0] for same in rows.values()]))
    kept.seconds = np.asarray([np.median(samples.seconds[same]) for same in rows.values()])
    return kept


def usable_peaks(measured: Peaks | None, sheet: Peaks | None) -> Peaks | None:
    """Return the peaks of a roofline: the datasheet's, which hold for any implementation, else measured ones."""
    for peaks in (sheet, measured):
        if peaks and peaks.flops and peaks.memory_bandwidth:
            return peaks
    return None


# Cases to measure.


def entry_of(samples: Samples, row: int) -> Entry:
    """Return the workload entry of a sample, in the terms of the catalogue."""
    name, _, second = str(samples.operator[row]).partition(" y=")
    name, _, phase = name.partition(" ")
    kind = class_of(name)
    m, n, k, batch = (int(getattr(samples, one)[row]) for one in ("m", "n", "k", "batch"))
    params: dict[str, Any]
    if kind == LINEAR:
        params = {"M": m, "N": n, "K": k}
    elif kind == BATCHED:
        params = {"B": batch, "M": m, "N": n, "K": k}
    elif kind == CONVOLUTION:
        channels, stride = int(samples.channels[row]), int(samples.stride[row])
        image, side = (int(samples.image[row]) - 1) * stride + 1, round((k / channels) ** 0.5)
        params = {"batch": batch, "in_channels": channels, "image": [image, image], "out_channels": n,
                  "kernel": [side, side], "stride": stride, "padding": side // 2}  # fmt: skip
    else:
        params = {"shape": [m, n]}
        if second:
            params["y"] = second
    return Entry(name, params, phases=[phase or "forward"])  # type: ignore[list-item]


def random_calls(
    count: int, generator: np.random.Generator, operators: Sequence[str] = FAMILIES, *, on_device: bool = False
) -> list[tuple[Entry, CallSizes]]:
    """Return entries, and their sizes, of the operators in turn. Sizes are drawn evenly on a logarithmic scale, from a
    little below those that the operator's presets call small to those that they call large, half of them multiples of
    32."""
    flops, nbytes = (_LARGEST[0] * _ON_DEVICE, _LARGEST[1] * _ON_DEVICE) if on_device else _LARGEST
    found: list[tuple[Entry, CallSizes]] = []
    while len(found) < count:
        operator = find_operator(operators[len(found) % len(operators)])
        if not {"small", "large"} <= set(operator.presets):
            raise UserError(
                f"`{operator.name}` has no sizes to draw from", "operators of the catalogue have, as in --op softmax"
            )
        for _ in range(_DRAWS):
            entry = Entry(operator.name, _random_params(operator, generator))
            try:
                params = operator.complete(entry.params)
                operator.check_rules(params)
            except InvalidParameter:
                continue  # these sizes do not go together, as a window that is larger than the image
            sizes = sizes_of_case(operator, Case.of(operator.name, params, "forward"))
            held = sum(tensor.nbytes for tensor in operator.inputs(params).values())
            if sizes and sizes.flops <= flops and max(sizes.nbytes, held) <= nbytes:
                found.append((entry, sizes))
                break
        else:
            raise UserError(
                f"no sizes of `{operator.name}` were found whose work is known and small enough to measure",
                "--op names other operators",
            )
    return found


def _random_params(operator: Operator, generator: np.random.Generator) -> dict[str, Any]:
    def size(low: float, high: float) -> int:
        drawn = round(2 ** generator.uniform(np.log2(low), np.log2(high)))
        return max(32, drawn // 32 * 32) if drawn > 64 and generator.random() < 0.5 else drawn

    def between(low: Any, high: Any) -> Any:
        if isinstance(low, list):
            # An image is square; the axes of data are not alike.
            same = len(low) > 1 and len(set(low)) == len(set(high)) == 1 and operator.category in _IMAGES
            found = [between(*pair) for pair in zip(low, high, strict=True)]
            return found[:1] * len(found) if same else found
        return low if isinstance(low, (str, bool)) or low == high else size(max(1, min(low, high) / 8), max(low, high))

    small, large = operator.presets["small"], operator.presets["large"]
    params = {name: between(value, large[name]) for name, value in small.items() if name in large}
    for param in operator.params:
        if param.name in _VARIANTS and param.name not in params:
            params[param.name] = _VARIANTS[param.name][generator.integers(len(_VARIANTS[param.name]))]
    if "kernel" in params and any(param.name == "padding" for param in operator.params):
        params["padding"] = params["kernel"][0] // 2
    return params


def choose_entries(
    candidates: Sequence[Entry], calls: Samples, known: Samples, count: int
) -> list[Entry]:  # fmt: skip
    """Return the candidates that would teach most: those far from all that was measured of their operator, the farther
    the worse the times of that operator can be told from its neighbours."""
    score = np.full(len(calls), np.inf)  # an operator that was never measured
    for operator in sorted(set(calls.operator) & set(known.operator)):
        kind = class_of(operator)
        rows, own = np.flatnonzero(calls.operator == operator), known.take(known.operator == operator)
        here, there = _places(kind, calls.take(rows)), _places(kind, own)
        score[rows] = _between(here, there).min(1) * _surprise(there, own)
    order = np.argsort(-score, kind="stable")[:count]
    return [candidates[row] for row in order]


def _places(kind: str, samples: Samples) -> np.ndarray:
    """Return sizes and parameters as logarithms."""
    numbers = np.log2(1 + np.abs(samples.numbers))
    return np.concatenate([size_axes(kind, samples), numbers], 1)


def _between(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(((here[:, None] - there[None]) ** 2).sum(-1)))


def _surprise(places: np.ndarray, samples: Samples) -> float:
    """Return how far the time of a call is from what its three nearest neighbours say, in logarithms: the median."""
    if len(samples) < 2 * FEWEST:  # too few neighbours to tell, and each operator needs shapes of its own
        return 1.0
    distances = _between(places, places)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, 1)[:, :3]
    slowness = np.log(samples.seconds / (samples.roofline + samples.seconds.min()))
    return float(np.median(np.abs(slowness - slowness[nearest].mean(1))) + 0.02)
