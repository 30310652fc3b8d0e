"""The figures that ByteMicroPerf's reports are made of, of one row."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from opmark.analysis.rows import Key, Row, unit_of
from opmark.interfaces import Results
from opmark.metrics.summary import Summary
from opmark.schema import QUANTITIES, Cost
from opmark.schema.peaks import MEMORY, Peaks, chip

MICRO = 1e-6

_PREFERRED = ("device_time", "device_span", "latency", "event_time", "throughput", "host_time")
"""ByteMicroPerf reports the time of the kernels, and rotates its tensors so that none is in a cache."""
_PREFERRED_BETWEEN = ("throughput", "latency", "event_time", "device_span", "device_time", "host_time")
"""Of communication it takes the time of calls in a row, with one buffer."""


class Figures(NamedTuple):
    key: Key
    """The quantity that is reported, and the state of the caches."""
    mean: float
    """Seconds: their latency is the mean. Of several processes, the mean of their means."""
    summary: Summary
    kernels: list[str]
    warnings: list[str]
    """Codes of what makes it doubtful."""


def microseconds_between(summary: Summary, decimals: int = 2) -> tuple[float, float] | None:
    """The ends of the interval of the median; one sample has none."""
    if summary.samples < 2:
        return None
    return rounded(summary.low / MICRO, decimals), rounded(summary.high / MICRO, decimals)


def noise_percent(summary: Summary, decimals: int = 2) -> float | None:
    """None where no process took two samples."""
    return None if summary.samples <= summary.processes else rounded(100 * summary.noise, decimals)


def figures(row: Row) -> Figures | None:
    """None where no time was measured."""
    times = [key for key in row.keys if key[0] in QUANTITIES and unit_of(key[0]) == "s"]
    if row.record.status != "ok" or not times:
        return None
    order = _PREFERRED_BETWEEN if row.record.cost and row.record.cost.traffic else _PREFERRED
    key = min(times, key=lambda k: (order.index(k[0]), k[1] != "cold"))
    found, summary = row.measurements(key), row.summary(key)
    assert summary is not None
    names = dict.fromkeys(kernel.name for m in found for kernel in m.kernels)
    codes = next(timing.cautions for timing in row.timings if timing.key == key)
    return Figures(key, fmean(fmean(m.samples) for m in found), summary, list(names), list(codes))


def moved(row: Row) -> Cost | None:
    """The bytes that a bandwidth is made of: a view moves none."""
    return None if row.record.view else row.record.cost


def environment(found: Sequence[Row], results: Results) -> dict[str, Any]:
    """Facts of where rows ran; of what could not run, those of its neighbours on the same backend."""
    backend = found[0].record.task.backend
    near = [record for record in results.records if record.task.backend == backend]
    ids = [row.record.environment for row in found] + [record.environment for record in near]
    return next((dict(results.environments[i]) for i in ids if i in results.environments), {})


def memory_bandwidth(peaks: Peaks | None) -> float | None:
    levels = peaks.levels if peaks else []
    return next((level.bandwidth for level in levels if level.name == MEMORY), None)


def other_chip(peaks: Peaks, measured: str) -> str | None:
    """What to know of a utilisation where the figures are those of another chip; None where they are not."""
    if measured in (peaks.chip, *peaks.aliases):
        return None
    return f"the utilisation is against `{peaks.chip}`, but `{measured}` was measured"


def remarks(found: Sequence[Row], results: Results) -> list[str]:
    """About the chips that the utilisations of these rows are against."""
    ids = dict.fromkeys(row.record.environment for row in found)
    known = [(results.chips[i], results.environments.get(i, {})) for i in ids if i in results.chips]
    said = [other_chip(peaks, chip(dict(facts))) for peaks, facts in known]
    return list(dict.fromkeys(line for line in said if line))


def rounded(value: float, decimals: int = 2) -> float:
    """As many decimals as they print, and at least four digits: 0.00 µs would say nothing."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, max(decimals, 3 - math.floor(math.log10(abs(value)))))


def path_part(name: str) -> str:
    """A name as a part of a path: `torch.add` and `NVIDIA H100 80GB HBM3` as they are, a slash not."""
    return re.sub(r"[^\w. +()@-]", "_", name).strip(". ") or "unknown"
