"""The frame of a plot: grid, ticks with their labels, titles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.drawing.labels import titled
from opmark.report.drawing.panel import Panel
from opmark.report.drawing.scale import Places, Scaled
from opmark.report.drawing.text import SIZE, clean, shorten, width
from opmark.report.drawing.ticks import Ticks, apart, names, roomy
from opmark.report.drawing.words import text
from opmark.schema.chart import Axis

SMALL = 12.0
TITLE = 24.0
"""Height of the line in which the title of the upright axis stands."""
_GAP = 12.0
_LINE = 15.0
_TURN = 35.0
_LONGEST = 150.0
"""Of a name beneath the picture."""
_WIDEST = 250.0
"""Of a name to its left."""


class Beneath(NamedTuple):
    """Labels under the picture: `turned` ones need more height."""

    ticks: Ticks
    turned: bool
    height: float
    reach: float = 0.0
    """How far the first of them goes to the left of its tick."""


def beneath(scale: Scaled, axis: Axis, length: float) -> Beneath:
    if isinstance(scale, Places):
        return _names_beneath(scale, length)
    found = roomy(scale, axis.unit, apart(length, lambda words: width(words, SMALL), _GAP))
    return Beneath(found, False, 20.0)


def _names_beneath(scale: Places, length: float) -> Beneath:
    """Level where they fit, turned where not, and only every so many where even that is too close."""
    cleaned = Places(tuple(shorten(name, _LONGEST, SMALL) for name in scale.names))
    step_length = length / max(1, len(scale.names))
    widest = max((width(name, SMALL) for name in cleaned.names), default=0.0)
    if widest + _GAP / 2 <= step_length:
        return Beneath(Ticks(names(cleaned), []), False, 20.0)
    angle = math.radians(_TURN)
    step = max(1, math.ceil(_LINE / math.sin(angle) / step_length))
    reach = width(cleaned.names[0], SMALL) * math.cos(angle) - step_length / 2
    return Beneath(Ticks(names(cleaned, step), []), True, 14.0 + widest * math.sin(angle), reach)


def beside(scale: Scaled, axis: Axis, length: float) -> tuple[Ticks, float]:
    """Labels to the left of the picture, and the room that they need."""
    if isinstance(scale, Places):
        step = max(1, math.ceil(_LINE * len(scale.names) / max(1.0, length)))
        found = Ticks([t._replace(text=shorten(t.text, _WIDEST, SMALL)) for t in names(scale, step)], [])
    else:
        found = roomy(scale, axis.unit, apart(length, lambda _: SMALL, _GAP))
    return found, max((width(tick.text, SMALL) for tick in found.labelled), default=0.0) + 12


def grid(panel: Panel, across: Ticks | None, up: Ticks | None) -> Iterator[str]:
    """Thin lines first; of a category axis there are none."""
    thin = _lines(panel, across.between if across else [], up.between if up else [])
    thick = _lines(panel, _places(across), _places(up))
    if thin:
        yield f'<path class="grid minor" d="{thin}"/>'
    if thick:
        yield f'<path class="grid" d="{thick}"/>'


def frame(panel: Panel) -> str:
    """The two axes."""
    return f'<path class="axis" d="M{panel.left:.1f} {panel.top:.1f}V{panel.bottom:.1f}H{panel.right:.1f}"/>'


def labels_beneath(panel: Panel, made: Beneath, axis: Axis) -> Iterator[str]:
    anchor = "end" if made.turned else "middle"
    yield f'<g class="ticks" text-anchor="{anchor}">'
    for tick in made.ticks.labelled:
        x = panel.across(tick.place)
        if made.turned:
            yield text(x + 4, panel.bottom + 14, tick.text, turn=-_TURN)
        else:
            yield text(x, panel.bottom + 17, tick.text)
    yield "</g>"
    middle, foot = panel.left + panel.width / 2, panel.bottom + made.height + 18
    yield text(middle, foot, shorten(titled(axis), panel.right, SIZE), anchor="middle", classes="title")


def labels_beside(panel: Panel, found: Ticks, *, downwards: bool) -> Iterator[str]:
    yield '<g class="ticks" text-anchor="end">'
    for tick in found.labelled:
        y = panel.down(tick.place) if downwards else panel.up(tick.place)
        yield text(panel.left - 7, y + 4, tick.text)
    yield "</g>"


def title_above(axis: Axis, panel: Panel) -> str:
    """Level, at the upper left: nobody has to turn their head."""
    return text(4, panel.top - 11, shorten(clean(titled(axis)), panel.right - 8, SIZE), classes="title")


def _places(found: Ticks | None) -> list[float]:
    return [tick.place for tick in found.labelled] if found else []


def _lines(panel: Panel, across: Sequence[float], up: Sequence[float]) -> str:
    upright = [f"M{panel.across(place):.1f} {panel.top:.1f}V{panel.bottom:.1f}" for place in across]
    level = [f"M{panel.left:.1f} {panel.up(place):.1f}H{panel.right:.1f}" for place in up]
    return "".join(upright + level)
