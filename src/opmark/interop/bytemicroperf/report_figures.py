"""The figures of one row in ByteMicroPerf's reports; for communication and transfers also those of every rank."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from opmark.analysis.bandwidth import link_for
from opmark.analysis.metrics import Rates, rates
from opmark.analysis.ranking import Key
from opmark.analysis.rows import Row, unit_of
from opmark.plugin import Results
from opmark.schema import QUANTITIES, Case, Cost, Traffic
from opmark.schema.machine import MEMORY, Peaks, chip
from opmark.schema.measurement import PREEMPTED
from opmark.schema.record import MEASURED
from opmark.stats.measurement import Summary

_GB = 1e9

TRANSFER_TARGETS = (
    "latency(us)", "algo_size(B)", "bus_size(B)", "algo_bw(GB/s)", "bus_bw(GB/s)", "algo_bw_sum(GB/s)",
    "bus_bw_sum(GB/s)", "latency_list(us)", "algo_bw_list(GB/s)", "bus_bw_list(GB/s)", "kernels",
)  # fmt: skip
"""xpu-perf's results of operators that several processes measure together."""

V1_TRANSFER_NOTES = (
    "The latency of communication is that of the slowest rank, call by call: this is what it costs. ByteMicroPerf "
    "gives the mean over the ranks (2026), the smallest (2025) or that of rank 0 (2024). The lists have "
    "the figures of every rank.",
)
TRANSFER_NOTES = (
    *V1_TRANSFER_NOTES,
    "For p2p only the sender and the receiver count; ByteMicroPerf of 2026 includes idle ranks in its mean.",
    "broadcast is one broadcast, from one rank; ByteMicroPerf averages broadcasts from every rank in turn. "
    "opmark waits for all of all_reduce_h2d; ByteMicroPerf does not wait for its all_reduce.",
)
HOST_COPY_NOTE = (
    "Kernel bandwidth of host2device and device2host is the sum over the devices that copy at once, as "
    "ByteMicroPerf reports it; Bus bandwidth is that of one device."
)


class Transfer(NamedTuple):
    """The traffic over a link, and how long it took."""

    traffic: Traffic
    seconds: float
    """Time of the slowest rank."""
    ranks: list[int]
    """The ranks that take part."""
    by_rank: list[float]
    """Seconds of each rank that takes part."""

    def algorithm(self, seconds: float) -> float | None:
        """Return the algorithm bandwidth in GB/s."""
        return _speed(self.traffic.size, seconds)

    def bus(self, seconds: float) -> float | None:
        return _speed(self.traffic.bus, seconds)

    @property
    def algorithm_sum(self) -> float | None:
        return _sum([self.algorithm(seconds) for seconds in self.by_rank])

    @property
    def bus_sum(self) -> float | None:
        return _sum([self.bus(seconds) for seconds in self.by_rank])

    def link_percent(self, peaks: Peaks | None) -> float | None:
        """Return the bus bandwidth in percent of the link's bandwidth in one direction; None if that is unknown."""
        link, bus = link_for(peaks, self.traffic.link) if peaks else None, self.bus(self.seconds)
        return 100 * bus * _GB / link.bandwidth if bus and link and link.bandwidth else None


def _speed(size: float, seconds: float) -> float | None:
    return size / seconds / _GB if seconds > 0 else None


def _sum(speeds: Sequence[float | None]) -> float | None:
    known = [speed for speed in speeds if speed is not None]
    return sum(known) if len(known) == len(speeds) else None


def transfer_of(row: Row, values: ReportFigures) -> Transfer | None:
    """Return the transfer of a row; None for an operator that works on one device."""
    cost = row.record.cost
    if cost is None or cost.traffic is None:
        return None
    means = _means(row, values)
    ranks = participating_ranks(row.record.task.case, len(means))
    return Transfer(cost.traffic, values.mean, ranks, [means[rank] for rank in ranks])


def participating_ranks(case: Case, known: int) -> list[int]:
    """Return the two ranks of a pair, and otherwise all of the `known` ranks."""
    pair = [case.params[name] for name in ("src", "dst") if name in case.params]
    return [rank for rank in dict.fromkeys(pair) if rank < known] or list(range(known))


def _means(row: Row, values: ReportFigures) -> list[float]:
    """Return the mean of each rank over all processes; a rank that measured alone is the only one."""
    found = [m.by_rank for m in row.measurements(values.key) if m.by_rank]
    if not found:
        return [values.mean]
    return [fmean(fmean(samples) for samples in rank) for rank in zip(*found, strict=False)]


def transfer_targets(transfer: Transfer, kernels: list[str], decimals: int) -> dict[str, Any]:
    def brief(value: float | None) -> float | None:
        return None if value is None else round_figure(value, decimals)

    facts = (
        brief(transfer.seconds / MICRO),
        transfer.traffic.size,
        brief(transfer.traffic.bus),
        brief(transfer.algorithm(transfer.seconds)),
        brief(transfer.bus(transfer.seconds)),
        brief(transfer.algorithm_sum),
        brief(transfer.bus_sum),
        [brief(seconds / MICRO) for seconds in transfer.by_rank],
        [brief(transfer.algorithm(seconds)) for seconds in transfer.by_rank],
        [brief(transfer.bus(seconds)) for seconds in transfer.by_rank],
        kernels,
    )
    return dict(zip(TRANSFER_TARGETS, facts, strict=True))


# The figures of one row in ByteMicroPerf's reports.

MICRO = 1e-6

_PREFERRED = ("device_time", "device_span", "latency", "event_time", "throughput", "host_time")
"""Quantities in the order of preference: ByteMicroPerf reports the time of kernels, with cold caches."""
_PREFERRED_TRANSFER = ("throughput", "latency", "event_time", "device_span", "device_time", "host_time")
"""The same for communication, which ByteMicroPerf times as consecutive calls with one buffer."""


class ReportFigures(NamedTuple):
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


def figures_of(row: Row) -> ReportFigures | None:
    """Return the figures of a row; None if no time was measured."""
    times = [key for key in row.keys if key[0] in QUANTITIES and unit_of(key[0]) == "s"]
    if row.record.status not in MEASURED or not times:
        return None
    order = _PREFERRED_TRANSFER if row.record.cost and row.record.cost.traffic else _PREFERRED
    key = min(times, key=lambda k: (order.index(k[0]), k[1] != "cold"))
    found, summary = row.measurements(key), row.summary(key)
    assert summary is not None
    names = dict.fromkeys(kernel.name for m in found for kernel in m.kernels)
    codes = next(timing.cautions for timing in row.timings if timing.key == key)
    return ReportFigures(key, fmean(fmean(m.samples) for m in found), summary, list(names), list(codes))


def memory_cost(row: Row) -> Cost | None:
    """Return the cost that a bandwidth is computed from; a view moves no bytes and has none."""
    return None if row.record.view else row.record.cost


def rates_of(row: Row, values: ReportFigures) -> Rates:
    """Return the rates at the mean time; a disturbed time has none."""
    return Rates() if PREEMPTED in values.warnings else rates(memory_cost(row), values.mean)


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
