"""Figures of a row: percentiles over iterations, each as long as its slowest rank, and bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opmark.compat.param_comms.rows import Row
from opmark.schema import Measurement, Record
from opmark.stats.summary import percentile

MICRO = 1e-6
GIGA = 1e9
QUANTITY = "latency"


@dataclass(frozen=True)
class Spread:
    """Percentiles of the seconds of an iteration."""

    p50: float
    p75: float
    p95: float
    least: float
    most: float


@dataclass(frozen=True)
class Figures:
    """Figures of a collective."""

    size: int
    """Bytes that the algorithm bandwidth counts."""
    time: Spread
    algorithm: float
    """Algorithm bandwidth in GB/s."""
    bus: float
    """Bus bandwidth in GB/s."""
    total: float
    """Median seconds of an iteration with all its collectives."""


@dataclass(frozen=True)
class PairFigures:
    size: int
    ping: Spread
    ping_pong: Spread
    one_way: float
    """GB/s in one direction."""
    both_ways: float


def percentiles(values: Sequence[float]) -> Spread:
    p50, p75, p95 = (percentile(values, percent) for percent in (50, 75, 95))
    return Spread(p50, p75, p95, min(values), max(values))


def latency(record: Record) -> Measurement | None:
    """Return the time by the host's clock; None for a failed record."""
    return record.measurement(QUANTITY) if record.status == "ok" else None


def figures(row: Row, record: Record) -> Figures | None:
    found, cost = latency(record), record.cost
    if found is None or cost is None or cost.traffic is None:
        return None
    time, traffic = percentiles(found.samples), cost.traffic
    algorithm, bus = (bytes_ / time.p50 / GIGA if time.p50 > 0 else 0.0 for bytes_ in (traffic.size, traffic.bus))
    return Figures(traffic.size, time, algorithm, bus, percentile(iterations(found.samples, row.per_iteration), 50))


def iterations(samples: Sequence[float], per_iteration: int) -> list[float]:
    """Return the seconds of each iteration, which consists of several consecutive collectives."""
    starts = range(0, len(samples), per_iteration)
    return [sum(samples[start : start + per_iteration]) for start in starts]


def pair_figures(row: Row, records: Sequence[Record]) -> PairFigures | None:
    """Return the figures of pt2pt; the bandwidth of both ways counts the bytes of both, as in PARAM."""
    found = [latency(record) for record in records]
    ping, ping_pong, one_way, both_ways = found
    if ping is None or ping_pong is None or one_way is None or both_ways is None:
        return None
    sent = row.size * row.window
    return PairFigures(
        row.size,
        percentiles(ping.samples),
        percentiles(ping_pong.samples),
        _bandwidth(sent, one_way.samples),
        _bandwidth(2 * sent, both_ways.samples),
    )


def _bandwidth(sent: int, samples: Sequence[float]) -> float:
    """Return GB/s by the mean time."""
    mean = sum(samples) / len(samples)
    return sent / mean / GIGA if mean > 0 else 0.0
