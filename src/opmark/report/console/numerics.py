"""Prints errors against the float64 reference: a table for each case, a row for each backend and output."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark.analysis.accuracy import output_accuracies
from opmark.analysis.rows import Row, rows_of_records
from opmark.report.console.table import STYLES, histogram_line, print_lines, print_prose
from opmark.schema import Numerics, Record
from opmark.schema.record import HISTOGRAM_DECADES
from opmark.units import count_noun

UNKNOWN = "-"
_FIGURES = ("max abs", "mean abs", "RMSE", "max rel", "1-cosine", "max ulp", "NaN", "Inf")
_JUDGED = ("errors", "bound", "verdict")
"""Columns that outputs have of which each has a bound, as those of models."""
_LEFT = ("backend", "output", "errors", "bound", "verdict", "checked", "status")
_WIDTH = 7
"""Least width of a figure, so that the tables of several cases are aligned."""


def print_numerics(records: Sequence[Record], console: Console) -> None:
    """Print the errors of all verified records, also of wrong results. An unknown figure is a dash, never a 0."""
    cases: dict[str, list[Row]] = {}
    for row in rows_of_records(records):
        cases.setdefault(row.case, []).append(row)
    judged = any(check.bounds for record in records if (check := record.verification))
    row_lines = {
        id(row): _lines(row, console.encoding, judged=judged) for found in cases.values() for row in found
    }  # fmt: skip
    several = any(cells[1] not in ("", "0") for lines in row_lines.values() for cells in lines)
    columns = [
        "backend", *(["output"] if several else []), *_FIGURES, *(_JUDGED if judged else ()), "checked", "status"
    ]  # fmt: skip
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
    if judged:
        least, most = HISTOGRAM_DECADES
        print_prose(
            f"errors: number of elements by decade of their error, 1e{least} to 1e{most} of the root mean square (rms) "
            "of the reference; bound: an output may be off by so much of it",
            console,
        )
    without = sum(not lines for lines in row_lines.values())
    if without:
        console.print(
            Text(f"{count_noun(without, 'task')} of {len(row_lines)} without: skipped, failed or not verified")
        )


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]], first: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        width = first if name == "backend" else _WIDTH if name in _FIGURES[:6] else None
        table.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold", min_width=width)
    for who, output, *figures, status in lines:
        names = [who, output] if "output" in columns else [who]
        table.add_row(*map(Text, (*names, *figures)), Text(status, style=STYLES[status]))
    return table


def _lines(row: Row, encoding: str, *, judged: bool) -> list[list[str]]:
    """Return the lines of a row; processes compute the same, so that those of one are enough."""
    record = row.record
    check = record.verification
    if check is None or (check.checked == "none" and not check.numerics):
        return []
    outputs = []
    for name, one, bound, verdict in output_accuracies(record):
        more = [histogram_line(one.histogram, encoding), bound, verdict or UNKNOWN] if judged else []
        outputs.append([name, *_figures(one), *more])
    if not outputs and check.max_abs_error is not None:  # a gradient without a reference of its own
        compared = [_number(check.max_abs_error), UNKNOWN, UNKNOWN, _number(check.max_rel_error)]
        rest = len(_FIGURES) + (len(_JUDGED) if judged else 0) - len(compared)
        outputs = [["along random directions", *compared, *[UNKNOWN] * rest]]
    return [[row.place, *cells, check.checked, record.status] for cells in outputs]


def _figures(one: Numerics) -> list[str]:
    return [
        *(_number(value) for value in (one.max_abs, one.mean_abs, one.rmse, one.max_rel)),
        UNKNOWN if one.cosine is None else _number(1 - one.cosine),
        _number(one.max_ulp),
        f"{one.nan} / {one.nan_expected}",
        f"{one.inf} / {one.inf_expected}",
    ]


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else "0" if value == 0 else f"{value:.2g}"
