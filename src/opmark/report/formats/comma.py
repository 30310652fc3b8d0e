"""CSV: RFC 4180 with lines that end in a line feed, UTF-8, numbers in full, nothing as nothing.

A spreadsheet computes a cell that begins like a formula, whoever wrote it. Such a text has an apostrophe in front,
which spreadsheets take for "this is text". Numbers stay as they are.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

from opmark.report.formats.grid import Grid
from opmark.report.plain import harmless, json_line

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(grid: Grid) -> str:
    return "".join(csv_lines(grid.columns, grid.rows))


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A line at a time: there may be more of them than fit into the memory."""
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
    guarded = f"'{value}" if value.startswith(_FORMULA) else value
    return harmless(guarded)
