"""Samples from stored records, and cases from samples: what was measured, and what to measure next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.class_model import FEWEST
from opmark.prediction.features import size_axes
from opmark.prediction.samples import (
    BATCHED,
    CONVOLUTION,
    LINEAR,
    CallSizes,
    ChipFigures,
    Samples,
    chip_figures,
    class_of,
    samples_of,
    sizes_of_case,
)  # fmt: skip
from opmark.schema import Case, Entry
from opmark.schema.machine import Peaks
from opmark.schema.record import COUNTED, Figure

TIMES = ("device_time", "latency", "host_time")
"""Quantities that a predictor learns, the first that most records have."""
FAMILIES = (
    "matmul", "linear", "batched_matmul", "conv2d", "softmax", "layer_norm", "gelu", "relu", "add", "tanh",
)  # fmt: skip
"""Operators that `opmark predict train --measure` measures."""


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
    dtype = str(case.params.get("dtype", "float32"))
    figures = chip_figures(peaks, dtype, peaks.threads)
    moving = peaks.moving_time(int(sizes.nbytes), cold=cold)
    bound = max(sizes.flops / figures.flops, moving.seconds if moving else 0.0)
    return sizes, figures, bound


def samples_of_figures(
    figures: Sequence[Figure], cases: Mapping[str, Case], peaks: Mapping[str, tuple[str, Peaks]], backend: str,
    quantity: str | None = None,
) -> tuple[Samples, str]:  # fmt: skip
    """Return the samples of a backend, a row for each case and chip, and their quantity. `peaks` has name and peaks of
    the chip by environment."""
    own = [one for one in figures if one.backend == backend and one.status in COUNTED and one.median and not one.load]
    kinds = Counter((one.quantity, one.cache) for one in own if one.quantity in ((quantity,) if quantity else TIMES))
    if not kinds:
        raise UserError(
            f"the store has no times of {backend} to learn from",
            f"`opmark predict train --measure --backend {backend} --budget 10m` measures them",
        )
    chosen = min(kinds, key=lambda kind: (-kinds[kind], TIMES.index(kind[0]) if kind[0] in TIMES else 9))
    times: dict[tuple[str, str], list[float]] = {}
    for one in own:
        if (one.quantity, one.cache) == chosen and one.environment in peaks and one.case in cases and one.median:
            times.setdefault((one.case, one.environment), []).append(one.median)
    calls, devices, seconds, bounds, chips = [], [], [], [], {}
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
        chips[device] = found[1]
        devices.append(device)
        seconds.append(float(np.median(medians)))
        bounds.append(min(found[2], seconds[-1]))
    if not calls:
        raise UserError(
            f"no record of {backend} is on a chip with known peaks",
            "`opmark calibrate` measures the peaks of this machine",
        )
    return _once(samples_of(calls, devices, seconds, chips, bounds)), chosen[0]


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
        image = int(samples.image[row])
        params = {"batch": batch, "in_channels": int(samples.channels[row]), "image": [image, image], "out_channels": n}
    else:
        params = {"shape": [m, n]}
        if second:
            params["y"] = second
    return Entry(name, params, phases=[phase or "forward"])  # type: ignore[list-item]


def random_entries(count: int, generator: np.random.Generator, largest: float = 2.0**28) -> list[Entry]:
    """Return entries of the families with sizes drawn evenly on a logarithmic scale, some of them multiples of 32."""

    def size(low: float, high: float) -> int:
        drawn = round(2 ** generator.uniform(np.log2(low), np.log2(high)))
        return max(32, drawn // 32 * 32) if drawn > 64 and generator.random() < 0.5 else drawn

    entries: list[Entry] = []
    while len(entries) < count:
        name = FAMILIES[len(entries) % len(FAMILIES)]
        if class_of(name) == LINEAR:
            params: dict[str, Any] = {"M": size(1, 4096), "N": size(8, 4096), "K": size(8, 4096)}
            work = params["M"] * params["N"] * sqrt(params["K"])
        elif class_of(name) == BATCHED:
            params = {"B": size(1, 128), "M": size(8, 1024), "N": size(8, 1024), "K": size(8, 512)}
            work = params["B"] * params["M"] * params["N"] * sqrt(params["K"])
        elif class_of(name) == CONVOLUTION:
            image = size(5, 112)
            params = {
                "batch": size(1, 16),
                "in_channels": size(3, 256),
                "image": [image, image],
                "out_channels": size(8, 256),
            }
            work = params["batch"] * image**2 * params["out_channels"] * sqrt(params["in_channels"] * 9)
        else:
            params = {"shape": [size(1, 8192), size(8, 8192)]}
            work = params["shape"][0] * params["shape"][1] * 4
        if work <= largest:
            entries.append(Entry(name, params))
    return entries


def choose_entries(
    candidates: Sequence[Entry], calls: Samples, known: Samples | None,
    count: int,
) -> list[Entry]:  # fmt: skip
    """Return the candidates that would teach most: those farthest from all that was measured."""
    score = np.zeros(len(calls))
    if known is not None and len(known) >= FEWEST:
        for kind in sorted({class_of(str(op)) for op in calls.operator}):
            rows = np.flatnonzero([class_of(str(op)) == kind for op in calls.operator])
            own = np.flatnonzero([class_of(str(op)) == kind for op in known.operator])
            if not len(own):
                score[rows] = np.inf
                continue
            here, there = size_axes(kind, calls.take(rows)), size_axes(kind, known.take(own))
            apart = calls.operator[rows][:, None] != known.operator[own][None]
            distances = np.sqrt(((here[:, None] - there[None]) ** 2).sum(-1)) + 2 * apart
            score[rows] = distances.min(1)
    order = np.argsort(-score, kind="stable")[:count]
    return [candidates[row] for row in order]
