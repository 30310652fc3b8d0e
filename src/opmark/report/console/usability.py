"""Prints which stage each model reached on each backend."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from opmark.analysis.usability import UsabilityRow
from opmark.report.console.table import print_prose, print_rows

HEADS = (
    "model",
    "parameters",
    "backend",
    "exported",
    "compiled",
    "ran",
    "right",
    "coverage",
    "failed in",
    "edits",
    "options",
)
_STYLES = {"yes": "green", "no": "red", "?": "yellow"}


def cells(one: UsabilityRow) -> list[str]:
    """Return the cells of a line. A dash: not needed, or not reached."""
    answers = [answer or "-" for answer in (one.exported, one.compiled, one.ran, one.right)]
    return [
        one.model,
        one.parameters,
        one.backend,
        *answers,
        one.coverage or "-",
        one.stage or "-",
        one.edits or "-",
        one.options,
    ]


def print_usability(found: Sequence[UsabilityRow], console: Console) -> None:
    """Print a line for each model and backend, and the reasons below."""
    lines = [[Text(cell, style=_STYLES.get(cell, "")) for cell in cells(one)] for one in found]
    print_rows(HEADS, lines, console, 3, left=HEADS, optional=[("options",), ("edits",)])
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.reason:
            reasons.setdefault(f"{one.stage}: {one.reason}" if one.stage else one.reason, []).append(
                f"{one.model} on {one.backend}"
            )
    if reasons:
        console.print()
    for reason, names in reasons.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print_prose(f"{names[0]}{more}: {reason}", console)
