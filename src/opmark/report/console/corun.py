"""Prints operators that ran together: slowdowns, makespan against one after the other, and what is doubtful."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from opmark.analysis.corun import slowdown_matrix
from opmark.report.console.table import STYLES, print_prose, print_rows
from opmark.schema.corun import CorunMember, CorunRatio, CorunResult
from opmark.units import seconds, significant

WORDS = {"faster": "faster together", "slower": "slower together", "same": "the same", "undecided": "undecided"}
"""What a verdict on the makespan means."""


def print_corun(results: Sequence[CorunResult], notes: Sequence[str], console: Console) -> None:
    """Print a matrix of slowdowns, then a line for each company, and remarks."""
    members = list(dict.fromkeys(_names(result.members) for result in results if len(result.members) == 2))
    rows: list[list[str | Text]] = [
        [one.name, one.where, ", ".join(_others(result, place)), _time(one.alone), _time(one.beside),
         ratio_text(one.slowdown), one.bound, Text(one.status, style=STYLES[one.status])]
        for result in results
        for place, one in enumerate(result.members)
    ]  # fmt: skip
    columns = ("operator", "on", "beside", "alone", "beside it", "slowdown", "bound", "status")
    print_rows(columns, rows, console, 3, left=("bound", "status"), optional=[("bound",), ("alone", "beside it")])
    if len(members) > 1:
        console.print()
        print_matrix(results, console)
    console.print()
    rows = [
        [" and ".join(_names(result.members)), _time(result.makespan), _time(result.sequence),
         ratio_text(result.together), _number(result.efficiency), _number(result.fairness),
         WORDS[result.together.verdict] if result.together else "-"]
        for result in results
    ]  # fmt: skip
    heads = ("together", "makespan", "in sequence", "ratio", "efficiency", "fairness", "verdict")
    print_rows(heads, rows, console, 1, left=("verdict",), optional=[("fairness",), ("efficiency",)])
    said: dict[str, None] = {}
    for result in results:
        for one in result.members:
            if one.reason:
                said[f"{one.name}: {one.reason}"] = None
        said |= dict.fromkeys(result.notes)
    for line in (*said, *notes):
        print_prose(f"- {line}", console)


def print_matrix(results: Sequence[CorunResult], console: Console) -> None:
    """Print how much slower the operator of a line is beside the one of a column."""
    names, cells = slowdown_matrix(results)
    rows = [[name, *(ratio_text(cells.get((name, other))) for other in names)] for name in names]
    print_rows(("slower by, beside", *names), rows, console, 1)


def _names(members: Sequence[CorunMember]) -> tuple[str, ...]:
    return tuple(one.name for one in members)


def _others(result: CorunResult, place: int) -> list[str]:
    return [one.name for index, one in enumerate(result.members) if index != place]


def ratio_text(found: CorunRatio | None) -> str:
    """Return a ratio with its interval; `-` where it is not known."""
    if found is None:
        return "-"
    value = f"{significant(found.ratio)}x"
    if found.low is None or found.high is None:
        return value
    return f"{value} ({significant(found.low)}–{significant(found.high)})"


def _time(value: float | None) -> str:
    return "-" if value is None else seconds(value)


def _number(value: float | None) -> str:
    return "-" if value is None else significant(value)
