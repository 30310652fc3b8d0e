"""What failed and why: the same reason is given once, with the cases that it is of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from opmark.analysis.rows import Row
from opmark.report.html.content import Place
from opmark.report.plain import harmless, printable
from opmark.schema.record import FAILED

ORDER = ("wrong", "error", "oom", "timeout")
"""What deceives comes before what is merely missing."""
WORDS = {"wrong": "wrong result", "error": "error", "oom": "out of memory", "timeout": "timed out",
         "skipped": "skipped", "ok": "measured"}  # fmt: skip
_LISTED = 200
"""Cases of one reason; the rest is in the table."""


class Link(NamedTuple):
    href: str
    text: str
    where: str


class Group(NamedTuple):
    status: str
    word: str
    first: str
    """The first line of the reason."""
    reason: str
    """All of it, where that is more."""
    total: int
    links: list[Link]

    @property
    def more(self) -> int:
        return self.total - len(self.links)


def failed_groups(rows: Iterable[Row], place: Place) -> list[Group]:
    return groups_of((row for row in rows if row.status in FAILED), place)


def skipped_groups(rows: Iterable[Row], place: Place) -> list[Group]:
    return groups_of((row for row in rows if row.status == "skipped"), place)


def groups_of(rows: Iterable[Row], place: Place) -> list[Group]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.status, row.reason), []).append(row)
    ordered = sorted(found.items(), key=lambda one: (rank(one[0][0]), -len(one[1])))
    return [_group(status, reason, alike, place) for (status, reason), alike in ordered]


def rank(status: str) -> int:
    return ORDER.index(status) if status in ORDER else len(ORDER)


def _group(status: str, reason: str, alike: list[Row], place: Place) -> Group:
    told = harmless(reason.strip())
    first = next(iter(told.splitlines()), "") or "no reason was given"
    links = [Link(place.href(row.key), printable(row.name), printable(row.where)) for row in alike[:_LISTED]]
    return Group(status, WORDS.get(status, status), first, told if told and told != first else "", len(alike), links)
