"""Fits as charts: times and bus bandwidths over sizes, with the fitted lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opmark import units
from opmark.metrics.alpha_beta import Fit
from opmark.report.fits import Fitted, Point, remarks, said
from opmark.schema.chart import Axis, Chart, Mark, Series

LINE = "alpha + size / algbw"
_STEPS = 64
"""Pieces of a curve."""
_BEYOND = 2.0
"""A line that leaves what was measured by more than this factor is not followed: the points would lose their room."""
_SIZE = Axis("bytes of the whole buffer", "B", "log2")

Told = Callable[[Point], float]


def fit_charts(fitted: Sequence[Fitted]) -> list[Chart]:
    """Charts of at least one series. There is none of bandwidth where nothing crosses a link."""
    times = Chart(
        id="fit-time",
        title="time over size",
        about="Level on the left, where every message takes the same; rising where bandwidth is the limit.",
        kind="plot",
        x=_SIZE,
        y=Axis("time", "s", "log"),
        series=tuple(_series(fitted, _seconds, lambda one, line, size: line.time(size))),
        notes=tuple(f"{one.name}: {said([*_formula(one.fit), *remarks(one)])}" for one in fitted),
    )
    moving = [one for one in fitted if any(point.bus for point in one.points)]
    if not moving:
        return [times]
    bandwidths = Chart(
        id="fit-bus",
        title="bus bandwidth over size",
        about="Bytes a second that the busiest link carries: comparable with its peak, whatever the number of ranks.",
        kind="plot",
        x=_SIZE,
        y=Axis("bus bandwidth", "B/s", "log"),
        series=tuple(_series(moving, _rate, lambda one, line, size: size * (one.factor or 0.0) / line.time(size))),
    )
    return [times, bandwidths]


def _seconds(point: Point) -> float:
    return point.seconds


def _rate(point: Point) -> float:
    return point.bus / point.seconds


def _series(fitted: Sequence[Fitted], told: Told, line_at: Callable[[Fitted, Fit, float], float]) -> Iterator[Series]:
    """Points of each, then the lines: these share one name."""
    for one in fitted:
        yield Series(one.name, tuple(Mark(point.size, told(point)) for point in one.points if told(point) > 0))
    values = [told(point) for one in fitted for point in one.points if told(point) > 0]
    low, high = min(values) / _BEYOND, max(values) * _BEYOND
    name = LINE
    for one in fitted:
        line = one.fit
        if line is None:
            continue
        found = [(size, line_at(one, line, size)) for size in _sizes(one) if line.time(size) > 0]
        yield Series(name, tuple(Mark(size, value) for size, value in found if low <= value <= high), "line", "guide")
        name = ""


def _sizes(one: Fitted) -> list[float]:
    first, last = one.points[0].size, one.points[-1].size
    return [first * (last / first) ** (i / _STEPS) for i in range(_STEPS + 1)]


def _formula(line: Fit | None) -> Iterator[str]:
    """The numbers that the sizes can tell."""
    if line is None:
        return
    parts = [units.seconds(line.alpha)] if line.alpha is not None else []
    parts += [f"size / {units.rate(line.beta, 'B/s')}"] if line.beta else []
    off = f"off by up to {units.percent(line.worst)}"
    yield f"{' + '.join(parts)}, {off}" if parts else off
