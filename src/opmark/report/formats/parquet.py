"""Parquet, by pyarrow, where that is installed."""

from __future__ import annotations

import io
from importlib import import_module

from opmark.report.formats.grid import Grid
from opmark.tabular import to_arrow


def parquet_bytes(grid: Grid) -> bytes:
    """A column's type does not depend on whether anything is in it, where its kind is known."""
    table = to_arrow(grid.records() or [dict.fromkeys(grid.columns)], flat=False)
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    for place, field in enumerate(table.schema):
        if field.name in grid.kinds and field.type != (wanted := getattr(arrow, grid.kinds[field.name])()):
            table = table.set_column(place, field.name, table.column(place).cast(wanted))
    written = io.BytesIO()
    parquet.write_table(table.slice(0, len(grid.rows)), written, compression="zstd")
    return written.getvalue()
