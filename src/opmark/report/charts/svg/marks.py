"""Draws the marks of a series by its shape: points, line, band, steps, bars or cells, in the style of the series.

A marker is a circle or a path of few letters, because there may be ten thousand of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from opmark.report.charts.svg.scale import Linear, Log
from opmark.report.charts.svg.text import text, width
from opmark.schema.chart import Axis, ChartSeries, Mark, Shape

WIDTH = 720.0
"""Width of a picture in its own units; a page makes it larger or smaller."""


class PlacedMark(NamedTuple):
    """A mark with its place in the picture."""

    i: int
    x: float
    y: float
    ends: tuple[float, float] | None
    """Ends of its interval on the axis of values: y, or x if values go to the right."""
    mark: Mark


class Drawn(NamedTuple):
    """A series with its places in the picture."""

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


def choose_styles(series: Iterable[ChartSeries]) -> list[SeriesStyle]:
    """Return a style for each series. Only data has colours of its own, because ceilings and guides have names beside
    them. The second time round, a colour meets another marker; a line without points has dashes instead."""
    found, n = [], 0
    for one in series:
        if one.role != "data":
            classes = f"{one.role} stated" if one.stated else one.role
            found.append(SeriesStyle(classes, _ALARM_LOOK if one.role == "alarm" else 0))
            continue
        again = n // COLOURS
        dash = (n + again if one.shape in ("line", "steps") else again) % DASHES
        found.append(SeriesStyle(f"s{n % COLOURS} d{dash}", (n + again) % MARKERS))
        n += 1
    return found


def draw_marker(kind: int, radius: float, x: float, y: float, i: int | None = None) -> str:
    """Return a marker at a place; `i` is the number of its row, which a marker in a legend does not have."""
    row = "" if i is None else f' data-i="{i}"'
    if kind == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.4g}"{row}/>'
    across, up, tail = outline(kind, radius)
    return f'<path d="M{x + across:.1f} {y + up:.1f}{tail}"{row}/>'


@cache
def outline(kind: int, radius: float) -> tuple[float, float, str]:
    """Return where the path of a marker begins, from the middle, and how it goes on; all markers are about as large as
    the circle."""
    r, side, high = radius, 0.89 * radius, 1.2 * radius
    third = 0.4 * radius
    wide, arm = 2 * third, 1.15 * radius - third
    a, b = 0.707 * arm, 1.414 * third
    shapes: dict[int, tuple[float, float, tuple[str | float, ...]]] = {
        1: (-side, -side, ("h", 2 * side, "v", 2 * side, "h", -2 * side)),
        2: (0.0, -high, ("l", high, 1.9 * r, "h", -2 * high)),
        3: (0.0, -1.3 * r, ("l", 1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r)),
        4: (0.0, high, ("l", high, -1.9 * r, "h", -2 * high)),
        5: (-third, -third - arm, ("h", wide, "v", arm, "h", arm, "v", wide, "h", -arm, "v", arm, "h", -wide,
                                   "v", -arm, "h", -arm, "v", -wide, "h", arm)),
        6: (0.0, -third * 1.41, ("l", a, -a, b, b, -a, a, a, a, -b, b, -a, -a, -a, a, -b, -b, a, -a, -a, -a, b, -b)),
        7: (high, 0.0, ("l", -1.9 * r, -high, "v", 2 * high)),
    }  # fmt: skip
    across, up, parts = shapes[kind]
    path = ""
    for part in parts:
        letter = isinstance(part, str)
        separate = "" if letter or not path or path[-1].isalpha() or str(part).startswith("-") else " "
        path += f"{separate}{part}" if letter else f"{separate}{part:.3g}"
    return across, up, path + "z"


# Colours of a heatmap.

STEPS = 10
"""The style sheet has as many colours."""


class Heat(NamedTuple):
    scale: Linear | Log

    def step(self, value: float) -> int:
        return min(STEPS - 1, int(self.scale.place(value) * STEPS))

    def border(self, step: int) -> float:
        """Return the value at which a colour begins."""
        return self.scale.value(step / STEPS)


def choose_colours(axis: Axis, values: Sequence[float]) -> Heat:
    """Return colours from end to end of the values, but for a share from 0 % to 100 %, so that a colour always means
    the same; values above have the last one."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.scale in ("linear", "category"):
        if axis.unit == "share" and low >= 0:
            return Heat(Linear(0.0, 1.0))
        return Heat(Linear(low, high) if high > low else Linear(low - 0.5, low + 0.5))
    low, high = math.log10(low), math.log10(high)
    return Heat(Log(low, high) if high > low else Log(low - 0.5, low + 0.5))


# Shapes.

_THINNEST = 0.8
"""Least width of a bar, so that a bar of 0 is seen and found."""
_SMALL = 12.0
_CAP = 3.0
_CAPPED = 400
"""With more of them, the ends of whiskers have no bars."""
_ALARM_RADIUS = 1.35
"""An alarm is this much larger."""


def draw_points(one: Drawn) -> str:
    """Return points, with their intervals as whiskers."""
    return draw_whiskers(one) + draw_dots(one)


def draw_dots(one: Drawn) -> str:
    radius = one.radius * (_ALARM_RADIUS if one.series.role == "alarm" else 1)
    dots = []
    for spot in one.spots:
        drawn = draw_marker(one.look.marker, radius, spot.x, spot.y, spot.i)
        dots.append(drawn.replace("/>", ' class="hollow"/>') if spot.mark.unsure else drawn)
    return f'<g class="dots">{"".join(dots)}</g>'


def draw_whiskers(one: Drawn) -> str:
    """Return one path for the intervals of a series."""
    long = [spot for spot in one.spots if spot.ends and abs(spot.ends[1] - spot.ends[0]) >= 0.5]
    if not long:
        return ""
    cap = _CAP if len(long) <= _CAPPED else 0.0
    path = ""
    for spot in long:
        low, high = spot.ends or (0.0, 0.0)
        if one.sideways:
            side = spot.y - cap
            path += f"M{low:.1f} {spot.y:.1f}H{high:.1f}"
            path += f"M{low:.1f} {side:.1f}v{2 * cap:g}M{high:.1f} {side:.1f}v{2 * cap:g}" if cap else ""
        else:
            side = spot.x - cap
            path += f"M{spot.x:.1f} {low:.1f}V{high:.1f}"
            path += f"M{side:.1f} {low:.1f}h{2 * cap:g}M{side:.1f} {high:.1f}h{2 * cap:g}" if cap else ""
    return f'<path class="whiskers" d="{path}"/>'


def draw_line(one: Drawn) -> str:
    """Return a line without points."""
    path = "L".join(f"{spot.x:.1f} {spot.y:.1f}" for spot in one.spots)
    return f'<path class="line" d="M{path}"/>' if len(one.spots) > 1 else ""


def draw_steps(one: Drawn) -> str:
    """Return steps: each level lasts until the next one."""
    if len(one.spots) < 2:
        return ""
    first, *others = one.spots
    path = "".join(f"H{spot.x:.1f}V{spot.y:.1f}" for spot in others)
    return f'<path class="line" d="M{first.x:.1f} {first.y:.1f}{path}"/>'


def draw_band(one: Drawn) -> str:
    """Return a line with points, whose intervals form an area: along the lower ends and back along the upper ones. The
    area is interrupted where a point has no interval; as narrow as the line, it would look certain."""
    stretches = [list(spots) for known, spots in groupby(one.spots, lambda spot: spot.ends is not None) if known]
    areas = ""
    for spots in stretches:
        ends = [(spot.x, *spot.ends) for spot in spots if spot.ends]
        there = [f"{x:.1f} {low:.1f}" for x, low, _ in ends]
        back = [f"{x:.1f} {high:.1f}" for x, _, high in reversed(ends)]
        areas += f"M{'L'.join([*there, *back])}z" if len(spots) > 1 else ""
    alone = one._replace(spots=[spots[0] for spots in stretches if len(spots) == 1])
    area = f'<path class="area" d="{areas}"/>' if areas else ""
    return area + draw_whiskers(alone) + draw_line(one) + draw_dots(one)


def draw_bars(one: Drawn) -> str:
    """Return bars from their foot to the value, in either direction, with intervals as whiskers."""
    boxes = []
    for spot in one.spots:
        left, wide = min(spot.x, one.foot), max(abs(spot.x - one.foot), _THINNEST)
        boxes.append(
            f'<rect x="{left:.1f}" y="{spot.y - one.thick / 2:.1f}" width="{wide:.1f}" height="{one.thick:.1f}"'
            f' data-i="{spot.i}"/>'
        )
    return f'<g class="boxes">{"".join(boxes)}</g>{draw_whiskers(one)}'


def draw_cells(
    spots: Sequence[PlacedMark], heat: Heat, size: tuple[float, float], written: Callable[[float], str]
) -> str:
    """Return the cells of a heatmap, those of one colour in one group, with their values where there is room. A cell
    without a value is not drawn, so that the hatching behind it is seen."""
    wide, high = size
    by_step: dict[int, list[tuple[PlacedMark, float]]] = {}
    for spot in spots:
        if spot.mark.value is not None:
            by_step.setdefault(heat.step(spot.mark.value), []).append((spot, spot.mark.value))
    parts = []
    for step, found in sorted(by_step.items()):
        parts.append(f'<g class="cells h{step}">')
        for spot, _ in found:
            parts.append(
                f'<rect x="{spot.x - wide / 2:.1f}" y="{spot.y - high / 2:.1f}" width="{wide:.1f}"'
                f' height="{high:.1f}" data-i="{spot.i}"/>'
            )
        parts.append("</g>")
        if high >= _SMALL:
            parts.append(f'<g class="written t{step}" text-anchor="middle">')
            told = ((spot, written(value)) for spot, value in found)
            parts += [text(spot.x, spot.y + 4, said) for spot, said in told if width(said, _SMALL) <= wide + 2]
            parts.append("</g>")
    return "".join(parts)


DRAW: dict[Shape, Callable[[Drawn], str]] = {
    "points": draw_points,
    "line": draw_line,
    "band": draw_band,
    "steps": draw_steps,
    "bars": draw_bars,
}
"""Functions by shape. Cells are drawn with their heatmap, because alone they have no size."""


def draw_series(one: Drawn) -> str:
    """Return the marks of a series as a group, whose classes hold for all of them."""
    role = f" {one.series.role}" if one.series.role == "data" else ""
    return f'<g class="series {one.look.classes}{role}">{DRAW[one.series.shape](one)}</g>'
