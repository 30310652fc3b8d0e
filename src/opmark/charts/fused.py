"""Ways to compute the same case on the same backend: how many times as fast as the unfused one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from opmark.charts.common import LINEAR, alone, wide
from opmark.charts.parts import Factor, beside, called, faster, measured
from opmark.registry import way_of
from opmark.schema.chart import Axis, Chart, Mark, Rule, Series
from opmark.schema.item import Item, Looked, Timing
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
    where, what = {_where(row.base) for row in drawn}, {_what(row.base) for row in drawn}
    series = _series(drawn)
    told = f" on {next(iter(where))}" if len(where) == 1 else ""
    same = [*([series[0].name] if len(series) == 1 else []), *(what if len(what) == 1 else [])]
    told += f": {', '.join(same)}" if same else ""
    logarithmic = wide([1.0, *(mark.x for one in series for mark in one.marks)], LINEAR)
    return [
        Chart(
            id="fused",
            title=f"Fused against unfused{told}",
            about="How many times as fast as its base each way to compute a case is; intervals are those of both.",
            kind="bars",
            x=Axis("times as fast", "ratio", "log" if logarithmic else "linear"),
            y=Axis("", "", "category", tuple(_name(row, len(where) > 1, len(what) > 1) for row in drawn)),
            series=series,
            rules=(Rule("x", 1.0, "as fast as the base"),),
            notes=(*_notes(rows, len(groups)), *alone(_timings(drawn))),
        )
    ]


def _same(item: Item) -> Hashable:
    return item.case, item.seed, item.backend, item.threads, item.mode, item.effort


def _row(group: list[Item]) -> _Row | None:
    """None where nothing can be held against the base."""
    numbered = sorted((item for item in group if measured(item)), key=lambda item: item.implementation != _BASE)
    if len(numbered) < 2:
        return None
    base = numbered[0]
    pairs = [(item, faster(measured(base), measured(item))) for item in numbered[1:]]
    known = [(item, factor) for item, factor in pairs if factor]
    return _Row(base, known) if known else None


def _where(base: Item) -> str:
    """What is beside each other differs in its implementation, so that it is told without."""
    way = way_of(base.backend, base.implementation)
    return base.where.replace(f"{base.backend}{way}", base.backend, 1)


def _what(item: Item) -> str:
    return f"{item.headline.quantity}, {item.headline.cache}" if item.headline else ""


def _name(row: _Row, where: bool, what: bool) -> str:
    """Short, as there is little room: where and what is in the title, if it is the same for all. The base is told where
    it is not the usual one."""
    base = row.base
    parts = [f" on {_where(base)}" if where else "", f", {_what(base)}" if what else ""]
    return base.name + "".join(parts) + ("" if base.implementation == _BASE else f", against {base.implementation}")


def _timings(rows: list[_Row]) -> Iterator[Timing | None]:
    for row in rows:
        yield from (item.headline for item in (row.base, *(other for other, _ in row.others)))


def _series(rows: list[_Row]) -> tuple[Series, ...]:
    found: dict[str, list[Mark]] = {}
    for place, row in enumerate(rows):
        for item, factor in row.others:
            label = f"{called(item)}, against {row.base.implementation}"
            mark = Mark(factor.value, place, label, factor.low, factor.high, link=item.key, note=_what(item))
            found.setdefault(item.implementation, []).append(mark)
    return tuple(Series(name, tuple(marks), "bars") for name, marks in found.items())


def _notes(rows: list[_Row], groups: int) -> Iterator[str]:
    if len(rows) > _MOST:
        yield f"{counted(len(rows) - _MOST, 'more case')} not drawn: their implementations differ less"
    if groups > len(rows):
        lacking = counted(groups - len(rows), "case")
        yield f"{lacking} left out: fewer than two implementations have a usable number of the same quantity"
