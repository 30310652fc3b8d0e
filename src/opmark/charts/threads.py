"""The same case with more threads: how many times as fast."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from opmark.analysis.rows import Row, RunView
from opmark.charts.common import alone
from opmark.charts.parts import beside, called, faster, measured
from opmark.registry import way_of
from opmark.schema.chart import Axis, Chart, Mark, Series
from opmark.units import counted

_MOST = 12
"""Series."""


def threads(run_view: RunView) -> list[Chart]:
    groups = beside((row for row in run_view.rows if measured(row)), _same, lambda row: row.threads)
    found = sorted((series for group in groups if (series := _series(group))), key=lambda one: -len(one.marks))
    if not found:
        return []
    drawn = found[:_MOST]
    more = len(found) - _MOST
    return [
        Chart(
            id="threads",
            title="Thread scaling",
            about="How many times as fast as with the fewest threads; on the ideal line, every thread counts in full.",
            kind="plot",
            x=Axis("threads", "count", "log2"),
            y=Axis("times as fast", "ratio", "log2"),
            series=(*drawn, *_ideal(drawn)),
            notes=(
                *([f"{counted(more, 'more case')} not drawn: those with most thread counts are"] if more > 0 else []),
                *alone(row.headline for group in groups for row in group),
            ),
        )
    ]


def _same(row: Row) -> Hashable:
    first = row.headline
    what = (first.quantity, first.cache) if first else None
    return row.case, row.seed, row.backend, row.implementation, row.mode, row.effort, what


def _series(group: list[Row]) -> Series | None:
    """By the number of threads; the first is what the others are held against."""
    ordered = sorted((row for row in group if row.threads > 0), key=lambda row: row.threads)
    if len(ordered) < 2:
        return None
    first = ordered[0]
    pairs = [(row, faster(first.headline, row.headline)) for row in ordered]
    marks = [Mark(row.threads, factor.value, called(row), factor.low, factor.high, link=row.key)
             for row, factor in pairs if factor]  # fmt: skip
    name = f"{first.name} on {first.backend}{way_of(first.backend, first.implementation)}"
    return Series(name, tuple(marks), "band")


def _ideal(drawn: list[Series]) -> Iterator[Series]:
    """One for each number of threads that is a base here."""
    reach = {base: max(one.marks[-1].x for one in drawn if one.marks[0].x == base)
             for base in sorted({one.marks[0].x for one in drawn})}  # fmt: skip
    for base, most in reach.items():
        name = "ideal" if len(reach) == 1 else f"ideal from {counted(int(base), 'thread')}"
        yield Series(name, (Mark(base, 1.0), Mark(most, most / base)), "line", "guide")
