"""What a row is called: its parameters as people read them, and where it ran."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.registry import parameters_of
from opmark.registry import way_of as way_of
from opmark.report.rows import Row
from opmark.schema import Case, Record, Task
from opmark.schema.shown import shown


def parameters(record: Record) -> str:
    return case_parameters(record.task.case, record.called)


def case_parameters(case: Case, called: str = "") -> str:
    return shown(case, parameters_of(case.op), called)


def where(row: Row) -> str:
    """Backend, implementation if there are several, threads, processes if there are several."""
    task = row.record.task
    processes = f" in {len(row.records)} processes" if len(row.records) > 1 else ""
    return f"{task.backend}{way(task)} ×{task.settings.threads}{processes}"


def way(task: Task) -> str:
    """The implementation, where the framework has several."""
    return way_of(task.backend, task.implementation)


def named(found: Sequence[Row]) -> str:
    """Cases by the first of them."""
    record = found[0].record
    first = f"{record.task.case.op} {parameters(record)}".strip()
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
