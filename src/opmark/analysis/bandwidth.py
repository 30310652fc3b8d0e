"""Communication over time: algorithm and bus bandwidth, how far ranks are apart, what part of a link's peak that is."""

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
"""How links are called by which a chip reaches its host; where it has both, data goes by the first."""
_SIZES = ("size", "num_tokens")
"""Parameters that say how much is sent; a series has all values of one of them."""


class Bandwidths(Struct, frozen=True):
    """Bytes a second, in the words of nccl-tests. None where nothing crosses a link: never a made-up zero."""

    algorithm: float | None = None
    """The whole buffer over the time."""
    bus: float | None = None
    """What the busiest link has to carry over the time: comparable with its peak, whatever the number of ranks."""


def bandwidths(cost: Cost | None, seconds: float) -> Bandwidths:
    if cost is None or cost.traffic is None or seconds <= 0:
        return Bandwidths()
    size, bus = cost.traffic.size, crossing(cost.traffic)
    return Bandwidths(size / seconds if size else None, bus / seconds if bus else None)


def but_size(params: Mapping[str, Any]) -> dict[str, Any]:
    """What the sizes of a series have in common."""
    varied = next((name for name in _SIZES if name in params), None)
    return {name: value for name, value in params.items() if name != varied}


def crossing(traffic: Traffic) -> float:
    """Bytes that the busiest link carries: none where a rank has nobody to send to but itself."""
    return traffic.bus if traffic.link == "host" or traffic.ranks > 1 else 0.0


class Skew(Struct, frozen=True):
    """How far the ranks are apart that measured together."""

    share: float
    """Slowest minus fastest over slowest, sample by sample; the median of that."""
    slowest: int | None
    """The rank that is the slowest most often; None where no rank ever is, alone."""
    often: float
    """In what part of the samples it is."""
    samples: int


def skew(by_rank: Sequence[Sequence[float]], among: Sequence[int] = ()) -> Skew | None:
    """None for fewer than two ranks. `among`: those that take part, where not all do."""
    ranks = [rank for rank in dict.fromkeys(among) if rank < len(by_rank)] or range(len(by_rank))
    rounds = list(zip(*(by_rank[rank] for rank in ranks), strict=True))
    if len(ranks) < 2 or not rounds:
        return None
    last: Counter[int] = Counter()
    for times in rounds:
        if times.count(max(times)) == 1:
            last[ranks[times.index(max(times))]] += 1
    share = median([_apart(times) for times in rounds])
    if not last:
        return Skew(share, None, 0.0, len(rounds))
    slowest, count = last.most_common(1)[0]
    return Skew(share, slowest, count / len(rounds), len(rounds))


def _apart(times: Sequence[float]) -> float:
    slowest = max(times)
    return (slowest - min(times)) / slowest if slowest > 0 else 0.0


class LinkShare(Struct, frozen=True):
    share: float
    """Bus bandwidth over what the link can carry in one direction."""
    link: str


def link_share_of(cost: Cost | None, seconds: float, peaks: Peaks) -> LinkShare | None:
    """None where nothing crosses a link, or nobody tells what it can carry."""
    bus = bandwidths(cost, seconds).bus
    if bus is None or cost is None or cost.traffic is None:
        return None
    link = link_for(peaks, cost.traffic.link)
    return LinkShare(bus / link.bandwidth, link.name) if link and link.bandwidth else None


def link_for(peaks: Peaks, link: Link) -> Interconnect | None:
    """The one that data takes: to the host by a link of that kind; to others of its kind by any other, and over the
    host's bus only where the chip has nothing else."""
    to_host = [one for kind in HOST_LINKS for one in peaks.interconnect if kind in one.name]
    if link == "host":
        return next(iter(to_host), None)
    direct = [one for one in peaks.interconnect if one not in to_host]
    return next(iter(direct), None) or next((one for one in to_host if "PCIe" in one.name), None)
