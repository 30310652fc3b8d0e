"""What would run, and what would not and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from opmark.analysis.rows import Row, rows_of_records
from opmark.report.tables import plain_table
from opmark.schema import Record, Task
from opmark.units import counted

# More than this nobody reads, and a terminal takes long to draw.
_MOST_ROWS = 1000


def plan_rows(tasks: Sequence[Task], skipped: Sequence[Record]) -> Iterator[dict[str, Any]]:
    for row in _all(tasks, skipped):
        yield {
            "case": row.case,
            "op": row.op,
            "params": row.params,
            "phase": row.phase,
            "backend": row.backend,
            "implementation": row.implementation,
            "threads": row.threads,
            "effort": row.effort,
            "processes": row.processes,
            "skipped": row.reason or None,
        }


def plan_table(tasks: Sequence[Task], skipped: Sequence[Record]) -> Table:
    everything = _all(tasks, skipped)
    processes = "" if len(tasks) + len(skipped) == len(everything) else ", some in several processes"
    caption = f"{counted(len(everything) - len(skipped), 'task')} to run{processes}, {len(skipped)} skipped"
    table = plain_table("operator", "parameters", "backend", "phase", "plan", caption=caption)
    for row in everything[:_MOST_ROWS]:
        fate = f"skipped: {row.reason}" if row.reason else row.effort
        cells = (row.op, row.parameters, row.where, row.phase, fate)
        table.add_row(*(Text(cell) for cell in cells))
    if len(everything) > _MOST_ROWS:
        table.add_row(Text("..."), Text(f"and {len(everything) - _MOST_ROWS} more; --json prints all of them"))
    return table


def _all(tasks: Sequence[Task], skipped: Sequence[Record]) -> list[Row]:
    return rows_of_records([*(Record(task, "ok") for task in tasks), *skipped])
