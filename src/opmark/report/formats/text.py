"""A table of text, by hand: drawing thousands of rows with a library takes longer than everything else together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from opmark.report.formats.grid import Grid
from opmark.report.plain import json_line, printable

_ONE_WIDE = re.compile(r"[ -~\u00a0-\u02ff\u2010-\u2027]*").fullmatch
"""Letters, digits, signs such as µ, × and –: each as wide as any other."""


def table_text(grid: Grid) -> str:
    """Numbers to the right, all else to the left; a cell is one line."""
    if not grid.columns:
        return ""
    heads = [printable(name) for name in grid.columns]
    cells = [[printable(shown(value)) for value in row] for row in grid.rows]
    right = [any(_is_number(row[i]) for row in grid.rows) for i in range(len(heads))]
    return aligned([heads, *cells], right)


def aligned(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    found = []
    for line in lines:
        padded = []
        for cell, width, to_the_right in zip(line, widths, right, strict=True):
            blank = " " * (width - _width(cell))
            padded.append(blank + cell if to_the_right else cell + blank)
        found.append("  ".join(padded).rstrip())
    return "\n".join(found) + "\n"


def _width(text: str) -> int:
    """On a terminal, where some signs are two wide."""
    if (text.isascii() and text.isprintable()) or _ONE_WIDE(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    return json_line(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
