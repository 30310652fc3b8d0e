"""Workloads as CSV: one row per case, with a column for the operator and one for each argument.

A table of results can be read as well: the measured columns, which follow the arguments, are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.importers.bytemicroperf.points import Taken
from opmark.importers.bytemicroperf.tasks import NAMES, task_from_name

_TASK = ("task_name", "op_name", "task", "operator", "op")
"""Names of the operator's column, in the order of precedence; a file without one is named after its operator."""
_BEFORE, _BEHIND = "provider", "latency(us)"
"""The arguments are between these two columns of a table of results."""
_PHASE = "phase"


def recognises(path: Path, rows: Sequence[Any]) -> bool:
    """Recognise a table by ByteMicroPerf's own column, or by its operators in another column or in the file name."""
    if not rows or not all(isinstance(row, dict) for row in rows):
        return False
    tables = [_strip_keys(row) for row in rows]
    column = _column(tables[0])
    if column == _TASK[0] or path.suffix != ".csv":
        return all(_TASK[0] in row for row in tables)
    if column is None:
        return task_from_name(path.stem) in NAMES
    return any(str(row.get(column)).strip() in NAMES for row in tables)


def by_task(taken: Taken, rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the arguments of each row by operator; empty cells are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, row in enumerate(rows):
        cells = {key: _parse_cell(text) for key, text in _strip_keys(row).items()}
        column = _column(cells)
        task = str(cells.pop(column)) if column else task_from_name(taken.path.stem)
        if {_BEFORE, _BEHIND} <= cells.keys():
            if cells.get(_PHASE, "forward") != "forward":
                taken.problem(f"$[{number}].{_PHASE}", f"expected forward, got `{cells[_PHASE]}`",
                              "ByteMicroPerf has no other phase; a workload of opmark has `phases`")  # fmt: skip
                continue
            names = list(cells)
            cells = {name: cells[name] for name in names[names.index(_BEFORE) + 1 : names.index(_BEHIND)]}
        found.setdefault(task, []).append({key: value for key, value in cells.items() if value != ""})
    return found


def _column(row: Mapping[str, Any]) -> str | None:
    return next((name for name in _TASK if name in row), None)


def _strip_keys(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).strip(): value for key, value in row.items()}


_NUMBER = re.compile(r"[-+]?\d{1,18}", re.ASCII)


def _parse_cell(text: Any) -> Any:
    """Parse a cell: a number, true or false, a list, or else the text itself."""
    if not isinstance(text, str):
        return text
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return ast.literal_eval(text) if text.startswith("[") else float(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
