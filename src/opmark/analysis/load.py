"""The figures of a load: throughput, mean latency and percentiles with their intervals, computed when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from opmark.schema import Measurement
from opmark.schema.load import Load
from opmark.stats.load import Estimate, estimate_mean, estimate_percentile, estimate_rate

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""Shares of the requests that are answered within a percentile, by its name."""


class LoadFigures(Struct, frozen=True):
    """What is known of a case under load, over all of its processes."""

    load: Load
    batch: int
    """Samples of one request."""
    answered: int
    """Number of requests, over all processes."""
    requests_per_second: Estimate
    samples_per_second: Estimate
    mean: Estimate
    percentiles: dict[str, Estimate]
    """By the names of PERCENTILES; an Estimate without a value says why the samples cannot support it."""
    in_flight: float
    """Mean number of requests in flight, from a counter of its own."""
    late: float | None
    """99th percentile of the seconds by which the generator began requests too late; None in a closed loop."""
    overhead: float
    """Seconds that the generator spends on a request."""


def load_figures(measurements: Sequence[Measurement], params: dict[str, Any]) -> LoadFigures | None:
    """Return the figures of one task's measurements under load, one per process; None if there is none."""
    found = [(m, m.load) for m in measurements if m.load and m.samples]
    if not found:
        return None
    facts = [one for _, one in found]
    samples = [m.samples for m, _ in found]
    answers = [[due + latency for due, latency in zip(one.due, m.samples, strict=True)] for m, one in found]
    batch = params.get("batch", 1)
    batch = batch if isinstance(batch, int) else 1
    rate = estimate_rate(answers)
    late = sorted(value for one in facts for value in one.late)
    return LoadFigures(
        load=facts[0].load,
        batch=batch,
        answered=sum(map(len, samples)),
        requests_per_second=rate,
        samples_per_second=_scale(rate, batch),
        mean=estimate_mean(samples),
        percentiles={name: estimate_percentile(samples, share, name) for name, share in PERCENTILES.items()},
        in_flight=sum(one.in_flight * one.window for one in facts) / sum(one.window for one in facts),
        late=late[int(0.99 * (len(late) - 1))] if late else None,
        overhead=max(one.overhead for one in facts),
    )


def _scale(estimate: Estimate, factor: float) -> Estimate:
    value, low, high = (None if one is None else factor * one for one in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, estimate.reason)
