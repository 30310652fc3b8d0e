"""A table of text, by hand: drawing thousands of rows with a library takes longer than everything else together."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ONE_WIDE = re.compile(r"[ -~\u00a0-\u02ff\u2010-\u2027\u2581-\u2588]*").fullmatch
"""Letters, digits, signs such as µ, × and –, the bars of sparklines: each as wide as any other."""


def aligned(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Lines of text with their columns beneath each other. `right`: whether a column is set to the right."""
    return "".join(f"{'  '.join(line).rstrip()}\n" for line in aligned_cells(lines, right))


def aligned_cells(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> list[Sequence[str]]:
    """The cells of the lines, each as wide as its column."""
    columns = [_padded(*column) for column in zip(zip(*lines, strict=True), right, strict=True)]
    return list(zip(*columns, strict=True))


def _padded(column: Sequence[str], to_the_right: bool) -> list[str]:
    widths = list(map(_width, column))
    most = max(widths)
    blanks = (" " * (most - width) for width in widths)
    cells = zip(blanks, column, strict=True)
    return [blank + cell if to_the_right else cell + blank for blank, cell in cells]


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column."""
    return [max(map(_width, column)) for column in zip(*lines, strict=True)]


def _width(text: str) -> int:
    """Width on a terminal, where some signs are two wide."""
    if (text.isascii() and text.isprintable()) or _ONE_WIDE(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
