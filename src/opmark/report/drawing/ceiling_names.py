"""Names of ceilings: of level ones in the right margin, of slanted ones above their lines, where few dots are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.drawing import lettering
from opmark.report.drawing.panel import Drawn, Panel
from opmark.report.drawing.room import MARK, Room, Spoken
from opmark.report.drawing.text import shorten, width
from opmark.report.drawing.words import text
from opmark.schema.chart import Mark, Series

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


def margin(series: Sequence[tuple[Series, Sequence[Mark]]]) -> float:
    """Room that names at the right need, with the marks that can be drawn."""
    names = [one.name for one, marks in series if one.role == "ceiling" and one.name and _is_level(marks)]
    return max((_wide(shorten(name, _LONGEST, _SMALL)) + _LEADER + 8 for name in names), default=0.0)


def names(drawn: Sequence[Drawn], panel: Panel, room: Room) -> Iterator[str]:
    ceilings = [one for one in drawn if one.series.role == "ceiling" and one.series.name and len(one.spots) > 1]
    level = [one for one in ceilings if _is_level([spot.mark for spot in one.spots])]
    yield from _in_the_margin(level, panel)
    slanted = [found for one in ceilings if one not in level and (found := _slanted(one))]
    if any(abs(one.angle - slanted[0].angle) > _PARALLEL for one in slanted):
        slanted = []
    for group in _groups(slanted):
        yield from _above(group, room)
    named = {id(one.drawn) for one in slanted}
    for one in ceilings:
        if one not in level and id(one) not in named:
            yield from lettering.along(one, room)


def _is_level(marks: Sequence[Mark]) -> bool:
    return len(marks) > 1 and len({mark.y for mark in marks}) == 1


def _in_the_margin(level: Sequence[Drawn], panel: Panel) -> Iterator[str]:
    """In the order of their lines, each beside its own as far as the others leave room, with a thin line there."""
    level = sorted(level, key=lambda one: (one.spots[0].y, one.series.name))
    heights = spread([one.spots[0].y for one in level], _LINE, _TOP)
    for one, y in zip(level, heights, strict=True):
        end = max(one.spots, key=lambda spot: spot.x)
        there = panel.right + _LEADER
        yield f'<path class="leader" d="M{end.x:.1f} {end.y:.1f}H{panel.right:.1f}L{there:.1f} {y:.1f}"/>'
        yield text(there + 4, y + 4, _name(one), classes=_classes(one))


def spread(wanted: Sequence[float], apart: float, least: float) -> list[float]:
    """Places as near as can be to those that are wanted, in their order and no nearer to each other than so much:
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
    """A straight line that is long enough for its name."""
    first, last = sorted((spot.x, spot.y) for spot in (one.spots[0], one.spots[-1]))
    angle = math.atan2(last[1] - first[1], last[0] - first[0])
    if len(one.spots) != 2 or math.dist(first, last) < _wide(_name(one)) + 2 * _START:
        return None
    return _Slanted(one, angle, first[0] * math.sin(angle) - first[1] * math.cos(angle))


def _groups(slanted: Sequence[_Slanted]) -> list[list[_Slanted]]:
    """From the lowest on: a line that would run through the names of those below it is named together with them."""
    groups: list[list[_Slanted]] = []
    for one in sorted(slanted, key=lambda one: one.height):
        if groups and one.height - groups[-1][-1].height < _FOOT + _LINE * len(groups[-1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _above(group: Sequence[_Slanted], room: Room) -> Iterator[str]:
    """Their names above the highest of them, in the order of the lines: where they cover the fewest dots, from its low
    end on. The line beneath is near wherever they stand."""
    chosen = min(_blocks(group), key=lambda block: sum(room.cost(place, MARK) for place in block))
    for one, place in zip(group, chosen, strict=True):
        room.write(place)
        yield text(place.x, place.y, _name(one.drawn), classes=_classes(one.drawn), turn=place.turn)


def _blocks(group: Sequence[_Slanted]) -> list[list[Spoken]]:
    """Places for all of them together, that at the low end first."""
    top = group[-1]
    (x, y), to = sorted((spot.x, spot.y) for spot in top.drawn.spots)
    sine, cosine = math.sin(top.angle), math.cos(top.angle)
    lengths = [_wide(_name(one.drawn)) for one in group]
    free = max(0.0, math.dist((x, y), to) - max(lengths) - 2 * _START)
    found = []
    for step in range(_TRIES):
        start = _START + free * step / (_TRIES - 1)
        feet = [(start * cosine + up * sine, start * sine - up * cosine) for up in _ups(len(group))]
        turn = math.degrees(top.angle)
        found.append([Spoken(x + dx, y + dy, turn, long) for (dx, dy), long in zip(feet, lengths, strict=True)])
    return found


def _ups(names: int) -> list[float]:
    """How far above the line each stands, the lowest first."""
    return [_FOOT + _LINE * k for k in range(names)]


def _wide(words: str) -> float:
    """They are bold."""
    return _BOLD * width(words, _SMALL)


def _name(one: Drawn) -> str:
    return shorten(one.series.name, _LONGEST, _SMALL)


def _classes(one: Drawn) -> str:
    return "name ceiling stated" if one.series.stated else "name ceiling"
