"""Workloads as CSV: a row a case, the operator in a column of its own and an argument in each of the others.

A table of results is one too: what was measured comes behind the arguments, and is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.importers.bytemicroperf.points import Taken
from opmark.importers.bytemicroperf.tasks import NAMES, task_of

_TASK = ("task_name", "op_name", "task", "operator", "op")
"""Columns with the operator, the first that is there; without one, it is the name of the file."""
_BEFORE, _BEHIND = "provider", "latency(us)"
"""Columns of a table of results, between which the arguments stand."""
_PHASE = "phase"


def recognises(path: Path, rows: Sequence[Any]) -> bool:
    """By the column that theirs have; by another one, or the name of the file, where that names operators of theirs."""
    if not rows or not all(isinstance(row, dict) for row in rows):
        return False
    tables = [_stripped(row) for row in rows]
    column = _column(tables[0])
    if column == _TASK[0] or path.suffix != ".csv":
        return all(_TASK[0] in row for row in tables)
    if column is None:
        return task_of(path.stem) in NAMES
    return any(str(row.get(column)).strip() in NAMES for row in tables)


def by_task(taken: Taken, rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Arguments of each row by operator; an empty cell is none."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, row in enumerate(rows):
        cells = {key: _value(text) for key, text in _stripped(row).items()}
        column = _column(cells)
        task = str(cells.pop(column)) if column else task_of(taken.path.stem)
        if {_BEFORE, _BEHIND} <= cells.keys():
            if cells.get(_PHASE, "forward") != "forward":
                taken.problem(f"$[{number}].{_PHASE}", f"expected forward, got `{cells[_PHASE]}`",
                              "a workload of ByteMicroPerf has no other phase; one of opmark has `phases`")  # fmt: skip
                continue
            names = list(cells)
            cells = {name: cells[name] for name in names[names.index(_BEFORE) + 1 : names.index(_BEHIND)]}
        found.setdefault(task, []).append({key: value for key, value in cells.items() if value != ""})
    return found


def _column(row: Mapping[str, Any]) -> str | None:
    return next((name for name in _TASK if name in row), None)


def _stripped(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).strip(): value for key, value in row.items()}


_NUMBER = re.compile(r"[-+]?\d{1,18}", re.ASCII)


def _value(text: Any) -> Any:
    """A text as a person means it: a number, true or false, a list, else itself."""
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
