"""Tables in the formats that people and programs read. `format_grid` takes any table; `run_table` has those of a
run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opmark.errors import UnknownName, UserError
from opmark.report.formats.dataframe import parquet_bytes
from opmark.report.formats.grid import Grid, csv_lines, csv_text, json_text, jsonl_lines, jsonl_text, table_text
from opmark.report.formats.markdown import markdown_text

FORMATS: dict[str, Callable[[Grid], str | bytes]] = {
    "table": table_text,
    "md": markdown_text,
    "csv": csv_text,
    "json": json_text,
    "jsonl": jsonl_text,
    "parquet": parquet_bytes,
}
LINES = {"csv": csv_lines, "jsonl": jsonl_lines}
"""Formats that can be written row by row, from the names of the columns and the rows."""
_SUFFIXES = {".txt": "table", ".markdown": "md", ".ndjson": "jsonl", **{f".{name}": name for name in FORMATS}}


_PLAIN = ("",)
"""Suffixes that name no format: none, as of a folder."""


def format_grid(grid: Grid, format: str) -> str | bytes:
    if format not in FORMATS:
        raise UnknownName("format of tables", format, FORMATS)
    return FORMATS[format](grid)


def format_for(requested: str, output: Path | None, default: str = "table") -> str:
    """Return the requested format, or that of the file's suffix, or the default."""
    if requested or output is None:
        return requested or default
    ending = output.suffix.lower()
    if ending not in (*_SUFFIXES, *_PLAIN):
        raise UserError(
            f"{output}: no format is known by the ending `{ending}`", f"{', '.join(_SUFFIXES)}; or name one with -f"
        )
    return _SUFFIXES.get(ending, default)
