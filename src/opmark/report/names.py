"""What a row is called: its parameters as people read them, and where it ran."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError
from opmark.registry import backend_or_none
from opmark.registry import operator as find_operator
from opmark.report.rows import Row
from opmark.schema import Param, Record, Task
from opmark.schema.shown import shown


def parameters(record: Record) -> str:
    return shown(record.task.case, _params(record.task.case.op), record.called)


def _params(name: str) -> dict[str, Param]:
    """Those of an operator, if it is installed; a stored run may tell of one that is not."""
    try:
        return find_operator(name).by_name
    except UserError:
        return {}


def where(row: Row) -> str:
    """Backend, implementation if there are several, threads, processes if there are several."""
    task = row.record.task
    processes = f" in {len(row.records)} processes" if len(row.records) > 1 else ""
    return f"{task.backend}{way(task)} ×{task.settings.threads}{processes}"


def way(task: Task) -> str:
    """The implementation, where the framework has several."""
    own = backend_or_none(task.backend)
    plain = not task.implementation or (own is not None and task.implementation in (*own.frameworks, own.name))
    return "" if plain else f"/{task.implementation}"


def named(found: Sequence[Row]) -> str:
    """Cases by the first of them."""
    record = found[0].record
    first = f"{record.task.case.op} {parameters(record)}".strip()
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
