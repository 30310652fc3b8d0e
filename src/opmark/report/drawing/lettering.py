"""Names in the picture: along lines that bend, and of rules beside theirs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from opmark.report.drawing.panel import Drawn, Panel
from opmark.report.drawing.room import Room, Spoken
from opmark.report.drawing.scale import Scaled
from opmark.report.drawing.text import shorten, width
from opmark.report.drawing.words import text
from opmark.schema.chart import Rule

_SMALL = 12.0
_ABOVE = 5.0
"""From a line to the foot of its name."""
_BELOW = 14.0
_BENT = 2.0
"""A line that leaves the straight by more has no place for a name there."""
_TRIES = 16
_APART = 6.0
_LONGEST = 260.0


def along(one: Drawn, room: Room) -> Iterator[str]:
    """The name of a ceiling, near its end if that is free."""
    if len(one.spots) < 2 or not one.series.name:
        return
    words = shorten(one.series.name, _LONGEST, _SMALL)
    path = [(spot.x, spot.y) for spot in one.spots]
    length = width(words, _SMALL)
    place = room.best(_straight_places(path, length)) or room.best(_at_the_end(path, length))
    if place:
        yield text(place.x, place.y, words, classes=f"name {one.series.role}", turn=place.turn)


def _at_the_end(path: Sequence[tuple[float, float]], length: float) -> list[Spoken]:
    """Of a line that is nowhere straight for long enough: level, above or below its end or its beginning."""
    (first_x, first_y), (last_x, last_y) = sorted((path[0], path[-1]))
    offs = (-_ABOVE, _BELOW, 2 * _BELOW, -_ABOVE - _BELOW)
    return [
        *(Spoken(last_x - length, last_y + off, 0.0, length) for off in offs),
        *(Spoken(first_x, first_y + off, 0.0, length) for off in offs),
    ]


def along_lines(one: Drawn) -> Iterator[tuple[float, float]]:
    """Points of its line, near to each other."""
    for a, b in pairwise(one.spots):
        steps = max(1, int(math.dist((a.x, a.y), (b.x, b.y)) / _APART))
        for k in range(steps):
            yield a.x + (b.x - a.x) * k / steps, a.y + (b.y - a.y) * k / steps


def _straight_places(path: Sequence[tuple[float, float]], length: float) -> list[Spoken]:
    """Pieces of a line on which words of a length can stand, those at its end first."""
    path = path if path[0][0] <= path[-1][0] else path[::-1]
    lengths = [math.dist(a, b) for a, b in pairwise(path)]
    free = sum(lengths) - length - 8
    found = []
    for step in range(_TRIES if free > 0 else 0):
        start = 4 + free * (1 - step / (_TRIES - 1))
        (x, y), (mid_x, mid_y), (to_x, to_y) = (_at(path, lengths, start + length * part) for part in (0, 0.5, 1))
        if math.dist((mid_x, mid_y), ((x + to_x) / 2, (y + to_y) / 2)) <= _BENT:
            angle = math.atan2(to_y - y, to_x - x)
            for off in (_ABOVE, -_BELOW):
                off_x, off_y = x + off * math.sin(angle), y - off * math.cos(angle)
                found.append(Spoken(off_x, off_y, math.degrees(angle), length))
    return found


def _at(path: Sequence[tuple[float, float]], lengths: Sequence[float], along: float) -> tuple[float, float]:
    """The point of a line at a distance from its beginning."""
    for (a, b), length in zip(pairwise(path), lengths, strict=True):
        if along <= length and length:
            share = along / length
            return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
        along -= length
    return path[-1]


def rule(one: Rule, panel: Panel, across: Scaled, up: Scaled) -> str:
    """Its line, or the stretch between its two values."""
    scale = across if one.across == "x" else up
    ends = [scale.place(value) for value in (one.at, one.to) if value is not None]
    if one.across == "x":
        at = sorted(map(panel.across, ends))
        box = (at[0], panel.top, at[-1] - at[0], panel.height)
        path = f"M{at[0]:.1f} {panel.top:.1f}V{panel.bottom:.1f}"
    else:
        at = sorted(map(panel.up, ends))
        box = (panel.left, at[0], panel.width, at[-1] - at[0])
        path = f"M{panel.left:.1f} {at[0]:.1f}H{panel.right:.1f}"
    if one.to is None:
        return f'<path class="rule" d="{path}"/>'
    x, y, wide, high = (f"{value:.1f}" for value in box)
    return f'<rect class="span" x="{x}" y="{y}" width="{wide}" height="{high}"/>'


def rule_name(one: Rule, panel: Panel, across: Scaled, up: Scaled, room: Room) -> Iterator[str]:
    if not one.name:
        return
    words = shorten(one.name, _LONGEST, _SMALL)
    length = width(words, _SMALL)
    place = room.best(
        _beside_upright(panel.across(across.place(one.at)), panel, length)
        if one.across == "x"
        else _beside_level(panel.up(up.place(one.at)), panel, length)
    )
    if place:
        yield text(place.x, place.y, words, classes="name rule")


def _beside_upright(x: float, panel: Panel, length: float) -> list[Spoken]:
    """To the right of the line or to its left, at the top or further down."""
    heights = [panel.top + 13 + 16 * k for k in range(max(1, int((panel.height - 4) / 16)))]
    return [Spoken(at, y, 0.0, length) for y in heights for at in (x + 4, x - 4 - length)]


def _beside_level(y: float, panel: Panel, length: float) -> list[Spoken]:
    """Above the line or below it, from its right end to its left one."""
    free = panel.width - length - 8
    starts = [panel.left + 4 + free * (1 - k / 8) for k in range(9)]
    return [Spoken(x, at, 0.0, length) for at in (y - _ABOVE + 1, y + 12) for x in starts]
