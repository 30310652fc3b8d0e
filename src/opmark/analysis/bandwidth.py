"""Metrics of communication: algorithm and bus bandwidth, skew between ranks, share of a link's peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from opmark.schema import Cost
from opmark.schema.cost import Link, Traffic
from opmark.schema.machine import Interconnect, Peaks

HOST_LINKS = ("C2C", "PCIe")
"""Names of links between a chip and its host. If a chip has both, data takes the first."""
_SIZES = ("size", "num_tokens")
"""Parameters that set the amount of data; the cases of a series differ in one of them."""


class Bandwidths(Struct, frozen=True):
    """Bytes per second, as nccl-tests defines them. None if no data crosses a link."""

    algorithm: float | None = None
    """Size of the whole buffer divided by the time."""
    bus: float | None = None
    """Bytes on the busiest link divided by the time: comparable with its peak for any number of ranks."""


def bandwidths(cost: Cost | None, seconds: float) -> Bandwidths:
    if cost is None or cost.traffic is None or seconds <= 0:
        return Bandwidths()
    size, bus = cost.traffic.size, crossing(cost.traffic)
    return Bandwidths(size / seconds if size else None, bus / seconds if bus else None)


def but_size(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters without the one that sets the size."""
    varied = next((name for name in _SIZES if name in params), None)
    return {name: value for name, value in params.items() if name != varied}


def crossing(traffic: Traffic) -> float:
    """Return the bytes that the busiest link carries: 0 for a single rank, which sends to itself only."""
    return traffic.bus if traffic.link == "host" or traffic.ranks > 1 else 0.0


class Skew(Struct, frozen=True):
    """How far apart the ranks of one measurement are."""

    share: float
    """Median over samples of (slowest - fastest) / slowest."""
    slowest: int | None
    """The rank that is the slowest most often; None if no rank is ever slowest alone."""
    often: float
    """Share of the samples in which it is the slowest."""
    samples: int


def skew(by_rank: Sequence[Sequence[float]], among: Sequence[int] = ()) -> Skew | None:
    """Return the skew, or None for fewer than two ranks. `among` lists the ranks that take part, if not all do."""
    ranks = [rank for rank in dict.fromkeys(among) if rank < len(by_rank)] or range(len(by_rank))
    rounds = list(zip(*(by_rank[rank] for rank in ranks), strict=True))
    if len(ranks) < 2 or not rounds:
        return None
    last: Counter[int] = Counter()
    for times in rounds:
        if times.count(max(times)) == 1:
            last[ranks[times.index(max(times))]] += 1
    share = median([_relative_range(times) for times in rounds])
    if not last:
        return Skew(share, None, 0.0, len(rounds))
    slowest, count = last.most_common(1)[0]
    return Skew(share, slowest, count / len(rounds), len(rounds))


def _relative_range(times: Sequence[float]) -> float:
    slowest = max(times)
    return (slowest - min(times)) / slowest if slowest > 0 else 0.0


class LinkShare(Struct, frozen=True):
    share: float
    """Bus bandwidth divided by the bandwidth of the link in one direction."""
    link: str


def link_share_of(cost: Cost | None, seconds: float, peaks: Peaks) -> LinkShare | None:
    """Return the share of the link's bandwidth; None if no data crosses a link or its bandwidth is unknown."""
    bus = bandwidths(cost, seconds).bus
    if bus is None or cost is None or cost.traffic is None:
        return None
    link = link_for(peaks, cost.traffic.link)
    return LinkShare(bus / link.bandwidth, link.name) if link and link.bandwidth else None


def link_for(peaks: Peaks, link: Link) -> Interconnect | None:
    """Return the link that data takes: to the host one of HOST_LINKS; to other chips any other link, or PCIe if the
    chip has nothing else."""
    to_host = [one for kind in HOST_LINKS for one in peaks.interconnect if kind in one.name]
    if link == "host":
        return next(iter(to_host), None)
    direct = [one for one in peaks.interconnect if one not in to_host]
    return next(iter(direct), None) or next((one for one in to_host if "PCIe" in one.name), None)
