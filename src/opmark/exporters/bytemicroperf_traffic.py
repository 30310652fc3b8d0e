"""The figures of one row of communication or transfers in ByteMicroPerf's reports, with those of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from opmark.analysis.rows import Row
from opmark.exporters.bytemicroperf_figures import MICRO, Figures, round_figure
from opmark.metrics.bus import link_for
from opmark.schema import Case, Traffic
from opmark.schema.peaks import Peaks

_GB = 1e9

TRANSFER_TARGETS = (
    "latency(us)", "algo_size(B)", "bus_size(B)", "algo_bw(GB/s)", "bus_bw(GB/s)", "algo_bw_sum(GB/s)",
    "bus_bw_sum(GB/s)", "latency_list(us)", "algo_bw_list(GB/s)", "bus_bw_list(GB/s)", "kernels",
)  # fmt: skip
"""xpu-perf's results of operators that several processes measure together."""

TRANSFER_NOTES = (
    "The latency of communication is that of the slowest rank, call by call: this is what it costs. ByteMicroPerf "
    "gives the mean over the ranks (2026), the smallest (2025) or that of rank 0 (2024). The lists have "
    "the figures of every rank.",
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


def transfer_of(row: Row, values: Figures) -> Transfer | None:
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


def _means(row: Row, values: Figures) -> list[float]:
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
