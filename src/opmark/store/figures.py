"""Records to figures."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.schema import Record
from opmark.schema.figure import Figure
from opmark.stats import median
from opmark.stats.cycles import cycles


def figures_of(run_id: str, record: Record) -> Iterator[Figure]:
    """One for each measurement; a record without any has one, which has a status."""
    task = record.task
    who = (run_id, task.case.id, task.case.op, task.backend, task.implementation, task.settings.threads)
    bare = (*who, task.settings.process, record.status, record.environment, record.started)
    if not record.measurements:
        yield Figure(*bare)
    for measurement in record.measurements:
        yield Figure(
            *bare,
            quantity=measurement.quantity,
            cache=measurement.cache,
            median=median(measurement.samples) if measurement.samples else None,
            cycles=cycles(measurement),
            cautions=tuple(dict.fromkeys(caution.code for caution in measurement.cautions)),
        )
