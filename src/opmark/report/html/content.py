"""What a report is made of: runs, their figures, and comparisons. `api.reporting` gathers it, `page` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opmark.analysis.rows import RunView
from opmark.schema.chart import Chart
from opmark.schema.comparison import Compared

MARKS = 6100
"""Upper bound on the marks of all figures of a report: each is a row of a table as well, and the file has to stay
small."""
DETAILED = 2000
"""Number of rows whose samples are drawn; a browser would take too long to open a page with more."""


class Part(NamedTuple):
    """A run with its figures. Its rows have their records."""

    run_view: RunView
    charts: Sequence[Chart]
    undrawn: Sequence[str] = ()
    """Titles of figures that a page of this size has no room for."""


class Versus(NamedTuple):
    compared: Compared
    chart: Chart | None


class Content(NamedTuple):
    title: str
    """The title that was given; where it is empty, one is made."""
    parts: tuple[Part, ...]
    comparisons: tuple[Versus, ...] = ()
    """Each other run against the first; all of these runs are among the parts."""


class Place(NamedTuple):
    """Where the rows of a part are found within the page: two runs may have the same tasks."""

    number: int
    """The number of the part, from 1."""
    keys: frozenset[str]

    def id(self, key: str) -> str:
        return f"item-{key}" if self.number == 1 else f"item-{self.number}-{key}"

    def href(self, key: str) -> str:
        """The link to a row; empty for a row that is not in the page."""
        return f"#{self.id(key)}" if key in self.keys else ""


def place_of(number: int, part: Part) -> Place:
    return Place(number, frozenset(row.key for row in part.run_view.rows))
