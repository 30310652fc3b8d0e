"""What a report is made of: runs as they are looked at, their figures, and comparisons. Who makes it draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from opmark.schema import Record
from opmark.schema.chart import Chart
from opmark.schema.comparison import Compared
from opmark.schema.item import Item, Looked
from opmark.schema.task import alike

MARKS = 6100
"""That the figures of a report have together: each is a row of a table as well, and the file has to stay small."""
DETAILED = 2000
"""Items of a report whose samples are drawn; a page of more would take a browser too long to open."""


class Part(NamedTuple):
    """A run."""

    looked: Looked
    records: Mapping[str, Sequence[Record]]
    """By the key of their item: one a process."""
    charts: Sequence[Chart]
    undrawn: Sequence[str] = ()
    """Titles of figures that a page of this size has no room for."""
    samples: Callable[[Item, Sequence[Record]], Chart | None] | None = None
    """Draws what the headline of an item was made of; None where there are too many items for that."""


class Versus(NamedTuple):
    compared: Compared
    chart: Chart | None


class Content(NamedTuple):
    title: str
    """As given; empty: made of what it is about."""
    parts: tuple[Part, ...]
    comparisons: tuple[Versus, ...] = ()
    """Each of one against the first; what they are of is among the parts."""


class Place(NamedTuple):
    """Where the items of a part are found within the page: two runs may have the same tasks."""

    number: int
    """Of the part, from 1."""
    keys: frozenset[str]

    def id(self, key: str) -> str:
        return f"item-{key}" if self.number == 1 else f"item-{self.number}-{key}"

    def href(self, key: str) -> str:
        """Nothing for what is not in the page."""
        return f"#{self.id(key)}" if key in self.keys else ""


def place_of(number: int, part: Part) -> Place:
    return Place(number, frozenset(item.key for item in part.looked.items))


def records_by_item(looked: Looked, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Joined as `analysis.items` joins processes; the first of each has the task that the item is named by."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        task = record.task
        groups.setdefault(alike(task.case.id, task.backend, task.implementation, task.settings), []).append(record)
    found = {group[0].task.id: group for group in groups.values()}
    return {item.key: found[item.key] for item in looked.items if item.key in found}
