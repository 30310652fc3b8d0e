"""The figures of one row in ByteMicroPerf's reports."""

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
"""Quantities in the order of preference: ByteMicroPerf reports the time of kernels, with cold caches."""
_PREFERRED_TRANSFER = ("throughput", "latency", "event_time", "device_span", "device_time", "host_time")
"""The same for communication, which ByteMicroPerf times as consecutive calls with one buffer."""


class Figures(NamedTuple):
    key: Key
    """The quantity that is reported, and the state of the caches."""
    mean: float
    """Mean seconds, which ByteMicroPerf calls latency; for several processes the mean of their means."""
    summary: Summary
    kernels: list[str]
    warnings: list[str]
    """Codes of the cautions about the quantity."""


def interval_us(summary: Summary, decimals: int = 2) -> tuple[float, float] | None:
    """Return the interval of the median in microseconds; one sample has none."""
    if summary.samples < 2:
        return None
    return round_figure(summary.low / MICRO, decimals), round_figure(summary.high / MICRO, decimals)


def noise_percent(summary: Summary, decimals: int = 2) -> float | None:
    """Return the noise in percent; None if no process took two samples."""
    return None if summary.samples <= summary.processes else round_figure(100 * summary.noise, decimals)


def figures_of(row: Row) -> Figures | None:
    """Return the figures of a row; None if no time was measured."""
    times = [key for key in row.keys if key[0] in QUANTITIES and unit_of(key[0]) == "s"]
    if row.record.status != "ok" or not times:
        return None
    order = _PREFERRED_TRANSFER if row.record.cost and row.record.cost.traffic else _PREFERRED
    key = min(times, key=lambda k: (order.index(k[0]), k[1] != "cold"))
    found, summary = row.measurements(key), row.summary(key)
    assert summary is not None
    names = dict.fromkeys(kernel.name for m in found for kernel in m.kernels)
    codes = next(timing.cautions for timing in row.timings if timing.key == key)
    return Figures(key, fmean(fmean(m.samples) for m in found), summary, list(names), list(codes))


def memory_cost(row: Row) -> Cost | None:
    """Return the cost that a bandwidth is computed from; a view moves no bytes and has none."""
    return None if row.record.view else row.record.cost


def environment_facts(found: Sequence[Row], results: Results) -> dict[str, Any]:
    """Return the facts of the environment of rows; a row that did not run has those of its backend's other records."""
    backend = found[0].record.task.backend
    near = [record for record in results.records if record.task.backend == backend]
    ids = [row.record.environment for row in found] + [record.environment for record in near]
    return next((dict(results.environments[i]) for i in ids if i in results.environments), {})


def memory_bandwidth(peaks: Peaks | None) -> float | None:
    levels = peaks.levels if peaks else []
    return next((level.bandwidth for level in levels if level.name == MEMORY), None)


def other_chip(peaks: Peaks, measured: str) -> str | None:
    """Return a remark if a utilisation is computed from the datasheet of another chip than the measured one."""
    if measured in (peaks.chip, *peaks.aliases):
        return None
    return f"the utilisation is against `{peaks.chip}`, but `{measured}` was measured"


def chip_remarks(found: Sequence[Row], results: Results) -> list[str]:
    """Return remarks about utilisations of rows that are computed from the datasheet of another chip."""
    ids = dict.fromkeys(row.record.environment for row in found)
    known = [(results.chips[i], results.environments.get(i, {})) for i in ids if i in results.chips]
    lines = [other_chip(peaks, chip(dict(facts))) for peaks, facts in known]
    return list(dict.fromkeys(line for line in lines if line))


def round_figure(value: float, decimals: int = 2) -> float:
    """Round to as many decimals as ByteMicroPerf prints, but keep at least four digits: 0.00 µs would say nothing."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, max(decimals, 3 - math.floor(math.log10(abs(value)))))


def path_part(name: str) -> str:
    """Return a name as one part of a path: `torch.add` and `NVIDIA H100 80GB HBM3` stay, a slash is replaced."""
    return re.sub(r"[^\w. +()@-]", "_", name).strip(". ") or "unknown"
