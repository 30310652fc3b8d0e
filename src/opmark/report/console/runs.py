"""Prints the runs of a store, the result of a merge, and the tasks that a run would measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark.analysis.rows import Row, rows_of_records
from opmark.report.console.table import align_columns, plain_table
from opmark.report.text import printable
from opmark.schema import Record, Task
from opmark.schema.run import RunSummary
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.store.merge import Merged

_HEADS = ("run", "started (UTC)", "label", "records", "failed", "backends", "machine", "revision", "opmark",
          "description")  # fmt: skip
_ALWAYS = ("run", "started (UTC)", "records")
_WHO = ("run", "started (UTC)", "label")
_RIGHT = ("records", "failed")
_COMMIT = 12
"""Number of digits of a commit."""
_FEW = 3


def print_runs(found: Sequence[RunSummary], console: Console) -> None:
    """Print a row for each run, without empty columns. On a narrow terminal a run takes two lines."""
    rows = [_cells(one) for one in found]
    used = [i for i, head in enumerate(_HEADS) if head in _ALWAYS or any(row[i] for row in rows)]
    heads, cells = [_HEADS[i] for i in used], [[row[i] for i in used] for row in rows]
    text = align_columns([heads, *cells], [head in _RIGHT for head in heads])
    if console.is_terminal and max(map(cell_len, text.splitlines())) > console.width:
        text = "".join(_two_lines(heads, row) for row in cells)
    console.print(Text(text), end="", soft_wrap=True)


def _two_lines(heads: Sequence[str], row: Sequence[str]) -> str:
    names = [cell for head, cell in zip(heads, row, strict=True) if head in _WHO]
    others = [f"{head} {cell}" for head, cell in zip(heads, row, strict=True) if cell and head not in _WHO]
    return f"{'  '.join(names).rstrip()}\n  {'  '.join(others)}\n"


def _cells(one: RunSummary) -> list[str]:
    run = one.run
    cells = [
        run.id,
        run.started[:19].replace("T", " "),
        run.label,
        f"{one.records} of {run.tasks}" if one.missing else str(one.records),
        str(one.failed or ""),
        _few(one.backends),
        _few(one.machines),
        revision(run.revision),
        run.version,
        run.description,
    ]
    return [printable(cell) for cell in cells]


def revision(text: str) -> str:
    commit, changed, _ = text.partition("+")
    return commit[:_COMMIT] + changed


def _few(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_FEW])
    return f"{listed} and {len(names) - _FEW} more" if len(names) > _FEW else listed


def merged_line(merged: Merged) -> str:
    """Return the result of a merge as one line."""
    parts = [
        f"{count_noun(len(merged.new), 'new run')}",
        f"{len(merged.completed)} completed" if merged.completed else "",
        f"{len(merged.there)} there already" if merged.there else "",
        count_noun(merged.records, "new record"),
        count_noun(merged.findings, "new finding") if merged.findings else "",
    ]
    renamed = [f"{printable(old)} is {new} here" for old, new in merged.renamed.items()]
    return "; ".join([", ".join(filter(None, parts)), *renamed])


# The tasks that would run, and those that would be skipped and why.

_MOST_ROWS = 1000
"""Nobody reads more rows, and a terminal takes long to draw them."""


def plan_rows(tasks: Sequence[Task], skipped: Sequence[Record]) -> Iterator[dict[str, Any]]:
    for row in _plan(tasks, skipped):
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
    everything = _plan(tasks, skipped)
    processes = "" if len(tasks) + len(skipped) == len(everything) else ", some in several processes"
    caption = f"{count_noun(len(everything) - len(skipped), 'task')} to run{processes}, {len(skipped)} skipped"
    table = plain_table("operator", "parameters", "backend", "phase", "plan", caption=caption)
    for row in everything[:_MOST_ROWS]:
        fate = f"skipped: {row.reason}" if row.reason else row.effort
        cells = (row.op, row.parameters, row.where, row.phase, fate)
        table.add_row(*(Text(cell) for cell in cells))
    if len(everything) > _MOST_ROWS:
        table.add_row(Text("..."), Text(f"and {len(everything) - _MOST_ROWS} more; --json prints all of them"))
    return table


def _plan(tasks: Sequence[Task], skipped: Sequence[Record]) -> list[Row]:
    return rows_of_records([*(Record(task, "ok") for task in tasks), *skipped])
