"""Markdown: a table as GitHub and most others read it. Nothing that stands in a cell is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from opmark.report.formats.grid import Grid
from opmark.report.formats.text import shown
from opmark.report.plain import printable

_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
"""An underscore between letters is one."""
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown_text(grid: Grid) -> str:
    numeric = [_is_number([row[i] for row in grid.rows]) for i in range(len(grid.columns))]
    rule = _row("---:" if number else "---" for number in numeric)
    body = [_row(escaped(shown(value)) for value in row) for row in grid.rows]
    return "\n".join([_row(map(escaped, grid.columns)), rule, *body]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """As itself, in a table's cell or anywhere else on a line."""
    marked = _MARKUP.sub(lambda found: f"\\{found[0]}", printable(" ".join(text.split("\n"))))
    return "".join(_HTML.get(one, one) for one in marked)


def _is_number(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
