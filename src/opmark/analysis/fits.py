"""Fit latency and bandwidth to communication operators over message sizes: t(S) = alpha + S / beta.

A series has one operator, element type, number of ranks, set of options, and backend.
"""

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
from opmark.schema.record import COUNTED
from opmark.stats.measurement import Summary

LEAST_SIZES = 3
"""Sizes that a fit needs: a line fits any two points."""
OFF = 0.5
"""Relative deviation beyond which a remark says that one line does not describe the times."""
_BEYOND = 2.0
"""A fitted bandwidth this many times the best measured one is a guess."""
_LOST = 0.1
"""A latency below this share of the transfer time of the smallest message cannot be determined."""
_DECADES = 9
"""Decades beyond the measured sizes in which alpha x beta is searched."""
_STEPS = 4
"""Grid steps of that search per decade: the error is smooth on this scale."""
_ROUNDING = 1e-15
"""Rounding error of a logarithm; smaller deviations count as 0."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class Fit(Struct, frozen=True):
    """The line with the least squared errors of logarithms: small and large messages count alike, and so do times that
    are off by the factors 2 and 1/2."""

    fixed: float
    """Seconds at size 0, whether or not the sizes determine it."""
    slope: float
    """Seconds per byte, likewise."""
    smallest: int
    largest: int
    """Range of the sizes in bytes."""
    fastest: float
    """Highest bandwidth of any size."""
    worst: float
    """Largest deviation of the line from a time, relative to that time."""
    worst_at: int
    """Size with this deviation."""

    @property
    def alpha(self) -> float | None:
        """Latency in seconds; None if even the smallest message is too large to determine it."""
        return None if self.fixed < _LOST * self.slope * self.smallest else self.fixed

    @property
    def beta(self) -> float | None:
        """Bandwidth in bytes per second; None if the sizes are too small to determine it."""
        return None if self.hardly_grows or self.far_beyond else 1 / self.slope

    @property
    def hardly_grows(self) -> bool:
        """Whether latency is most of the time even of the largest message, so that the slope is uncertain."""
        return self.fixed > self.slope * self.largest

    @property
    def far_beyond(self) -> bool:
        """Whether no size comes near the bandwidth of the line."""
        return self.slope * self.fastest * _BEYOND < 1

    @property
    def half_size(self) -> float | None:
        """Size in bytes that reaches half of beta: alpha x beta."""
        return None if self.alpha is None or self.beta is None else self.alpha * self.beta

    @property
    def off(self) -> bool:
        return self.worst > OFF

    def time(self, size: float) -> float:
        return self.fixed + self.slope * size


class NoFit(Struct, frozen=True):
    reason: str


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit | NoFit:
    """Fit a line to times over sizes, or return why that is not possible. Latency and slope are never negative."""
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
    """Return alpha and 1 / beta with the least sum of (log of the line - log of the time)^2.

    The line is slope x (half + S). For a given half = alpha x beta, the best slope is the geometric mean of the slopes
    through the single times, so that one unknown is left. It is searched between a line through 0 and a flat line, both
    included."""

    def slopes(half: float) -> list[float]:
        if math.isinf(half):
            return list(seconds)
        return [t / (half + size) for size, t in zip(sizes, seconds, strict=True)]

    def error(half: float) -> float:
        logs = _logs(slopes(half))
        centre = fmean(logs)
        return math.fsum((one - centre) ** 2 for one in logs)

    low, high = math.log(min(sizes)) - _DECADES * math.log(10), math.log(max(sizes)) + _DECADES * math.log(10)
    between = math.exp(_minimize(lambda place: error(math.exp(place)), low, high))
    least = error(between) * (1 + 1e-9) + len(sizes) * _ROUNDING**2
    half = next((end for end in (math.inf, 0.0) if error(end) <= least), between)
    best = slopes(half)
    scale = best[0] * math.exp(fmean(_logs(best)))
    return (scale, 0.0) if math.isinf(half) else (scale * half, scale)


def _logs(values: Sequence[float]) -> list[float]:
    """Return logarithms relative to the first value. Similar values give small ones, without loss of digits."""
    return [math.log(value / values[0]) for value in values]


def _minimize(error: Callable[[float], float], low: float, high: float) -> float:
    """Return the place of the least error: the best of a grid, refined by golden-section search."""
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
    """Median time of the slowest rank."""
    asked: int | None = None
    """The parameter `size`; `size` above may be larger, a multiple of elements or ranks. None: there is no such
    parameter."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval of the median; None if unknown."""
    noise: float = 0.0
    """Noise of its samples, relative to the median."""

    def off(self, line: Fit) -> float:
        """Return the deviation of the line, relative to the time."""
        return abs(line.time(self.size) - self.seconds) / self.seconds

    def noisy(self, line: Fit) -> bool:
        """Return whether noise explains the deviation, or at least half of it."""
        return self.noise >= self.off(line) or self.left_over(line) <= self.off(line) / 2

    def left_over(self, line: Fit) -> float:
        """Return the deviation of the point of the interval that is nearest to the line."""
        if self.low is None or self.high is None or self.low <= 0:
            return self.off(line)
        nearest = min(max(line.time(self.size), self.low), self.high)
        return abs(line.time(self.size) - nearest) / nearest


class Fitted(Struct, frozen=True):
    """A series of sizes, and the line through their times."""

    op: str
    params: dict[str, Any]
    """Parameters without the size."""
    parameters: str
    """The same as readable text."""
    backend: str
    where: str
    """Backend, implementation, threads and processes, as in the table of a run; the quantity, if series differ in
    it."""
    points: tuple[FitPoint, ...]
    """Sorted by size."""
    fit: Fit | None
    reason: str = ""
    """Why there is no fit."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.op, self.parameters, "on", self.where)))

    @property
    def as_asked(self) -> bool:
        """Whether sizes can be shown as the parameter had them."""
        return all(point.asked is not None for point in self.points)

    def size_of(self, point: FitPoint) -> str:
        return short_bytes(point.asked if self.as_asked and point.asked is not None else point.size)

    @property
    def drawable(self) -> bool:
        """Whether all times are above 0, as logarithmic axes need."""
        return all(point.seconds > 0 for point in self.points)

    @property
    def factor(self) -> float:
        """Ratio of bus to algorithm bandwidth, which depends on the operator and the number of ranks."""
        largest = self.points[-1]
        return largest.bus / largest.size

    @property
    def bus_bandwidth(self) -> float | None:
        return self.fit.beta * self.factor if self.fit and self.fit.beta and self.factor else None


def fits(records: Iterable[Record]) -> list[Fitted]:
    """Return a fit of each series of communication operators, in the order of the records; one with too few sizes has a
    reason instead."""
    return fits_of(rows_of_records(records))


def fits_of(found: Sequence[Row]) -> list[Fitted]:
    series: dict[str, list[tuple[Row, FitPoint]]] = {}
    for row in found:
        moved, first = row.moved, row.headline
        summary = row.summary() if first and first.unit == "s" and row.status in COUNTED else None
        if moved and moved.size and summary:
            series.setdefault(_series_key(row), []).append((row, _point(row, moved, summary)))
    several = len({row.keys[0] for pairs in series.values() for row, _ in pairs}) > 1
    return [_fit_series(pairs, named=several) for pairs in series.values()]


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


def _series_key(row: Row) -> str:
    """Return a key that is equal for rows that differ only in size."""
    settings = (row.threads, row.mode, row.seed, row.effort)
    return content_id(
        [row.op, but_size(row.params), row.phase, row.backend, row.implementation, *settings, *row.keys[0]]
    )


def _fit_series(pairs: Sequence[tuple[Row, FitPoint]], *, named: bool) -> Fitted:
    """Return the fit of one series. `named`: with the quantity, which differs between series."""
    row = pairs[0][0]
    where = f"{row.where}, {' '.join(row.keys[0])}" if named else row.where
    params = but_size(row.params)
    points = tuple(sorted((point for _, point in pairs), key=lambda point: point.size))
    found = fit([point.size for point in points], [point.seconds for point in points])
    shown = case_parameters(Case.of(row.op, params, row.phase))
    none = found.reason if isinstance(found, NoFit) else ""
    line = found if isinstance(found, Fit) else None
    return Fitted(row.op, params, shown, row.backend, where, points, line, none)


def remarks(one: Fitted) -> list[str]:
    """Return remarks about what the sizes do not determine, and where one line does not fit."""
    line = one.fit
    if line is None:
        return [f"no fit: {one.reason}"]
    return [*_deviations(one, line), *_unknown_parts(one, line)]


def join_remarks(found: Sequence[str]) -> str:
    """Join remarks to one line."""
    return "; ".join(found).replace("?;", "?")


def _unknown_parts(one: Fitted, line: Fit) -> Iterator[str]:
    first, last = one.size_of(one.points[0]), one.size_of(one.points[-1])
    if line.hardly_grows:
        how = "hardly grows" if line.slope else "does not grow"
        yield f"the time {how} with the size up to {last}: larger sizes tell the bandwidth"
    elif line.far_beyond:
        fitted, best = (units.rate(rate, "B/s") for rate in (1 / line.slope, line.fastest))
        yield f"{fitted} fitted, but only {best} reached up to {last}: larger sizes tell the bandwidth"
    if line.alpha is None:
        yield f"from {first} on, the time is all bandwidth: smaller sizes tell the latency"


def _deviations(one: Fitted, line: Fit) -> Iterator[str]:
    """Remark on the largest deviation; a point that noise does not explain goes first."""
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
    """Return a fit as plain data, in seconds, bytes and bytes per second."""
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
