"""A table of text, by hand: drawing thousands of rows with a library takes longer than everything else together."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ONE_WIDE = re.compile(r"[ -~\u00a0-\u02ff\u2010-\u2027]*").fullmatch
"""Letters, digits, signs such as µ, × and –: each as wide as any other."""


def aligned(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    widths = widths_of(lines)
    found = []
    for line in lines:
        padded = []
        for cell, width, to_the_right in zip(line, widths, right, strict=True):
            blank = " " * (width - _width(cell))
            padded.append(blank + cell if to_the_right else cell + blank)
        found.append("  ".join(padded).rstrip())
    return "\n".join(found) + "\n"


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    """Of the columns."""
    return [max(map(_width, column)) for column in zip(*lines, strict=True)]


def _width(text: str) -> int:
    """On a terminal, where some signs are two wide."""
    if (text.isascii() and text.isprintable()) or _ONE_WIDE(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
