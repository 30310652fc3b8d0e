"""Figures of records: the medians of their measurements, as they are stored and as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.schema import Measurement, Record
from opmark.schema.figure import Figure, StoredFigure
from opmark.stats import median, median_interval
from opmark.stats.cycles import cycles


def stored_figure(measurement: Measurement) -> StoredFigure:
    """The numbers of a measurement that are stored beside its samples. `store.views` reads their JSON by position."""
    m = measurement
    codes = tuple(dict.fromkeys(caution.code for caution in m.cautions))
    if not m.samples:
        return StoredFigure(m.quantity, m.cache, m.timer, m.calls, 0, None, None, None, None, codes)
    low, high, _ = median_interval(m.samples)
    middle = median(m.samples)
    return StoredFigure(m.quantity, m.cache, m.timer, m.calls, len(m.samples), middle, low, high, cycles(m), codes)


def figures_from(who: tuple[Any, ...], stored: Sequence[StoredFigure]) -> list[Figure]:
    """One figure for each measurement; a record without any has one, with its status. `who`: the fields of a Figure
    that belong to its record."""
    if not stored:
        return [Figure(*who)]
    return [Figure(*(*who, one.quantity, one.cache, one.median, one.cycles, one.cautions)) for one in stored]


def figures_of(run_id: str, record: Record) -> list[Figure]:
    task = record.task
    who = (run_id, task.case.id, task.case.op, task.backend, task.implementation, task.settings.threads)
    bare = (*who, task.settings.process, record.status, record.environment, record.started)
    return figures_from(bare, [stored_figure(measurement) for measurement in record.measurements])
