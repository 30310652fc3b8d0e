"""How series are told apart: a colour each, and a marker or dashes, for who sees colours differently or none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from opmark.schema.chart import Series

COLOURS = 8
"""The style sheet has as many."""
MARKERS = 8
DASHES = 6
_ALARM = 3
"""Its marker: a diamond."""


class Look(NamedTuple):
    classes: str
    marker: int


def looks(series: Iterable[Series]) -> list[Look]:
    """Only data has colours of its own: ceilings and guides have names beside them."""
    found, n = [], 0
    for one in series:
        if one.role == "data":
            found.append(_data(n, one))
            n += 1
        else:
            found.append(Look(f"{one.role} stated" if one.stated else one.role, _ALARM if one.role == "alarm" else 0))
    return found


def _data(n: int, one: Series) -> Look:
    """The second time round, a colour meets another marker; a line without points has dashes instead of it."""
    again = n // COLOURS
    dash = (n + again if one.shape in ("line", "steps") else again) % DASHES
    return Look(f"s{n % COLOURS} d{dash}", (n + again) % MARKERS)
