"""A table of text for people."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from opmark.report.aligned import aligned
from opmark.report.formats.grid import Grid, is_number
from opmark.report.plain import json_line, printable


def table_text(grid: Grid) -> str:
    """Numbers to the right, all else to the left; a cell is one line."""
    if not grid.columns:
        return ""
    heads = [printable(name) for name in grid.columns]
    cells = [[printable(shown(value)) for value in row] for row in grid.rows]
    right = [any(is_number(row[i]) for row in grid.rows) for i in range(len(heads))]
    return aligned([heads, *cells], right)


def shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    return f"{value:f}" if isinstance(value, Decimal) else json_line(value)
