"""JSON: a row is an object. What is no number (NaN, infinity) is null, since JSON has no word for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opmark.report.formats.grid import Grid
from opmark.report.plain import json_line


def json_text(grid: Grid) -> str:
    """One array, a row on a line of its own."""
    lines = ",\n".join(map(json_line, grid.records()))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def jsonl_text(grid: Grid) -> str:
    return "".join(jsonl_lines(grid.columns, grid.rows))


def jsonl_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A line at a time: there may be more of them than fit into the memory."""
    for row in rows:
        yield f"{json_line(dict(zip(columns, row, strict=True)))}\n"
