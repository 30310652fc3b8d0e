"""Records to figures: medians of their measurements, as they are stored and as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.schema import Measurement, Record
from opmark.schema.figure import Figure
from opmark.stats import median, median_interval
from opmark.stats.cycles import cycles


def figure_row(measurement: Measurement) -> tuple[Any, ...]:
    """As `tables.RECORD` says; `views` and `figures_from` read it by place."""
    m = measurement
    codes = tuple(dict.fromkeys(caution.code for caution in m.cautions))
    if not m.samples:
        return (m.quantity, m.cache, m.timer, m.calls, 0, None, None, None, None, codes)
    low, high, _ = median_interval(m.samples)
    return (m.quantity, m.cache, m.timer, m.calls, len(m.samples), median(m.samples), low, high, cycles(m), codes)


def figures_from(who: tuple[Any, ...], rows: Sequence[Sequence[Any]]) -> list[Figure]:
    """One for each measurement; a record without any has one, which has a status. `who`: the fields of a Figure that
    belong to its record."""
    if not rows:
        return [Figure(*who)]
    return [Figure(*(*who, row[0], row[1], row[5], row[8], tuple(row[9]))) for row in rows]


def figures_of(run_id: str, record: Record) -> list[Figure]:
    task = record.task
    who = (run_id, task.case.id, task.case.op, task.backend, task.implementation, task.settings.threads)
    bare = (*who, task.settings.process, record.status, record.environment, record.started)
    return figures_from(bare, [figure_row(measurement) for measurement in record.measurements])
