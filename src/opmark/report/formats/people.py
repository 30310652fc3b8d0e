"""A run as people read it: rounded, with units, what is doubtful marked."""

from __future__ import annotations

import io

from rich.console import Console

from opmark.analysis.rows import rows_of_records
from opmark.interfaces import Results
from opmark.report.beside import several_backends
from opmark.report.beside_table import print_beside
from opmark.report.console import cells_of, print_records
from opmark.report.formats.grid import Grid
from opmark.report.formats.markdown import markdown_text
from opmark.report.formats.results import machines_of
from opmark.report.plain import harmless

_WIDE = 1000


def table_of(results: Results) -> str:
    """As `opmark show` prints it into a file."""
    out = io.StringIO()
    console = Console(file=out, width=_WIDE, highlight=False, color_system=None)
    print_table = print_beside if several_backends(results.records) else print_records
    print_table(results.records, console, machines_of(results))
    return harmless(out.getvalue())


def markdown_of(results: Results) -> str:
    """A row for each case and backend; why one has no number, or a doubtful one, is in the last column."""
    found = rows_of_records(results.records, results.run.id, machines_of(results))
    columns, cells = cells_of(found)
    notes = ["; ".join(filter(None, (row.reason, *row.cautions))) for row in found]
    more = ["note"] if any(notes) else []
    lines = [
        [*(str(row.get(name, "")) for name in columns), *([note] if more else [])]
        for row, note in zip(cells, notes, strict=True)
    ]
    return markdown_text(Grid([*columns, *more], lines))
