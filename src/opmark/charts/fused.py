"""Ways to compute the same case on the same backend: how many times as fast as the unfused one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from opmark.analysis.rows import Row, RunView, Timing
from opmark.charts.common import LINEAR, alone, wide
from opmark.charts.parts import Factor, beside, called, faster, measured
from opmark.registry import way_of
from opmark.schema.chart import Axis, Chart, Mark, Rule, Series
from opmark.units import counted

_BASE = "unfused"
_MOST = 40
"""Rows."""


class _Row(NamedTuple):
    base: Row
    others: list[tuple[Row, Factor]]

    @property
    def effect(self) -> float:
        return max(abs(math.log(factor.value)) for _, factor in self.others)


def fused(run_view: RunView) -> list[Chart]:
    groups = beside(run_view.rows, _same, lambda row: row.implementation)
    lines = sorted((line for group in groups if (line := _row(group))), key=lambda line: -line.effect)
    if not lines:
        return []
    drawn = lines[:_MOST]
    where, what = {_where(line.base) for line in drawn}, {_what(line.base) for line in drawn}
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
            y=Axis("", "", "category", tuple(_name(line, len(where) > 1, len(what) > 1) for line in drawn)),
            series=series,
            rules=(Rule("x", 1.0, "as fast as the base"),),
            notes=(*_notes(lines, len(groups)), *alone(_timings(drawn))),
        )
    ]


def _same(row: Row) -> Hashable:
    return row.case, row.seed, row.backend, row.threads, row.mode, row.effort


def _row(group: list[Row]) -> _Row | None:
    """None where nothing can be held against the base."""
    numbered = sorted((row for row in group if measured(row)), key=lambda row: row.implementation != _BASE)
    if len(numbered) < 2:
        return None
    base = numbered[0]
    pairs = [(row, faster(measured(base), measured(row))) for row in numbered[1:]]
    known = [(row, factor) for row, factor in pairs if factor]
    return _Row(base, known) if known else None


def _where(base: Row) -> str:
    """What is beside each other differs in its implementation, so that it is told without."""
    way = way_of(base.backend, base.implementation)
    return base.where.replace(f"{base.backend}{way}", base.backend, 1)


def _what(row: Row) -> str:
    return f"{row.headline.quantity}, {row.headline.cache}" if row.headline else ""


def _name(line: _Row, where: bool, what: bool) -> str:
    """Short, as there is little room: where and what is in the title, if it is the same for all. The base is told where
    it is not the usual one."""
    base = line.base
    parts = [f" on {_where(base)}" if where else "", f", {_what(base)}" if what else ""]
    return base.name + "".join(parts) + ("" if base.implementation == _BASE else f", against {base.implementation}")


def _timings(lines: list[_Row]) -> Iterator[Timing | None]:
    for line in lines:
        yield from (row.headline for row in (line.base, *(other for other, _ in line.others)))


def _series(lines: list[_Row]) -> tuple[Series, ...]:
    found: dict[str, list[Mark]] = {}
    for place, line in enumerate(lines):
        for row, factor in line.others:
            label = f"{called(row)}, against {line.base.implementation}"
            mark = Mark(factor.value, place, label, factor.low, factor.high, link=row.key, note=_what(row))
            found.setdefault(row.implementation, []).append(mark)
    return tuple(Series(name, tuple(marks), "bars") for name, marks in found.items())


def _notes(lines: list[_Row], groups: int) -> Iterator[str]:
    if len(lines) > _MOST:
        yield f"{counted(len(lines) - _MOST, 'more case')} not drawn: their implementations differ less"
    if groups > len(lines):
        lacking = counted(groups - len(lines), "case")
        yield f"{lacking} left out: fewer than two implementations have a usable number of the same quantity"
