"""What a row tells: percentiles over iterations, each as long as its slowest rank took, their bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opmark.compat.param_comms.rows import Row
from opmark.schema import Measurement, Record

MICRO = 1e-6
GIGA = 1e9
QUANTITY = "latency"


@dataclass(frozen=True)
class Spread:
    """Seconds of an iteration."""

    p50: float
    p75: float
    p95: float
    least: float
    most: float


@dataclass(frozen=True)
class Figures:
    """Of a collective."""

    size: int
    """Bytes that the algorithm bandwidth counts."""
    time: Spread
    algorithm: float
    """GB/s."""
    bus: float
    total: float
    """Seconds of a median iteration, with all its collectives."""


@dataclass(frozen=True)
class PairFigures:
    size: int
    ping: Spread
    ping_pong: Spread
    one_way: float
    """GB/s of a pair."""
    both_ways: float


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest, as NumPy and PARAM do it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(values: Sequence[float]) -> Spread:
    p50, p75, p95 = (percentile(values, share) for share in (0.5, 0.75, 0.95))
    return Spread(p50, p75, p95, min(values), max(values))


def measured(record: Record) -> Measurement | None:
    """The time by the host's clock; None where the record failed."""
    return record.measurement(QUANTITY) if record.status == "ok" else None


def figures(row: Row, record: Record) -> Figures | None:
    found, cost = measured(record), record.cost
    if found is None or cost is None or cost.traffic is None:
        return None
    time, traffic = spread(found.samples), cost.traffic
    algorithm, bus = (bytes_ / time.p50 / GIGA if time.p50 > 0 else 0.0 for bytes_ in (traffic.size, traffic.bus))
    return Figures(traffic.size, time, algorithm, bus, percentile(iterations(found.samples, row.per_iteration), 0.5))


def iterations(samples: Sequence[float], per_iteration: int) -> list[float]:
    """Seconds of each iteration: so many collectives, one after the other, are one."""
    starts = range(0, len(samples), per_iteration)
    return [sum(samples[start : start + per_iteration]) for start in starts]


def pair_figures(row: Row, records: Sequence[Record]) -> PairFigures | None:
    """Of both ways at once, both count, as in PARAM."""
    found = [measured(record) for record in records]
    ping, ping_pong, one_way, both_ways = found
    if ping is None or ping_pong is None or one_way is None or both_ways is None:
        return None
    sent = row.size * row.window
    return PairFigures(
        row.size,
        spread(ping.samples),
        spread(ping_pong.samples),
        _bandwidth(sent, one_way.samples),
        _bandwidth(2 * sent, both_ways.samples),
    )


def _bandwidth(sent: int, samples: Sequence[float]) -> float:
    """GB/s of the mean time."""
    mean = sum(samples) / len(samples)
    return sent / mean / GIGA if mean > 0 else 0.0
