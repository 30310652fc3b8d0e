"""A run as a table: two for people, four for programs. The same names as `opmark query --format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opmark.interfaces import Results
from opmark.report.formats.comma import csv_text
from opmark.report.formats.grid import Grid
from opmark.report.formats.json_ import json_text, jsonl_text
from opmark.report.formats.parquet import parquet_bytes
from opmark.report.formats.people import markdown_of, table_of
from opmark.report.formats.results import COLUMNS, result_grid, result_rows

SUFFIXES = {"table": "txt"}
"""Where it is not the name of the format."""


@dataclass(frozen=True)
class _Tables:
    name: str
    summary: str
    write: Callable[[Results], str | bytes]

    def files(self, results: Results) -> Mapping[str, str | bytes]:
        return {f"{results.run.id}.{SUFFIXES.get(self.name, self.name)}": self.write(results)}


def _nested(results: Results) -> Grid:
    """JSON has parameters as they are, and needs no column for each."""
    return Grid([*COLUMNS], [[*row.values()] for row in result_rows(results)])


TABLE = _Tables("table", "the table that `opmark show` prints, and what it says beneath", table_of)
MARKDOWN = _Tables("md", "a Markdown table: a row a case and backend, rounded for people", markdown_of)
CSV = _Tables(
    "csv", "a row for each thing measured, numbers in full, a column a parameter", lambda r: csv_text(result_grid(r))
)
JSON = _Tables(
    "json", "the rows of csv as one JSON array, parameters as they are", lambda results: json_text(_nested(results))
)
JSONL = _Tables(
    "jsonl", "the rows of csv as JSON lines, parameters as they are", lambda results: jsonl_text(_nested(results))
)
PARQUET = _Tables("parquet", "the rows of csv as a Parquet file, by pyarrow", lambda r: parquet_bytes(result_grid(r)))
