"""Places names in a plot: of ceilings and rules, without covering marks or each other.

Names of level ceilings stand in the right margin, those of slanted ones above their lines, where few dots are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from opmark.report.charts.svg.marks import Drawn
from opmark.report.charts.svg.scale import DrawableSeries, Panel, Scaled
from opmark.report.charts.svg.text import shorten, text, width
from opmark.schema.chart import Mark, ReferenceLine

_SMALL = 12.0
_LONGEST = 270.0
_LINE = 15.0
"""From one name to the next."""
_FOOT = 5.0
"""From a slanted line to its name."""
_START = 10.0
_LEADER = 14.0
_TOP = 12.0
_PARALLEL = math.radians(1.0)
_TRIES = 24
_BOLD = 1.08


class _Slanted(NamedTuple):
    drawn: Drawn
    angle: float
    height: float
    """At right angles to its direction: the larger, the higher it lies."""


def measure_margin(found: Sequence[DrawableSeries]) -> float:
    """Return the room that names at the right need."""
    ceilings = [kept for kept in found if kept.series.role == "ceiling" and kept.series.name]
    names = [kept.series.name for kept in ceilings if _is_level([one.mark for one in kept.marks])]
    return max((_wide(shorten(name, _LONGEST, _SMALL)) + _LEADER + 8 for name in names), default=0.0)


def draw_names(drawn: Sequence[Drawn], panel: Panel, room: LabelGrid) -> str:
    """Return the names of ceilings."""
    ceilings = [one for one in drawn if one.series.role == "ceiling" and one.series.name and len(one.spots) > 1]
    level = [one for one in ceilings if _is_level([spot.mark for spot in one.spots])]
    found = ""
    # In the margin, in the order of their lines, each as near to its own as the others leave room, with a thin line.
    level.sort(key=lambda one: (one.spots[0].y, one.series.name))
    heights = spread([one.spots[0].y for one in level], _LINE, _TOP)
    for one, y in zip(level, heights, strict=True):
        end = max(one.spots, key=lambda spot: spot.x)
        there = panel.right + _LEADER
        found += f'<path class="leader" d="M{end.x:.1f} {end.y:.1f}H{panel.right:.1f}L{there:.1f} {y:.1f}"/>'
        found += text(there + 4, y + 4, _name(one), classes=_classes(one))
    slanted = [line for one in ceilings if one not in level and (line := _slanted(one))]
    if any(abs(line.angle - slanted[0].angle) > _PARALLEL for line in slanted):
        slanted = []
    # From the lowest on: a line that would run through the names of those below it is named together with them.
    groups: list[list[_Slanted]] = []
    for line in sorted(slanted, key=lambda line: line.height):
        if groups and line.height - groups[-1][-1].height < _FOOT + _LINE * len(groups[-1]):
            groups[-1].append(line)
        else:
            groups.append([line])
    found += "".join([_draw_above(group, room) for group in groups])
    named = {id(line.drawn) for line in slanted}
    return found + "".join([_draw_along(one, room) for one in ceilings if one not in level and id(one) not in named])


def _is_level(marks: Sequence[Mark]) -> bool:
    return len(marks) > 1 and len({mark.y for mark in marks}) == 1


def spread(wanted: Sequence[float], apart: float, least: float) -> list[float]:
    """Return places as near as possible to the wanted ones, in their order and at least `apart` from each other:
    neighbours that are too close share the mean of what they want."""
    pools: list[tuple[float, int]] = []
    for i, place in enumerate(wanted):
        total, many = place - i * apart, 1
        while pools and pools[-1][0] / pools[-1][1] > total / many:
            before, more = pools.pop()
            total, many = total + before, many + more
        pools.append((total, many))
    found = [max(least, total / many) for total, many in pools for _ in range(many)]
    return [place + i * apart for i, place in enumerate(found)]


def _slanted(one: Drawn) -> _Slanted | None:
    """Return a straight line that is long enough for its name, else None."""
    first, last = sorted((spot.x, spot.y) for spot in (one.spots[0], one.spots[-1]))
    angle = math.atan2(last[1] - first[1], last[0] - first[0])
    if len(one.spots) != 2 or math.dist(first, last) < _wide(_name(one)) + 2 * _START:
        return None
    return _Slanted(one, angle, first[0] * math.sin(angle) - first[1] * math.cos(angle))


def _draw_above(group: Sequence[_Slanted], room: LabelGrid) -> str:
    """Return names above the highest line of a group, in the order of the lines, where they cover the fewest dots; the
    low end of the line is tried first."""
    top = group[-1]
    (x, y), to = sorted((spot.x, spot.y) for spot in top.drawn.spots)
    sine, cosine = math.sin(top.angle), math.cos(top.angle)
    lengths = [_wide(_name(one.drawn)) for one in group]
    free = max(0.0, math.dist((x, y), to) - max(lengths) - 2 * _START)
    ups = [_FOOT + _LINE * k for k in range(len(group))]
    blocks = []
    for step in range(_TRIES):
        start = _START + free * step / (_TRIES - 1)
        feet = [(start * cosine + up * sine, start * sine - up * cosine) for up in ups]
        turn = math.degrees(top.angle)
        blocks.append([Spoken(x + dx, y + dy, turn, long) for (dx, dy), long in zip(feet, lengths, strict=True)])
    chosen = min(blocks, key=lambda block: sum(room.cost(place, MARK) for place in block))
    found = ""
    for one, place in zip(group, chosen, strict=True):
        room.write(place)
        found += text(place.x, place.y, _name(one.drawn), classes=_classes(one.drawn), turn=place.turn)
    return found


def _wide(words: str) -> float:
    """Return the width of a name, which is bold."""
    return _BOLD * width(words, _SMALL)


def _name(one: Drawn) -> str:
    return shorten(one.series.name, _LONGEST, _SMALL)


def _classes(one: Drawn) -> str:
    return "name ceiling stated" if one.series.stated else "name ceiling"


# Names along lines that bend, and names of rules next to them.
_ABOVE = 5.0
"""From a line to the foot of its name."""
_BELOW = 14.0
_BENT = 2.0
"""A line that leaves the straight by more has no place for a name there."""
_TRIES_PER_TEXT = 16
_APART = 6.0
_LONGEST_TEXT = 260.0


def _draw_along(one: Drawn, room: LabelGrid) -> str:
    """Return the name of a ceiling, near its end if that is free. A line without a long enough straight piece has its
    name level, above or below either end."""
    words = shorten(one.series.name, _LONGEST_TEXT, _SMALL)
    path = [(spot.x, spot.y) for spot in one.spots]
    length = width(words, _SMALL)
    (first_x, first_y), (last_x, last_y) = sorted((path[0], path[-1]))
    offs = (-_ABOVE, _BELOW, 2 * _BELOW, -_ABOVE - _BELOW)
    ends = [
        *(Spoken(last_x - length, last_y + off, 0.0, length) for off in offs),
        *(Spoken(first_x, first_y + off, 0.0, length) for off in offs),
    ]
    place = room.best(_straight_places(path, length)) or room.best(ends)
    return text(place.x, place.y, words, classes=f"name {one.series.role}", turn=place.turn) if place else ""


def points_of_line(one: Drawn) -> list[tuple[float, float]]:
    """Return points of a line that are near to each other."""
    found = []
    for a, b in pairwise(one.spots):
        steps = max(1, int(math.dist((a.x, a.y), (b.x, b.y)) / _APART))
        found += [(a.x + (b.x - a.x) * k / steps, a.y + (b.y - a.y) * k / steps) for k in range(steps)]
    return found


def _straight_places(path: Sequence[tuple[float, float]], length: float) -> list[Spoken]:
    """Return the pieces of a line on which words of a length can stand, those at its end first."""
    path = path if path[0][0] <= path[-1][0] else path[::-1]
    lengths = [math.dist(a, b) for a, b in pairwise(path)]
    free = sum(lengths) - length - 8
    found = []
    for step in range(_TRIES_PER_TEXT if free > 0 else 0):
        start = 4 + free * (1 - step / (_TRIES_PER_TEXT - 1))
        (x, y), (mid_x, mid_y), (to_x, to_y) = (_at(path, lengths, start + length * part) for part in (0, 0.5, 1))
        if math.dist((mid_x, mid_y), ((x + to_x) / 2, (y + to_y) / 2)) <= _BENT:
            angle = math.atan2(to_y - y, to_x - x)
            for off in (_ABOVE, -_BELOW):
                off_x, off_y = x + off * math.sin(angle), y - off * math.cos(angle)
                found.append(Spoken(off_x, off_y, math.degrees(angle), length))
    return found


def _at(path: Sequence[tuple[float, float]], lengths: Sequence[float], along: float) -> tuple[float, float]:
    """Return the point of a line at a distance from its beginning."""
    for (a, b), length in zip(pairwise(path), lengths, strict=True):
        if along <= length and length:
            share = along / length
            return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
        along -= length
    return path[-1]


def draw_rule(one: ReferenceLine, panel: Panel, across: Scaled, up: Scaled) -> str:
    """Return the line of a rule, or the stretch between its two values."""
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


def draw_rule_name(one: ReferenceLine, panel: Panel, across: Scaled, up: Scaled, room: LabelGrid) -> str:
    """Return the name of a rule. An upright line has it to its right or left, at the top or further down; a level line
    above or below, from its right end to its left one."""
    if not one.name:
        return ""
    words = shorten(one.name, _LONGEST_TEXT, _SMALL)
    length = width(words, _SMALL)
    if one.across == "x":
        x = panel.across(across.place(one.at))
        heights = [panel.top + 13 + 16 * k for k in range(max(1, int((panel.height - 4) / 16)))]
        places = [Spoken(at, y, 0.0, length) for y in heights for at in (x + 4, x - 4 - length)]
    else:
        y = panel.up(up.place(one.at))
        starts = [panel.left + 4 + (panel.width - length - 8) * (1 - k / 8) for k in range(9)]
        places = [Spoken(x, at, 0.0, length) for at in (y - _ABOVE + 1, y + 12) for x in starts]
    place = room.best(places)
    return text(place.x, place.y, words, classes="name rule") if place else ""


# The grid of small squares, taken or free, that tells where names can be written.

_SQUARE = 9.0
LINE, MARK, _TEXT = 2, 12, 60
"""Weights of squares with a line, a mark or words in them."""


class Spoken(NamedTuple):
    """A name at a place: where it begins, in which direction it runs (degrees), how long it is."""

    x: float
    y: float
    turn: float
    length: float

    def squares(self) -> set[tuple[int, int]]:
        """Return the squares beneath the words: along their foot, and half a line above it."""
        angle = math.radians(self.turn)
        steps = max(1, math.ceil(self.length / (_SQUARE / 2)))
        found = set()
        for step in range(steps + 1):
            along = self.length * step / steps
            for above in (0.0, 5.0, 10.0):
                x = self.x + along * math.cos(angle) + above * math.sin(angle)
                y = self.y + along * math.sin(angle) - above * math.cos(angle)
                found.add((int(x / _SQUARE), int(y / _SQUARE)))
        return found


class LabelGrid:
    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._taken: dict[tuple[int, int], int] = {}

    def take(self, places: Iterable[tuple[float, float]], weight: int = MARK) -> None:
        for x, y in places:
            square = int(x / _SQUARE), int(y / _SQUARE)
            self._taken[square] = max(weight, self._taken.get(square, 0))

    def best(self, candidates: Sequence[Spoken]) -> Spoken | None:
        """Return the first of the places inside of the panel that cover least, which is taken from then on."""
        left, top, right, bottom = self._panel.left, self._panel.top, self._panel.right + 1, self._panel.bottom
        inside = []
        for one in candidates:
            angle = math.radians(one.turn)
            end_x, end_y = one.x + one.length * math.cos(angle), one.y + one.length * math.sin(angle)
            if all(left <= x <= right for x in (one.x, end_x)) and all(top <= y <= bottom for y in (one.y, end_y)):
                inside.append(one)
        if not inside:
            return None
        chosen = min(inside, key=self.cost)
        self.write(chosen)
        return chosen

    def write(self, one: Spoken) -> None:
        for square in one.squares():
            self._taken[square] = _TEXT

    def cost(self, one: Spoken, least: int = 0) -> int:
        """Return the weight of what a name covers, without squares that weigh less than `least`."""
        found = (self._taken.get(square, 0) for square in one.squares())
        return sum(weight for weight in found if weight >= least)
