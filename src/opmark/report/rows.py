"""Records to rows: those of one case in several processes are one row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opmark.metrics.summary import Summary, summarize
from opmark.schema import QUANTITIES, Cache, Caution, Measurement, Record

Key = tuple[str, Cache]
"""A quantity and the state of the caches."""


def unit(key: Key) -> str:
    return QUANTITIES[key[0]].unit if key[0] in QUANTITIES else "s"


@dataclass(frozen=True)
class Row:
    records: tuple[Record, ...]
    """At least one; the same task but for the process."""

    @property
    def record(self) -> Record:
        """The one that stands for all: one that failed before one that did not."""
        return next((record for record in self.records if record.status != "ok"), self.records[0])

    def measured(self) -> list[Key]:
        """What was measured, in the order of the first process that measured it; the first is the headline."""
        return list(dict.fromkeys((m.quantity, m.cache) for r in self.records for m in r.measurements))

    def measurements(self, key: Key) -> list[Measurement]:
        found = (record.measurement(*key) for record in self.records)
        return [measurement for measurement in found if measurement]

    def summary(self, key: Key | None = None) -> Summary | None:
        """Of the headline, if nothing else is asked for; None where nothing was measured."""
        measured = self.measured()
        if not measured:
            return None
        found = self.measurements(key or measured[0])
        return summarize(found) if found else None

    def cautions(self) -> list[tuple[Measurement, Caution]]:
        return [(m, caution) for r in self.records for m in r.measurements for caution in m.cautions]


def rows(records: Iterable[Record]) -> list[Row]:
    """In the order of the first record of each."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.task.across_processes.id, []).append(record)
    return [Row(tuple(group)) for group in grouped.values()]


def others(found: Sequence[Row]) -> list[Key]:
    """What some row has measured besides its headline."""
    return list(dict.fromkeys(key for row in found for key in row.measured()[1:]))
