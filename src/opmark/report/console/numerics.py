"""Prints errors against the float64 reference: a table for each case, a row for each backend and output."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark.analysis.rows import Row, rows_of_records
from opmark.report.console.table import STYLES, print_lines
from opmark.schema import Numerics, Record
from opmark.units import count_noun

UNKNOWN = "-"
_FIGURES = ("max abs", "mean abs", "max rel", "1-cosine", "max ulp", "NaN", "Inf")
_LEFT = ("backend", "output", "checked", "status")
_WIDTH = 7
"""Least width of a figure, so that the tables of several cases are aligned."""


def print_numerics(records: Sequence[Record], console: Console) -> None:
    """Print the errors of all verified records, also of wrong results. An unknown figure is a dash, never a 0."""
    cases: dict[str, list[Row]] = {}
    for row in rows_of_records(records):
        cases.setdefault(row.case, []).append(row)
    row_lines = {id(row): _lines(row) for found in cases.values() for row in found}
    several = any(cells[1] not in ("", "0") for lines in row_lines.values() for cells in lines)
    columns = ["backend", *(["output"] if several else []), *_FIGURES, "checked", "status"]
    first = max((len(cells[0]) for lines in row_lines.values() for cells in lines), default=0)
    for found in cases.values():
        lines = [cells for row in found for cells in row_lines[id(row)]]
        if lines:
            console.print(
                Text(" ".join(filter(None, (found[0].op, found[0].parameters, found[0].phase_text)))), soft_wrap=True
            )
            print_lines(_table(columns, lines, first), console)
            console.print()
    console.print(Text("against the float64 reference; NaN and Inf: found / expected"))
    without = sum(not lines for lines in row_lines.values())
    if without:
        console.print(
            Text(f"{count_noun(without, 'task')} of {len(row_lines)} without: skipped, failed or not verified")
        )


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]], first: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        width = first if name == "backend" else _WIDTH if name in _FIGURES[:5] else None
        table.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold", min_width=width)
    for who, output, *figures, status in lines:
        names = [who, output] if "output" in columns else [who]
        table.add_row(*map(Text, (*names, *figures)), Text(status, style=STYLES[status]))
    return table


def _lines(row: Row) -> list[list[str]]:
    """Return the lines of a row; processes compute the same, so that those of one are enough."""
    record = row.record
    check = record.verification
    if check is None or check.checked == "none":
        return []
    outputs = [[str(i), *_figures(one)] for i, one in enumerate(check.numerics)]
    if not outputs and check.max_abs_error is not None:  # a gradient without a reference of its own
        compared = [_number(check.max_abs_error), UNKNOWN, _number(check.max_rel_error)]
        outputs = [["along random directions", *compared, *[UNKNOWN] * (len(_FIGURES) - len(compared))]]
    return [[row.place, *cells, check.checked, record.status] for cells in outputs]


def _figures(one: Numerics) -> list[str]:
    return [
        *(_number(value) for value in (one.max_abs, one.mean_abs, one.max_rel)),
        UNKNOWN if one.cosine is None else _number(1 - one.cosine),
        _number(one.max_ulp),
        f"{one.nan} / {one.nan_expected}",
        f"{one.inf} / {one.inf_expected}",
    ]


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else "0" if value == 0 else f"{value:.2g}"
