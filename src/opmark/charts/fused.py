"""Ways to compute the same case on the same backend: how many times as fast as the unfused one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from opmark.charts.parts import Factor, beside, called, faster, measured
from opmark.registry import way_of
from opmark.schema.chart import Axis, Chart, Mark, Rule, Series
from opmark.schema.item import Item, Looked
from opmark.units import counted

_BASE = "unfused"
_MOST = 40
"""Rows."""


class _Row(NamedTuple):
    base: Item
    others: list[tuple[Item, Factor]]

    @property
    def effect(self) -> float:
        return max(abs(math.log(factor.value)) for _, factor in self.others)


def fused(looked: Looked) -> list[Chart]:
    groups = beside(looked.items, _same, lambda item: item.implementation)
    rows = sorted((row for group in groups if (row := _row(group))), key=lambda row: -row.effect)
    if not rows:
        return []
    drawn = rows[:_MOST]
    return [
        Chart(
            id="fused",
            title="Fused against unfused",
            about="How many times as fast as its base each way to compute a case is; intervals are those of both.",
            kind="bars",
            x=Axis("times as fast", "ratio", "linear"),
            y=Axis("", "", "category", tuple(_name(row) for row in drawn)),
            series=_series(drawn),
            rules=(Rule("x", 1.0, "as fast as the base"),),
            notes=tuple(_notes(rows, len(groups))),
        )
    ]


def _same(item: Item) -> Hashable:
    return item.case, item.backend, item.threads, item.mode, item.effort


def _row(group: list[Item]) -> _Row | None:
    """None where nothing can be held against the base."""
    numbered = sorted((item for item in group if measured(item)), key=lambda item: item.implementation != _BASE)
    if len(numbered) < 2:
        return None
    base = numbered[0]
    pairs = [(item, faster(measured(base), measured(item))) for item in numbered[1:]]
    known = [(item, factor) for item, factor in pairs if factor]
    return _Row(base, known) if known else None


def _name(row: _Row) -> str:
    """What is beside each other differs in its implementation, so that names are without; the base is told where it is
    not the usual one."""
    base = row.base
    way = way_of(base.backend, base.implementation)
    where = base.where.replace(f"{base.backend}{way}", base.backend, 1)
    return f"{base.name} on {where}" + ("" if base.implementation == _BASE else f", against {base.implementation}")


def _series(rows: list[_Row]) -> tuple[Series, ...]:
    found: dict[str, list[Mark]] = {}
    for place, row in enumerate(rows):
        for item, factor in row.others:
            label = f"{called(item)}, against {row.base.implementation}"
            mark = Mark(factor.value, place, label, factor.low, factor.high, link=item.key)
            found.setdefault(item.implementation, []).append(mark)
    return tuple(Series(name, tuple(marks), "bars") for name, marks in found.items())


def _notes(rows: list[_Row], groups: int) -> Iterator[str]:
    if len(rows) > _MOST:
        yield f"{counted(len(rows) - _MOST, 'more case')} not drawn: their implementations differ less"
    if groups > len(rows):
        lacking = counted(groups - len(rows), "case")
        yield f"{lacking} left out: fewer than two implementations have a usable number of the same quantity"
