"""What is doubtful: which kinds, how many cases of each, an example, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opmark.metrics.doubts import IS_ABOVE_PEAK
from opmark.report.above_peak import above_peak
from opmark.report.html.content import Part, Place
from opmark.report.html.failures import Link
from opmark.report.plain import printable
from opmark.report.rows import Row
from opmark.schema import Record
from opmark.schema.item import Item
from opmark.schema.measurement import Caution

_LISTED = 200


class Doubt(NamedTuple):
    code: str
    message: str
    """Of the first that has it."""
    hints: list[str]
    total: int
    links: list[Link]

    @property
    def more(self) -> int:
        return self.total - len(self.links)


def doubts(part: Part, place: Place) -> list[Doubt]:
    """The most frequent first."""
    found: dict[str, list[tuple[Item, Caution]]] = {}
    for item in part.looked.items:
        for caution in told_of(item, part.records):
            found.setdefault(caution.code, []).append((item, caution))
    ordered = sorted(found.items(), key=lambda one: -len(one[1]))
    return [_doubt(code, alike, place) for code, alike in ordered]


def told_of(item: Item, records: Mapping[str, Sequence[Record]]) -> list[Caution]:
    """One of each code; without its words where the record has gone since it was glanced at."""
    found: dict[str, Caution] = {}
    for quantity, cache, caution in each(item, records.get(item.key, ())):
        of = f"{quantity} {cache}: " if len(item.timings) > 1 else ""
        found.setdefault(caution.code, replace(caution, message=of + caution.message))
    return [found.get(code) or Caution(code, "") for code in item.cautions]


def each(item: Item, records: Sequence[Record]) -> Iterator[tuple[str, str, Caution]]:
    """With the quantity and the state of the caches that it is of; as tables of a terminal tell them."""
    for measured, caution in Row(tuple(records)).cautions():
        yield measured.quantity, measured.cache, caution
    first = item.headline
    if first and item.of_peak and IS_ABOVE_PEAK in first.cautions:
        yield first.quantity, first.cache, above_peak(item.of_peak)


def _doubt(code: str, alike: list[tuple[Item, Caution]], place: Place) -> Doubt:
    items = [item for item, _ in alike]
    hints = list(dict.fromkeys(printable(caution.hint) for _, caution in alike if caution.hint))
    links = [Link(place.href(item.key), printable(item.name), printable(item.where)) for item in items[:_LISTED]]
    return Doubt(printable(code), printable(alike[0][1].message), hints[:3], len(items), links)
