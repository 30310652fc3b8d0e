"""Markdown: a table as GitHub and most others read it. Nothing that stands in a cell is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from opmark.report.formats.grid import Grid, is_number
from opmark.report.formats.text import shown
from opmark.report.plain import printable

_MARKUP = re.compile(r"[\\`*\[\]|~#]|(?<![^\W_])_|_(?![^\W_])")
"""An underscore between letters is one."""
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "<span>$</span>"}
"""The last is how GitHub wants a dollar that begins no formula."""
_LIVE = re.compile(r"@(?=\w)|#(?=\w)|\bGH-(?=\d)|\bwww(?=\.)|:(?=//)|\b(?:mailto|xmpp):", re.IGNORECASE)
"""What a pull request turns into a mention of people, a reference or a link; a backslash does not stop it."""
_UNSEEN = "&#8203;"
"""A space without width, behind which the rest is only text."""


def markdown_text(grid: Grid) -> str:
    numeric = [_is_number([row[i] for row in grid.rows]) for i in range(len(grid.columns))]
    rule = _row("---:" if number else "---" for number in numeric)
    body = [_row(escaped(shown(value)) for value in row) for row in grid.rows]
    return "\n".join([_row(map(escaped, grid.columns)), rule, *body]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """As itself, in a table's cell or anywhere else on a line: neither markup, nor a mention, a reference, a link."""
    parts = _LIVE.split(line := printable(" ".join(text.split())))
    live = [found[0] for found in _LIVE.finditer(line)]
    dead = [_escaped(part + end) for part, end in zip(parts, [*live, ""], strict=True)]
    return _UNSEEN.join(dead)


def _escaped(text: str) -> str:
    marked = _MARKUP.sub(lambda found: f"\\{found[0]}", text)
    return "".join(_HTML.get(one, one) for one in marked)


def _is_number(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(map(is_number, known))
