"""A table as data, and its formats CSV, JSON, JSON lines and aligned text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

from opmark.report.console.table import align_columns
from opmark.report.text import harmless, json_line, printable


class Grid(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    kinds: Mapping[str, str] = {}
    """Types of columns in arrow, such as `float64`, where they are known even if a column is empty."""

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def distinct(columns: Sequence[str]) -> list[str]:
    """Return unique names: SQL may give two columns the same name, of which the second becomes `name_2`."""
    found: list[str] = []
    for name in columns:
        unique, count = name, 1
        while unique in found:
            count += 1
            unique = f"{name}_{count}"
        found.append(unique)
    return found


def plain(value: Any) -> Any:
    """Convert a value of a database to one that every format can hold: a number, text, list, mapping or None. A decimal
    number stays one if a float would lose digits."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _number(value: Decimal) -> int | float | Decimal:
    if not value.is_finite():
        return float(value)
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    return near if Decimal(repr(near)) == value else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


# CSV: RFC 4180 with lines that end in a line feed, UTF-8, numbers in full, empty cells for None.

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(grid: Grid) -> str:
    return "".join(csv_lines(grid.columns, grid.rows))


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield one line at a time, because all may not fit into memory."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for cells in chain([[_text(name) for name in columns]], ([_cell(value) for value in row] for row in rows)):
        writer.writerow(cells)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return (
        str(value) if isinstance(value, int) else repr(value) if isinstance(value, float) else _text(json_line(value))
    )


def _text(value: str) -> str:
    """Return text that spreadsheets do not take for a formula."""
    return harmless(f"'{value}" if value.startswith(_FORMULA) else value)


# JSON: a row is an object. NaN and infinity, which JSON does not have, are null.


def json_text(grid: Grid) -> str:
    """Return one array, with each row on a line of its own."""
    lines = ",\n".join(map(json_line, grid.records()))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def jsonl_text(grid: Grid) -> str:
    return "".join(jsonl_lines(grid.columns, grid.rows))


def jsonl_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield one line at a time, because all may not fit into memory."""
    for row in rows:
        yield f"{json_line(dict(zip(columns, row, strict=True)))}\n"


# Aligned text for people.


def table_text(grid: Grid) -> str:
    """Return an aligned table, with numbers to the right and other cells to the left; a cell is one line."""
    if not grid.columns:
        return ""
    heads = [printable(name) for name in grid.columns]
    cells = [[printable(cell_text(value)) for value in row] for row in grid.rows]
    right = [any(is_number(row[i]) for row in grid.rows) for i in range(len(heads))]
    return align_columns([heads, *cells], right)


def cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    return f"{value:f}" if isinstance(value, Decimal) else json_line(value)
