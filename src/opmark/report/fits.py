"""Latency and bandwidth over sizes, fitted: one series an operator, element type, number of ranks, options, backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from opmark import units
from opmark.analysis.rows import Row, case_parameters, rows_of_records
from opmark.metrics.alpha_beta import OFF, Fit, NoFit, fit
from opmark.metrics.bus import but_size, crossing
from opmark.metrics.summary import Summary
from opmark.schema import Case, Record
from opmark.schema.case import content_id
from opmark.schema.shown import short_bytes
from opmark.schema.traffic import Traffic


class Point(Struct, frozen=True):
    size: int
    """Bytes of the whole buffer."""
    bus: float
    """Bytes that the busiest link carries for it."""
    seconds: float
    """Median of the slowest rank's."""
    asked: int | None = None
    """The parameter `size`, of which the bytes may be a multiple of elements or ranks; None where there is none."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval of the median; None where nobody told."""
    noise: float = 0.0
    """Noise of its samples, relative to the median."""

    def off(self, line: Fit) -> float:
        """Deviation of the line, relative to the time."""
        return abs(line.time(self.size) - self.seconds) / self.seconds

    def noisy(self, line: Fit) -> bool:
        """Whether noise explains it, or at least half of it: the line is not sure either."""
        return self.noise >= self.off(line) or self.left_over(line) <= self.off(line) / 2

    def left_over(self, line: Fit) -> float:
        """What is left of the deviation if the median is where its interval is nearest to the line."""
        if self.low is None or self.high is None or self.low <= 0:
            return self.off(line)
        nearest = min(max(line.time(self.size), self.low), self.high)
        return abs(line.time(self.size) - nearest) / nearest


class Fitted(Struct, frozen=True):
    """A series of sizes, and the line through their times."""

    op: str
    params: dict[str, Any]
    """All but the size."""
    parameters: str
    """The same, as people read them."""
    backend: str
    where: str
    """Backend, implementation, threads and processes as the table of a run has them."""
    points: tuple[Point, ...]
    """By size."""
    fit: Fit | None
    reason: str = ""
    """Why there is no fit."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.op, self.parameters, "on", self.where)))

    @property
    def as_asked(self) -> bool:
        """Whether sizes can be told as they were asked for."""
        return all(point.asked is not None for point in self.points)

    def size_of(self, point: Point) -> str:
        return short_bytes(point.asked if self.as_asked and point.asked is not None else point.size)

    @property
    def drawable(self) -> bool:
        """A time of 0 has no place on a logarithmic axis."""
        return all(point.seconds > 0 for point in self.points)

    @property
    def factor(self) -> float:
        """Bus over algorithm bandwidth: that of the operator and its number of ranks."""
        largest = self.points[-1]
        return largest.bus / largest.size

    @property
    def bus_bandwidth(self) -> float | None:
        return self.fit.beta * self.factor if self.fit and self.fit.beta and self.factor else None


def fits(records: Iterable[Record]) -> list[Fitted]:
    """Fits of all communication, also where there are too few sizes, in the order of the records."""
    return fits_of(rows_of_records(records))


def fits_of(found: Sequence[Row]) -> list[Fitted]:
    series: dict[str, list[tuple[Row, Point]]] = {}
    for row in found:
        moved, first = row.moved, row.headline
        summary = row.summary() if first and first.unit == "s" and row.status == "ok" else None
        if moved and moved.size and summary:
            series.setdefault(_alike(row), []).append((row, _point(row, moved, summary)))
    return [_fitted(pairs) for pairs in series.values()]


def _point(row: Row, moved: Traffic, summary: Summary) -> Point:
    asked = row.params.get("size")
    return Point(
        size=moved.size,
        bus=crossing(moved),
        seconds=summary.median,
        asked=asked if isinstance(asked, int) else None,
        low=summary.low,
        high=summary.high,
        noise=summary.noise,
    )


def _alike(row: Row) -> str:
    """The same for what differs only in its size."""
    settings = (row.threads, row.mode, row.seed, row.effort)
    return content_id(
        [row.op, but_size(row.params), row.phase, row.backend, row.implementation, *settings, *row.keys[0]]
    )


def _fitted(pairs: Sequence[tuple[Row, Point]]) -> Fitted:
    row = pairs[0][0]
    params = but_size(row.params)
    points = tuple(sorted((point for _, point in pairs), key=lambda point: point.size))
    found = fit([point.size for point in points], [point.seconds for point in points])
    shown = case_parameters(Case.of(row.op, params, row.phase))
    none = found.reason if isinstance(found, NoFit) else ""
    line = found if isinstance(found, Fit) else None
    return Fitted(row.op, params, shown, row.backend, row.where, points, line, none)


def remarks(one: Fitted) -> list[str]:
    """What the sizes cannot tell, and what one line hides."""
    line = one.fit
    if line is None:
        return [f"no fit: {one.reason}"]
    return [*_not_one_line(one, line), *_untold(one, line)]


def said(found: Sequence[str]) -> str:
    """As one line."""
    return "; ".join(found).replace("?;", "?")


def _untold(one: Fitted, line: Fit) -> Iterator[str]:
    first, last = one.size_of(one.points[0]), one.size_of(one.points[-1])
    if line.hardly_grows:
        how = "hardly grows" if line.slope else "does not grow"
        yield f"the time {how} with the size up to {last}: larger sizes tell the bandwidth"
    elif line.far_beyond:
        fitted, best = (units.rate(rate, "B/s") for rate in (1 / line.slope, line.fastest))
        yield f"{fitted} fitted, but only {best} reached up to {last}: larger sizes tell the bandwidth"
    if line.alpha is None:
        yield f"from {first} on, the time is all bandwidth: smaller sizes tell the latency"


def _not_one_line(one: Fitted, line: Fit) -> Iterator[str]:
    """Noise is no reason to doubt the line: a point that no noise explains goes first."""
    far = sorted((point for point in one.points if point.off(line) > OFF), key=lambda point: -point.off(line))
    sure = [point for point in far if not point.noisy(line)]
    if sure:
        yield f"! not one line: worst at {one.size_of(sure[0])}; another protocol or cache for other sizes?"
    elif far:
        yield f"! worst at {one.size_of(far[0])}: {_noise(far[0], line)}"


def _noise(point: Point, line: Fit) -> str:
    if point.noise >= point.off(line) or point.low is None or point.high is None:
        return f"noise of {units.percent(point.noise)} there"
    between = f"{units.seconds(point.low)} to {units.seconds(point.high)}"
    return f"noise of {units.percent(point.noise)} there, its median lies anywhere from {between}"


def fit_view(one: Fitted) -> dict[str, Any]:
    """For programs: seconds, bytes, bytes a second."""
    line = one.fit
    return {
        "op": one.op,
        "params": one.params,
        "backend": one.backend,
        "alpha": line.alpha if line else None,
        "beta": line.beta if line else None,
        "bus_bandwidth": one.bus_bandwidth,
        "half_size": line.half_size if line else None,
        "worst": line.worst if line else None,
        "worst_at": line.worst_at if line else None,
        "off": line.off if line else None,
        "reason": one.reason,
        "remarks": remarks(one),
        "points": msgspec.to_builtins(one.points),
    }
