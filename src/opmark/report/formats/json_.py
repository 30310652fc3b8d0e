"""JSON: a row is an object. What is no number (NaN, infinity) is null, since JSON has no word for it."""

from __future__ import annotations

from opmark.report.formats.grid import Grid
from opmark.report.plain import json_line


def json_text(grid: Grid) -> str:
    """One array, a row on a line of its own."""
    lines = ",\n".join(map(json_line, grid.records()))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def jsonl_text(grid: Grid) -> str:
    return "".join(f"{json_line(record)}\n" for record in grid.records())
