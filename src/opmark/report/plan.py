"""What would run, and what would not and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from opmark.report.names import parameters, where
from opmark.report.rows import Row, rows
from opmark.report.tables import plain_table
from opmark.schema import Record, Task
from opmark.units import counted

# More than this nobody reads, and a terminal takes long to draw.
_MOST_ROWS = 1000


def plan_rows(tasks: Sequence[Task], skipped: Sequence[Record]) -> Iterator[dict[str, Any]]:
    for row in _all(tasks, skipped):
        task = row.record.task
        yield {
            "case": task.case.id,
            "op": task.case.op,
            "params": task.case.params,
            "phase": task.case.phase,
            "backend": task.backend,
            "implementation": task.implementation,
            "threads": task.settings.threads,
            "effort": task.settings.effort,
            "processes": len(row.records),
            "skipped": row.record.reason or None,
        }


def plan_table(tasks: Sequence[Task], skipped: Sequence[Record]) -> Table:
    everything = _all(tasks, skipped)
    processes = "" if len(tasks) + len(skipped) == len(everything) else ", some in several processes"
    caption = f"{counted(len(everything) - len(skipped), 'task')} to run{processes}, {len(skipped)} skipped"
    table = plain_table("operator", "parameters", "backend", "phase", "plan", caption=caption)
    for row in everything[:_MOST_ROWS]:
        record, task = row.record, row.record.task
        fate = f"skipped: {record.reason}" if record.reason else task.settings.effort
        cells = (task.case.op, parameters(record), where(row), task.case.phase, fate)
        table.add_row(*(Text(cell) for cell in cells))
    if len(everything) > _MOST_ROWS:
        table.add_row(Text("..."), Text(f"and {len(everything) - _MOST_ROWS} more; --json prints all of them"))
    return table


def _all(tasks: Sequence[Task], skipped: Sequence[Record]) -> list[Row]:
    return rows([*(Record(task, "ok") for task in tasks), *skipped])
