"""Latency and bandwidth over sizes, fitted: one series an operator, element type, number of ranks, options, backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

import msgspec
from msgspec import Struct

from opmark import units
from opmark.analysis.bandwidth import but_size, crossing
from opmark.analysis.rows import Row, case_parameters, rows_of_records
from opmark.plugin.param import short_bytes
from opmark.schema import Case, Record
from opmark.schema.case import content_id
from opmark.schema.cost import Traffic
from opmark.stats.measurement import Summary

# Latency and bandwidth of a communication operator from its times over sizes: t(S) = alpha + S / beta.

LEAST_SIZES = 3
"""Through two points goes a line whatever they are."""
OFF = 0.5
"""Beyond this deviation one line does not describe the times, and it is said."""
_BEYOND = 2.0
"""A bandwidth so many times the best measured one is a guess."""
_LOST = 0.1
"""A latency below this part of what the bytes of the smallest message take is lost in it."""
_DECADES = 9
"""How far beyond the sizes alpha x beta is looked for."""
_STEPS = 4
"""Steps of that search a decade: the error over log(alpha x beta) bends slower than that."""
_ROUNDING = 1e-15
"""Rounding error of a logarithm: what is not further off than this is exact."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class Fit(Struct, frozen=True):
    """The line with the least errors in logarithms: a small message counts as much as a large one, and a time that is
    too short by half as much as one that is too long by twice."""

    fixed: float
    """Seconds where the line begins, whether or not the sizes can tell."""
    slope: float
    """Seconds a byte, likewise."""
    smallest: int
    largest: int
    """Sizes."""
    fastest: float
    """The best bandwidth of all sizes."""
    worst: float
    """The largest deviation of the line from a time, relative to that time."""
    worst_at: int
    """The size at which it is."""

    @property
    def alpha(self) -> float | None:
        """Seconds that a message takes whatever its size; None where even the smallest is too large to tell."""
        return None if self.fixed < _LOST * self.slope * self.smallest else self.fixed

    @property
    def beta(self) -> float | None:
        """Bytes a second that are added to them; None where the sizes are too small to tell."""
        return None if self.hardly_grows or self.far_beyond else 1 / self.slope

    @property
    def hardly_grows(self) -> bool:
        """Even of the largest message's time, most is latency: a small error of it is a large one of the rest."""
        return self.fixed > self.slope * self.largest

    @property
    def far_beyond(self) -> bool:
        """No size comes near to the bandwidth of the line."""
        return self.slope * self.fastest * _BEYOND < 1

    @property
    def half_size(self) -> float | None:
        """Bytes of a message that reaches half of beta: alpha x beta."""
        return None if self.alpha is None or self.beta is None else self.alpha * self.beta

    @property
    def off(self) -> bool:
        return self.worst > OFF

    def time(self, size: float) -> float:
        return self.fixed + self.slope * size


class NoFit(Struct, frozen=True):
    reason: str


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit | NoFit:
    """Neither of both is ever negative."""
    distinct = len(set(sizes))
    if distinct < LEAST_SIZES:
        return NoFit(f"{distinct} of at least {LEAST_SIZES} sizes")
    if not all(math.isfinite(t) and t > 0 for t in seconds):
        return NoFit("a time is not above 0: too short to be measured")
    fixed, slope = _line(sizes, seconds)
    deviations = [abs(fixed + slope * s - t) / t for s, t in zip(sizes, seconds, strict=True)]
    worst = max(deviations)
    fastest = max(s / t for s, t in zip(sizes, seconds, strict=True))
    return Fit(fixed, slope, min(sizes), max(sizes), fastest, worst, sizes[deviations.index(worst)])


def _line(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """alpha and 1 / beta with the least sum of (log of the line - log of the time)^2.

    The line is slope x (half + S). For a given half = alpha x beta, the best slope is the geometric mean of what each
    time asks for, so that one unknown is left: it is looked for between a line that begins at 0 and a flat one, those
    two included."""

    def slopes(half: float) -> list[float]:
        if math.isinf(half):
            return list(seconds)
        return [t / (half + size) for size, t in zip(sizes, seconds, strict=True)]

    def error(half: float) -> float:
        logs = _logs(slopes(half))
        centre = fmean(logs)
        return math.fsum((one - centre) ** 2 for one in logs)

    low, high = math.log(min(sizes)) - _DECADES * math.log(10), math.log(max(sizes)) + _DECADES * math.log(10)
    between = math.exp(_least(lambda place: error(math.exp(place)), low, high))
    least = error(between) * (1 + 1e-9) + len(sizes) * _ROUNDING**2
    half = next((end for end in (math.inf, 0.0) if error(end) <= least), between)
    best = slopes(half)
    scale = best[0] * math.exp(fmean(_logs(best)))
    return (scale, 0.0) if math.isinf(half) else (scale * half, scale)


def _logs(values: Sequence[float]) -> list[float]:
    """Over the first: small where they are alike, and so without a loss of digits."""
    return [math.log(value / values[0]) for value in values]


def _least(error: Callable[[float], float], low: float, high: float) -> float:
    """Where the error is least: the best of a grid, and from there by golden sections."""
    steps = math.ceil((high - low) / math.log(10) * _STEPS)
    width = (high - low) / steps
    best = min((low + i * width for i in range(steps + 1)), key=error)
    left, right = best - width, best + width
    inner = [right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)]
    errors = [error(place) for place in inner]
    while right - left > 1e-13 * max(1.0, abs(best)):
        if errors[0] <= errors[1]:
            right, inner = inner[1], [inner[1] - _GOLDEN * (inner[1] - left), inner[0]]
            errors = [error(inner[0]), errors[0]]
        else:
            left, inner = inner[0], [inner[1], inner[0] + _GOLDEN * (right - inner[0])]
            errors = [errors[1], error(inner[1])]
    return (left + right) / 2


class FitPoint(Struct, frozen=True):
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
    points: tuple[FitPoint, ...]
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

    def size_of(self, point: FitPoint) -> str:
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
    series: dict[str, list[tuple[Row, FitPoint]]] = {}
    for row in found:
        moved, first = row.moved, row.headline
        summary = row.summary() if first and first.unit == "s" and row.status == "ok" else None
        if moved and moved.size and summary:
            series.setdefault(_alike(row), []).append((row, _point(row, moved, summary)))
    return [_fitted(pairs) for pairs in series.values()]


def _point(row: Row, moved: Traffic, summary: Summary) -> FitPoint:
    asked = row.params.get("size")
    return FitPoint(
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


def _fitted(pairs: Sequence[tuple[Row, FitPoint]]) -> Fitted:
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


def _noise(point: FitPoint, line: Fit) -> str:
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
