"""Fits as a picture of its own: times and bus bandwidths over sizes, an SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from opmark import units
from opmark.metrics.alpha_beta import Fit
from opmark.report.axes import Axis, axis, rate_label, time_label
from opmark.report.fits import Fitted, Point, remarks, said
from opmark.schema.shown import short_bytes

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5195", "#56b4e9", "#8c6d1f", "#444444")
"""Apart for most who see colours differently; behind the last of them the first comes again, with another mark."""
_WIDTH, _HEIGHT = 470, 320
_LEFT, _TOP, _RIGHT, _BOTTOM = 74, 40, 20, 50
_LEGEND = 18
_STEPS = 64
"""Pieces of a curve."""


class Panel(NamedTuple):
    """One of the two plots: where it stands and what it shows."""

    left: float
    title: str
    across: Axis
    up: Axis
    label: Callable[[int], str]

    def at(self, size: float, value: float) -> tuple[float, float]:
        return (
            self.left + self.across.place(size) * _WIDTH,
            _TOP + (1 - self.up.place(value)) * _HEIGHT,
        )


def svg_text(fitted: Sequence[Fitted]) -> str:
    """At least one series."""
    width = 2 * (_LEFT + _WIDTH + _RIGHT)
    height = _TOP + _HEIGHT + _BOTTOM + _LEGEND * len(fitted) + 16
    body = [*_times(fitted), *_bandwidths(fitted), *_legend(fitted)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *body,
        "</svg>",
    ]) + "\n"  # fmt: skip


def _times(fitted: Sequence[Fitted]) -> Iterator[str]:
    points = [point for one in fitted for point in one.points]
    across, up = axis((point.size for point in points), 2), axis((point.seconds for point in points), 10)
    panel = Panel(_LEFT, "time", across, up, time_label)
    yield from _frame(panel)
    for i, one in enumerate(fitted):
        line = one.fit
        if line:
            yield _curve(panel, i, ((size, line.time(size)) for size in _sizes(one)))
        yield from (_mark(panel.at(point.size, point.seconds), i) for point in one.points)


def _bandwidths(fitted: Sequence[Fitted]) -> Iterator[str]:
    """Nothing of a series in which nothing crosses a link."""
    points = [point for one in fitted for point in one.points]
    moved = [_rate(point) for point in points if point.bus]
    if not moved:
        return
    across = axis((point.size for point in points), 2)
    panel = Panel(2 * _LEFT + _WIDTH + _RIGHT, "bus bandwidth", across, axis(moved, 10), rate_label)
    yield from _frame(panel)
    for i, one in enumerate(fitted):
        line, factor = one.fit, one.factor
        if line and factor:
            yield _curve(panel, i, ((size, size * factor / line.time(size)) for size in _sizes(one)))
        yield from (_mark(panel.at(point.size, _rate(point)), i) for point in one.points if point.bus)


def _rate(point: Point) -> float:
    return point.bus / point.seconds


def _sizes(one: Fitted) -> list[float]:
    first, last = one.points[0].size, one.points[-1].size
    return [first * (last / first) ** (i / _STEPS) for i in range(_STEPS + 1)]


def _frame(panel: Panel) -> Iterator[str]:
    bottom, right = _TOP + _HEIGHT, panel.left + _WIDTH
    middle = panel.left + _WIDTH / 2
    yield _text(middle, _TOP - 14, f"{panel.title} over size", "middle", 'font-size="14" font-weight="bold"')
    for k in panel.up.ticks(12):
        y = _TOP + _HEIGHT * (1 - (k - panel.up.low) / (panel.up.high - panel.up.low))
        yield _line(panel.left, y, right, y)
        yield _text(panel.left - 6, y + 4, panel.label(k), "end")
    for k in panel.across.ticks(12):
        x = panel.left + _WIDTH * (k - panel.across.low) / (panel.across.high - panel.across.low)
        yield _line(x, _TOP, x, bottom)
        yield _text(x, bottom + 18, short_bytes(1 << k), "middle")
    yield _text(middle, bottom + 38, "bytes of the whole buffer", "middle")
    yield (
        f'<rect x="{panel.left:.1f}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#888"/>'
    )  # fmt: skip


def _legend(fitted: Sequence[Fitted]) -> Iterator[str]:
    for i, one in enumerate(fitted):
        y = _TOP + _HEIGHT + _BOTTOM + _LEGEND * (i + 0.5)
        yield _mark((_LEFT, y), i)
        yield _text(_LEFT + 12, y + 4, f"{one.name}: {_said(one)}", "start")


def _said(one: Fitted) -> str:
    return said([*_formula(one.fit), *remarks(one)])


def _formula(line: Fit | None) -> Iterator[str]:
    """Of what the sizes can tell."""
    if line is None:
        return
    parts = [units.seconds(line.alpha)] if line.alpha is not None else []
    parts += [f"size / {units.rate(line.beta, 'B/s')}"] if line.beta else []
    off = f"off by up to {units.percent(line.worst)}"
    yield f"{' + '.join(parts)}, {off}" if parts else off


def _curve(panel: Panel, i: int, points: Iterable[tuple[float, float]]) -> str:
    """What leaves the panel is cut off at its edge."""
    places = (panel.at(size, value) for size, value in points if value > 0)
    path = " ".join(f"{x:.1f},{min(max(y, _TOP), _TOP + _HEIGHT):.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="{_colour(i)}" stroke-width="1.2" stroke-opacity="0.7"/>'


def _mark(place: tuple[float, float], i: int) -> str:
    """Circles, and squares for those that have the colour of one of them."""
    x, y = place
    if (i // len(_COLOURS)) % 2:
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{_colour(i)}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{_colour(i)}"/>'


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#e3e3e3"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor={quoteattr(anchor)} {more}>{escape(text)}</text>'
