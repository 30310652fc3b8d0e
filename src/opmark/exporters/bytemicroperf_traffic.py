"""The figures of ByteMicroPerf's communication and transfers, of one row: bytes, bandwidths, and every rank's own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from opmark.analysis.rows import Row
from opmark.exporters.bytemicroperf_figures import MICRO, Figures, rounded
from opmark.metrics.bus import link_for
from opmark.schema import Case, Traffic
from opmark.schema.peaks import Peaks

_GB = 1e9

TARGETS = (
    "latency(us)", "algo_size(B)", "bus_size(B)", "algo_bw(GB/s)", "bus_bw(GB/s)", "algo_bw_sum(GB/s)",
    "bus_bw_sum(GB/s)", "latency_list(us)", "algo_bw_list(GB/s)", "bus_bw_list(GB/s)", "kernels",
)  # fmt: skip
"""Of xpu-perf, of whatever several processes measure together."""

NOTES = (
    "The latency of communication is that of the slowest rank, call by call: this is what it costs. ByteMicroPerf "
    "gives the mean over the ranks (2026), the smallest (2025) or that of rank 0 (2024). The lists have every rank's.",
    "Of p2p only the two that send and receive count; ByteMicroPerf of 2026 takes the mean with those that do nothing.",
    "broadcast is one of them, from one rank; ByteMicroPerf does one from every rank in turn and divides by their "
    "number. all_reduce_h2d is waited for as a whole; ByteMicroPerf does not wait for its all_reduce.",
)
SUM_NOTE = (
    "Kernel bandwidth of host2device and device2host is the sum over the devices that copy at once, as "
    "ByteMicroPerf has it; Bus bandwidth is that of one of them."
)


class Moved(NamedTuple):
    """What went over a link, in so many seconds."""

    traffic: Traffic
    seconds: float
    """Of the slowest rank."""
    ranks: list[int]
    """Those that take part."""
    by_rank: list[float]
    """Seconds of each of them."""

    def algorithm(self, seconds: float) -> float | None:
        """GB/s"""
        return _speed(self.traffic.size, seconds)

    def bus(self, seconds: float) -> float | None:
        return _speed(self.traffic.bus, seconds)

    @property
    def algorithm_sum(self) -> float | None:
        return _sum([self.algorithm(seconds) for seconds in self.by_rank])

    @property
    def bus_sum(self) -> float | None:
        return _sum([self.bus(seconds) for seconds in self.by_rank])

    def of_link(self, peaks: Peaks | None) -> float | None:
        """Percent of what the link can carry in one direction; None where nobody tells."""
        link, bus = link_for(peaks, self.traffic.link) if peaks else None, self.bus(self.seconds)
        return 100 * bus * _GB / link.bandwidth if bus and link and link.bandwidth else None


def _speed(size: float, seconds: float) -> float | None:
    return size / seconds / _GB if seconds > 0 else None


def _sum(speeds: Sequence[float | None]) -> float | None:
    known = [speed for speed in speeds if speed is not None]
    return sum(known) if len(known) == len(speeds) else None


def moved_between(row: Row, values: Figures) -> Moved | None:
    """None where the row is of an operator that works on one device."""
    cost = row.record.cost
    if cost is None or cost.traffic is None:
        return None
    means = _means(row, values)
    ranks = taking_part(row.record.task.case, len(means))
    return Moved(cost.traffic, values.mean, ranks, [means[rank] for rank in ranks])


def taking_part(case: Case, known: int) -> list[int]:
    """Of so many ranks; the two of a pair, else all."""
    pair = [case.params[name] for name in ("src", "dst") if name in case.params]
    return [rank for rank in dict.fromkeys(pair) if rank < known] or list(range(known))


def _means(row: Row, values: Figures) -> list[float]:
    """Of each rank, over all processes; of one that measured alone its own."""
    found = [m.by_rank for m in row.measurements(values.key) if m.by_rank]
    if not found:
        return [values.mean]
    return [fmean(fmean(samples) for samples in rank) for rank in zip(*found, strict=False)]


def targets(moved: Moved, kernels: list[str], decimals: int) -> dict[str, Any]:
    def brief(value: float | None) -> float | None:
        return None if value is None else rounded(value, decimals)

    facts = (
        brief(moved.seconds / MICRO),
        moved.traffic.size,
        brief(moved.traffic.bus),
        brief(moved.algorithm(moved.seconds)),
        brief(moved.bus(moved.seconds)),
        brief(moved.algorithm_sum),
        brief(moved.bus_sum),
        [brief(seconds / MICRO) for seconds in moved.by_rank],
        [brief(moved.algorithm(seconds)) for seconds in moved.by_rank],
        [brief(moved.bus(seconds)) for seconds in moved.by_rank],
        kernels,
    )
    return dict(zip(TARGETS, facts, strict=True))
