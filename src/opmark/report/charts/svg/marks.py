"""Draws the marks of a series by its shape: points, line, band, steps, bars or cells, in the style of the series.

A marker is a circle or a path of few letters, because there may be ten thousand of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from opmark.report.charts.svg.scale import Linear, Log
from opmark.report.charts.svg.text import text, width
from opmark.schema.chart import Axis, ChartSeries, Mark, Shape


def marker(kind: int, radius: float) -> Callable[[float, float, int], str]:
    """What draws one at a place, with the number of its row."""
    if kind == 0:
        size = f"{radius:.4g}"
        return lambda x, y, i: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" data-i="{i}"/>'
    across, up, tail = outline(kind, radius)
    return lambda x, y, i: f'<path d="M{x + across:.1f} {y + up:.1f}{tail}" data-i="{i}"/>'


def sample(kind: int, x: float, y: float, radius: float) -> str:
    """In a legend: of no row."""
    if kind == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.4g}"/>'
    across, up, tail = outline(kind, radius)
    return f'<path d="M{x + across:.1f} {y + up:.1f}{tail}"/>'


def outline(kind: int, radius: float) -> tuple[float, float, str]:
    """Where the path begins, from the middle, and how it goes on; all about as large as the circle."""
    r, side, high = radius, 0.89 * radius, 1.2 * radius
    third = 0.4 * radius
    arm = 1.15 * radius - third
    shapes = {
        1: (-side, -side, _line("h", 2 * side, "v", 2 * side, "h", -2 * side)),
        2: (0.0, -high, _line("l", high, 1.9 * r, "h", -2 * high)),
        3: (0.0, -1.3 * r, _line("l", 1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r)),
        4: (0.0, high, _line("l", high, -1.9 * r, "h", -2 * high)),
        5: (-third, -third - arm, _plus(2 * third, arm)),
        6: (0.0, -third * 1.41, _cross(third, arm)),
        7: (high, 0.0, _line("l", -1.9 * r, -high, "v", 2 * high)),
    }
    return shapes[kind]


def _line(*parts: str | float) -> str:
    text = ""
    for part in parts:
        letter = isinstance(part, str)
        separate = "" if letter or not text or text[-1].isalpha() or str(part).startswith("-") else " "
        text += f"{separate}{part}" if letter else f"{separate}{part:.3g}"
    return text + "z"


def _plus(wide: float, arm: float) -> str:
    return _line("h", wide, "v", arm, "h", arm, "v", wide, "h", -arm, "v", arm, "h", -wide, "v", -arm, "h", -arm,
                 "v", -wide, "h", arm)  # fmt: skip


def _cross(third: float, arm: float) -> str:
    """The plus turned by 45 degrees, from the inner corner at the top."""
    a, b = 0.707 * arm, 1.414 * third
    return _line("l", a, -a, b, b, -a, a, a, a, -b, b, -a, -a, -a, a, -b, -b, a, -a, -a, -a, b, -b)


# Colours of a heatmap.

STEPS = 10
"""The style sheet has as many colours."""


class Heat(NamedTuple):
    scale: Linear | Log

    def step(self, value: float) -> int:
        return min(STEPS - 1, int(self.scale.place(value) * STEPS))

    def border(self, step: int) -> float:
        """The value at which it begins."""
        return self.scale.value(step / STEPS)


def heat(axis: Axis, values: Sequence[float]) -> Heat:
    """From end to end of the values, but of a share from 0 % to 100 %, so that a colour always means the same;
    what is above has the last one."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.scale in ("linear", "category"):
        if axis.unit == "share" and low >= 0:
            return Heat(Linear(0.0, 1.0))
        return Heat(Linear(low, high) if high > low else Linear(low - 0.5, low + 0.5))
    low, high = math.log10(low), math.log10(high)
    return Heat(Log(low, high) if high > low else Log(low - 0.5, low + 0.5))


# Styles that tell series apart: a colour each, and a marker or dashes for readers who do not distinguish colours.

COLOURS = 8
"""The style sheet has as many."""
MARKERS = 8
DASHES = 6
_ALARM_LOOK = 3
"""Its marker: a diamond."""


class SeriesStyle(NamedTuple):
    classes: str
    marker: int


def looks(series: Iterable[ChartSeries]) -> list[SeriesStyle]:
    """Only data has colours of its own: ceilings and guides have names beside them."""
    found, n = [], 0
    for one in series:
        if one.role == "data":
            found.append(_data(n, one))
            n += 1
        else:
            found.append(
                SeriesStyle(f"{one.role} stated" if one.stated else one.role, _ALARM_LOOK if one.role == "alarm" else 0)
            )
    return found


def _data(n: int, one: ChartSeries) -> SeriesStyle:
    """The second time round, a colour meets another marker; a line without points has dashes instead of it."""
    again = n // COLOURS
    dash = (n + again if one.shape in ("line", "steps") else again) % DASHES
    return SeriesStyle(f"s{n % COLOURS} d{dash}", (n + again) % MARKERS)


# A line with points, whose intervals form an area.


def draw_band(one: Drawn) -> Iterator[str]:
    """Where a point has no interval the area is interrupted: as narrow as the line, it would look certain."""
    stretches = [list(spots) for known, spots in groupby(one.spots, lambda spot: spot.ends is not None) if known]
    if areas := [_area(spots) for spots in stretches if len(spots) > 1]:
        yield f'<path class="area" d="{"".join(areas)}"/>'
    yield from whiskers(one._replace(spots=[spots[0] for spots in stretches if len(spots) == 1]))
    yield from draw_line(one)
    yield from dots(one)


def _area(spots: Sequence[PlacedMark]) -> str:
    """There along the lower ends, back along the upper ones."""
    ends = [(spot.x, *spot.ends) for spot in spots if spot.ends]
    there = [f"{x:.1f} {low:.1f}" for x, low, _ in ends]
    back = [f"{x:.1f} {high:.1f}" for x, _, high in reversed(ends)]
    return f"M{'L'.join([*there, *back])}z"


# Bars from their foot to the value, in either direction, with intervals as whiskers.

_THINNEST = 0.8
"""A bar of 0 is still seen, and found."""


def draw_bars(one: Drawn) -> Iterator[str]:
    yield '<g class="boxes">'
    for spot in one.spots:
        left, wide = min(spot.x, one.foot), max(abs(spot.x - one.foot), _THINNEST)
        yield (
            f'<rect x="{left:.1f}" y="{spot.y - one.thick / 2:.1f}" width="{wide:.1f}" height="{one.thick:.1f}"'
            f' data-i="{spot.i}"/>'
        )
    yield "</g>"
    yield from whiskers(one)


# Cells of a heatmap, with their value written in them where there is room.

SMALL = 12.0


def draw_cells(
    spots: Sequence[PlacedMark], heat: Heat, size: tuple[float, float], written: Callable[[float], str]
) -> Iterator[str]:
    """Rectangles of one colour in one group; a cell without a value is what lies behind it."""
    wide, high = size
    by_step: dict[int, list[tuple[PlacedMark, float]]] = {}
    for spot in spots:
        if spot.mark.value is not None:
            by_step.setdefault(heat.step(spot.mark.value), []).append((spot, spot.mark.value))
    for step, found in sorted(by_step.items()):
        yield f'<g class="cells h{step}">'
        for spot, _ in found:
            yield (
                f'<rect x="{spot.x - wide / 2:.1f}" y="{spot.y - high / 2:.1f}" width="{wide:.1f}"'
                f' height="{high:.1f}" data-i="{spot.i}"/>'
            )
        yield "</g>"
        if high >= SMALL:
            yield f'<g class="written t{step}" text-anchor="middle">'
            told = ((spot, written(value)) for spot, value in found)
            yield from (text(spot.x, spot.y + 4, said) for spot, said in told if width(said, SMALL) <= wide + 2)
            yield "</g>"


# A line without points.


def draw_line(one: Drawn) -> Iterator[str]:
    if len(one.spots) > 1:
        path = "L".join(f"{spot.x:.1f} {spot.y:.1f}" for spot in one.spots)
        yield f'<path class="line" d="M{path}"/>'


# Points, with their intervals as whiskers.

_CAP = 3.0
_CAPPED = 400
"""With more of them, the ends of whiskers have no bars."""
_ALARM_RADIUS = 1.35
"""An alarm is this much larger."""


def draw_points(one: Drawn) -> Iterator[str]:
    yield from whiskers(one)
    yield from dots(one)


def dots(one: Drawn) -> Iterator[str]:
    radius = one.radius * (_ALARM_RADIUS if one.series.role == "alarm" else 1)
    made = marker(one.look.marker, radius)
    yield '<g class="dots">'
    for spot in one.spots:
        drawn = made(spot.x, spot.y, spot.i)
        yield drawn.replace("/>", ' class="hollow"/>') if spot.mark.unsure else drawn
    yield "</g>"


def whiskers(one: Drawn) -> Iterator[str]:
    """One path for all of a series."""
    long = [spot for spot in one.spots if spot.ends and abs(spot.ends[1] - spot.ends[0]) >= 0.5]
    if not long:
        return
    cap = _CAP if len(long) <= _CAPPED else 0.0
    whisker = _lying if one.sideways else _standing
    drawn = "".join(whisker(spot.x, spot.y, *spot.ends, cap) for spot in long if spot.ends)
    yield f'<path class="whiskers" d="{drawn}"/>'


def _standing(x: float, y: float, low: float, high: float, cap: float) -> str:
    ends = f"M{x - cap:.1f} {low:.1f}h{2 * cap:g}M{x - cap:.1f} {high:.1f}h{2 * cap:g}" if cap else ""
    return f"M{x:.1f} {low:.1f}V{high:.1f}{ends}"


def _lying(x: float, y: float, low: float, high: float, cap: float) -> str:
    ends = f"M{low:.1f} {y - cap:.1f}v{2 * cap:g}M{high:.1f} {y - cap:.1f}v{2 * cap:g}" if cap else ""
    return f"M{low:.1f} {y:.1f}H{high:.1f}{ends}"


# Steps: each level lasts until the next one.


def draw_steps(one: Drawn) -> Iterator[str]:
    if len(one.spots) > 1:
        first, *others = one.spots
        path = "".join(f"H{spot.x:.1f}V{spot.y:.1f}" for spot in others)
        yield f'<path class="line" d="M{first.x:.1f} {first.y:.1f}{path}"/>'


# The rectangle in which marks lie, and series with their places in it.

WIDTH = 720.0
"""Width of a picture in its own units; a page makes it larger or smaller."""


class Panel(NamedTuple):
    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, place: float) -> float:
        return self.left + place * self.width

    def up(self, place: float) -> float:
        return self.top + (1 - place) * self.height

    def down(self, place: float) -> float:
        return self.top + place * self.height


class PlacedMark(NamedTuple):
    """A mark with its place in the picture."""

    i: int
    x: float
    y: float
    ends: tuple[float, float] | None
    """Ends of its interval on the axis of values: y, or x if values go to the right."""
    mark: Mark


class Drawn(NamedTuple):
    series: ChartSeries
    look: SeriesStyle
    spots: list[PlacedMark]
    radius: float
    """Radius of a point."""
    foot: float = 0.0
    """Where bars begin."""
    thick: float = 0.0
    """Height of a bar."""
    sideways: bool = False
    """Values go to the right."""


# The table of shapes.

DRAW: dict[Shape, Callable[[Drawn], Iterator[str]]] = {
    "points": draw_points,
    "line": draw_line,
    "band": draw_band,
    "steps": draw_steps,
    "bars": draw_bars,
}
"""Cells are drawn with their heatmap: alone they have no size."""


def draw_mark(one: Drawn) -> str:
    """A group, so that what all its marks share is said once."""
    role = f" {one.series.role}" if one.series.role == "data" else ""
    return f'<g class="series {one.look.classes}{role}">{"".join(DRAW[one.series.shape](one))}</g>'
