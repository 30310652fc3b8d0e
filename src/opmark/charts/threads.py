"""The same case with more threads: how many times as fast."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from opmark.charts.common import alone
from opmark.charts.parts import beside, called, faster, measured
from opmark.registry import way_of
from opmark.schema.chart import Axis, Chart, Mark, Series
from opmark.schema.item import Item, Looked
from opmark.units import counted

_MOST = 12
"""Series."""


def threads(looked: Looked) -> list[Chart]:
    groups = beside((item for item in looked.items if measured(item)), _same, lambda item: item.threads)
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
                *alone(item.headline for group in groups for item in group),
            ),
        )
    ]


def _same(item: Item) -> Hashable:
    first = item.headline
    what = (first.quantity, first.cache) if first else None
    return item.case, item.seed, item.backend, item.implementation, item.mode, item.effort, what


def _series(group: list[Item]) -> Series | None:
    """By the number of threads; the first is what the others are held against."""
    ordered = sorted((item for item in group if item.threads > 0), key=lambda item: item.threads)
    if len(ordered) < 2:
        return None
    first = ordered[0]
    pairs = [(item, faster(first.headline, item.headline)) for item in ordered]
    marks = [Mark(item.threads, factor.value, called(item), factor.low, factor.high, link=item.key)
             for item, factor in pairs if factor]  # fmt: skip
    name = f"{first.name} on {first.backend}{way_of(first.backend, first.implementation)}"
    return Series(name, tuple(marks), "band")


def _ideal(drawn: list[Series]) -> Iterator[Series]:
    """One for each number of threads that is a base here."""
    reach = {base: max(one.marks[-1].x for one in drawn if one.marks[0].x == base)
             for base in sorted({one.marks[0].x for one in drawn})}  # fmt: skip
    for base, most in reach.items():
        name = "ideal" if len(reach) == 1 else f"ideal from {counted(int(base), 'thread')}"
        yield Series(name, (Mark(base, 1.0), Mark(most, most / base)), "line", "guide")
