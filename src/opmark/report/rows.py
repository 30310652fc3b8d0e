"""Records to rows: those of one case in several processes are one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from opmark.metrics.doubts import APART, PROCESSES_DIFFER, half_width, holds_over_processes
from opmark.metrics.lead import Key as Key
from opmark.metrics.summary import Summary, summarize
from opmark.schema import QUANTITIES, Caution, Measurement, Record
from opmark.stats import median
from opmark.units import percent, seconds


def unit(key: Key) -> str:
    return QUANTITIES[key[0]].unit if key[0] in QUANTITIES else "s"


@dataclass(frozen=True)
class Row:
    records: tuple[Record, ...]
    """At least one; the same task but for the process."""
    _summaries: dict[Key, Summary] = field(default_factory=dict, repr=False, compare=False)
    """What was summed up already: tables ask for it many times."""

    @cached_property
    def record(self) -> Record:
        """The one that stands for all: one that failed before one that did not."""
        return next((record for record in self.records if record.status != "ok"), self.records[0])

    def measured(self) -> list[Key]:
        """What was measured, in the order of the first process that measured it; the first is the headline."""
        return [*self._keys]

    @cached_property
    def _keys(self) -> tuple[Key, ...]:
        return tuple(dict.fromkeys((m.quantity, m.cache) for r in self.records for m in r.measurements))

    def measurements(self, key: Key) -> list[Measurement]:
        found = (record.measurement(*key) for record in self.records)
        return [measurement for measurement in found if measurement]

    def samples(self) -> list[float]:
        """Of the headline, in the order taken, one process behind the other."""
        measured = self.measured()
        return [value for m in self.measurements(measured[0]) for value in m.samples] if measured else []

    def summary(self, key: Key | None = None) -> Summary | None:
        """Of the headline, if nothing else is asked for; None where nothing was measured."""
        measured = self.measured()
        if not measured:
            return None
        key = key or measured[0]
        if key not in self._summaries:
            found = self.measurements(key)
            if not found:
                return None
            self._summaries[key] = summarize(found)
        return self._summaries[key]

    def seconds(self) -> float | None:
        """Median of the headline; None where nothing was measured, or something else than a time."""
        summary = self.summary()
        return summary.median if summary and unit(self.measured()[0]) == "s" else None

    def compile_time(self) -> float | None:
        """Seconds with empty caches, the median over processes; None where nothing was compiled."""
        known = [record.compilation.cold for record in self.records if record.compilation]
        return median(known) if known else None

    def cautions(self) -> list[tuple[Measurement, Caution]]:
        """Those of its measurements; of several processes, how far they are apart instead of how sure each one was."""
        if len(self.records) == 1:
            return [(m, caution) for m in self.records[0].measurements for caution in m.cautions]
        return [pair for key in self.measured() for pair in self._over_processes(key)]

    def _over_processes(self, key: Key) -> Iterator[tuple[Measurement, Caution]]:
        found, summary = self.measurements(key), self.summary(key)
        if summary and (apart := _apart(found, summary)):
            yield found[0], apart
        of = f"in one of {len(found)} processes, "
        for measurement in found:
            for caution in measurement.cautions:
                if holds_over_processes(caution.code):
                    yield measurement, replace(caution, message=of + caution.message)


def _apart(found: Sequence[Measurement], summary: Summary) -> Caution | None:
    half = half_width(summary.median, summary.low, summary.high)
    if len(found) < 2 or half <= APART:
        return None
    medians = sorted(median(m.samples) for m in found)
    return Caution(
        PROCESSES_DIFFER,
        f"the medians of {len(found)} processes lie between {seconds(medians[0])} and {seconds(medians[-1])}: the "
        f"centre is known to ± {percent(half)}; up to {percent(APART)} is usual",
        "use more --processes, or a quieter machine; `opmark doctor --aa` says what is usual here",
    )


def rows(records: Iterable[Record]) -> list[Row]:
    """In the order of the first record of each."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.task.across_processes.id, []).append(record)
    return [Row(tuple(group)) for group in grouped.values()]


def others(found: Sequence[Row]) -> list[Key]:
    """What some row has measured besides its headline."""
    return list(dict.fromkeys(key for row in found for key in row.measured()[1:]))
