"""A run as a table: two formats for people, rounded, and four for programs.

Tables for programs have a line for each measured quantity of a row. A row without measurements has one line too, with
its status and its reason. Nothing is rounded there.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from opmark.analysis.load import PERCENTILES
from opmark.analysis.metrics import rates
from opmark.analysis.rows import NO_WORK, MachineFacts, Row, Timing, rows_of_records, split_by_headline
from opmark.plugin import Results
from opmark.report.console.records import cells_of, print_records
from opmark.report.console.side_by_side import print_side_by_side, several_backends
from opmark.report.formats.dataframe import parquet_bytes
from opmark.report.formats.grid import Grid, csv_text, json_text, jsonl_text
from opmark.report.formats.markdown import markdown_text
from opmark.report.text import harmless, json_line

FACTS = ("machine", "cpu", "gpu", "device", "python", "torch", "opmark", "system")
"""Facts of the environment in each line; the view `environments` has all of them."""
_TEXT, _WHOLE, _NUMBER, _YES = "string", "int64", "float64", "bool_"

LOAD_FIGURES = ("requests_per_second", "samples_per_second", "mean", *PERCENTILES)
"""Figures of a load, each with two columns for the ends of its interval; empty where the samples cannot support it."""

# The columns in their order, and their types; a column for each parameter comes behind `params`.
COLUMNS = {
    "run": _TEXT, "label": _TEXT, "run_started": _TEXT, "revision": _TEXT, "session": _TEXT,
    "case": _TEXT, "op": _TEXT, "phase": _TEXT, "wrt": _TEXT, "params": _TEXT,
    "backend": _TEXT, "implementation": _TEXT, "threads": _WHOLE, "effort": _TEXT, "mode": _TEXT, "processes": _WHOLE,
    "status": _TEXT, "reason": _TEXT, "stage": _TEXT,
    "quantity": _TEXT, "cache": _TEXT, "headline": _YES, "unit": _TEXT,
    "median": _NUMBER, "low": _NUMBER, "high": _NUMBER, "coverage": _NUMBER, "fastest": _NUMBER, "noise": _NUMBER,
    "samples": _WHOLE, "calls": _WHOLE, "cycles": _NUMBER, "timer": _TEXT, "cautions": _TEXT,
    "bytes": _WHOLE, "flops": _NUMBER, "bytes_per_second": _NUMBER, "flops_per_second": _NUMBER,
    "of_peak": _NUMBER, "of_datasheet": _NUMBER, "algorithm_bandwidth": _NUMBER, "bus_bandwidth": _NUMBER,
    "items": _TEXT, "items_per_second": _NUMBER, "count": _WHOLE, "original": _NUMBER, "step_share": _NUMBER,
    "clients": _WHOLE, "arrival": _TEXT, "rate": _NUMBER, "requests": _WHOLE, "in_flight": _NUMBER, "late": _NUMBER,
    **{f"{name}{end}": _NUMBER for name in LOAD_FIGURES for end in ("", "_low", "_high")},
    "memory_peak": _WHOLE, "compile_time": _NUMBER, "compile_cached": _NUMBER, "export_time": _NUMBER, "graphs": _WHOLE,
    "coverage_operators": _WHOLE, "coverage_taken": _WHOLE, "coverage_flops": _NUMBER, "fallback": _TEXT,
    "verified": _TEXT,
    "environment": _TEXT, "started": _TEXT, "duration": _NUMBER, **dict.fromkeys(FACTS, _TEXT),
}  # fmt: skip
PARAMS = "params"


def result_rows(results: Results) -> list[dict[str, Any]]:
    """Return the lines by column; `params` is a mapping here."""
    run = results.run
    run_cells = {"run": run.id, "label": run.label, "run_started": run.started, "revision": run.revision,
                 "session": run.session}  # fmt: skip
    found: list[dict[str, Any]] = []
    for row in rows_of_records(results.records, run.id, machines_of(results), named=False):
        shared = run_cells | _row_cells(row, results)
        for own in [_timing_cells(row, timing) for timing in row.timings] or [{}]:
            whole = shared | own
            found.append({name: whole.get(name) for name in COLUMNS})
    return found


def result_grid(results: Results) -> Grid:
    """Return the lines as a table, with a column for all parameters as JSON, and one for each."""
    found = result_rows(results)
    names = list(dict.fromkeys(name for row in found for name in row[PARAMS]))
    place = list(COLUMNS).index(PARAMS) + 1
    columns = [*list(COLUMNS)[:place], *(f"{PARAMS}.{name}" for name in names), *list(COLUMNS)[place:]]
    cells = []
    for row in found:
        params = row[PARAMS]
        values = [json_line(params) if name == PARAMS else row[name] for name in COLUMNS]
        cells.append([*values[:place], *(params.get(name) for name in names), *values[place:]])
    return Grid(columns, cells, COLUMNS)


def _row_cells(row: Row, results: Results) -> dict[str, Any]:
    """Return the cells that are the same for all quantities of a row."""
    environment = results.environments.get(row.environment, {})
    facts = {name: environment.get(name) for name in FACTS}
    op = row.record.task.case.op
    return {
        "case": row.case, "op": op, "phase": row.phase, "wrt": ",".join(row.wrt), "params": row.params,
        "backend": row.backend, "implementation": row.implementation, "threads": row.threads,
        "effort": row.effort, "mode": row.mode, "processes": row.processes, "status": row.status, "reason": row.reason,
        "stage": row.stage or None, "items": row.items or None, **_compile_cells(row), **_settings_of_load(row),
        "count": row.count, "original": row.original,
        "bytes": row.bytes, "flops": None if row.flops is None else float(row.flops),
        "memory_peak": row.memory, "verified": row.verified or None,
        "environment": row.environment, "started": row.started, "duration": row.duration,
        **{name: fact if fact is None or isinstance(fact, str) else json_line(fact) for name, fact in facts.items()},
    }  # fmt: skip


def _settings_of_load(row: Row) -> dict[str, Any]:
    if row.load is None:
        return {}
    load = row.load
    return {"clients": load.clients, "arrival": load.arrival, "rate": load.rate or None, "requests": load.requests}


def _compile_cells(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(row, name) for name in ("compile_time", "compile_cached", "export_time", "graphs")
    }
    if (covered := row.coverage) is not None:
        found |= {
            "coverage_operators": covered.operators, "coverage_taken": covered.taken, "coverage_flops": covered.flops,
            "fallback": json_line(covered.fallback) if covered.fallback else None,
        }  # fmt: skip
    return found


def _timing_cells(row: Row, timing: Timing) -> dict[str, Any]:
    """Return the cells of one quantity in one state of the caches."""
    summary, first = row.summary(timing.key), row.measurements(timing.key)[0]
    assert summary is not None
    found = {
        "quantity": timing.quantity, "cache": timing.cache, "headline": timing is row.headline, "unit": timing.unit,
        "median": summary.median, "low": summary.low, "high": summary.high, "coverage": summary.coverage,
        "fastest": summary.fastest, "noise": summary.noise, "samples": summary.samples, "calls": first.calls,
        "cycles": summary.cycles, "timer": first.timer, "cautions": ",".join(timing.cautions),
    }  # fmt: skip
    if timing.unit == "s" and timing.quantity not in NO_WORK and row.traffic is None and not timing.disturbed:
        work = rates(row.record.cost, summary.median)
        found["bytes_per_second"] = None if row.view else work.bytes_per_second
        found["flops_per_second"] = work.flops_per_second
    if timing is row.headline:
        found |= {
            "of_peak": row.of_peak.share if row.of_peak else None,
            "of_datasheet": row.of_datasheet.share if row.of_datasheet else None,
            "algorithm_bandwidth": row.algorithm_bandwidth,
            "bus_bandwidth": row.bus_bandwidth,
            "items_per_second": row.items_per_second,
            "step_share": row.step_share,
        }
    return found | _load_cells(row)


def _load_cells(row: Row) -> dict[str, Any]:
    """Return the cells of the figures of a load."""
    figures = row.load_figures
    if figures is None:
        return {}
    cells: dict[str, Any] = {"in_flight": figures.in_flight, "late": figures.late}
    for name in LOAD_FIGURES:
        one = figures.percentiles[name] if name in PERCENTILES else getattr(figures, name)
        cells |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
    return cells


def machines_of(results: Results) -> dict[str, MachineFacts]:
    """Return facts about the machine of each environment, by its id."""
    return {key: MachineFacts(results.peaks.get(key), results.chips.get(key)) for key in results.environments}


# Tables for people: rounded, with units and marks for doubtful numbers.

_WIDE = 1000


def table_of(results: Results) -> str:
    """Return the table as `opmark show` prints it into a file."""
    out = io.StringIO()
    console = Console(file=out, width=_WIDE, highlight=False, color_system=None)
    print_table = print_side_by_side if several_backends(results.records) else print_records
    print_table(results.records, console, machines_of(results))
    return harmless(out.getvalue())


def markdown_of(results: Results) -> str:
    """Return a row for each case and backend, in a table for each headline; the last column has the reasons of missing
    and doubtful numbers."""
    parts = split_by_headline(rows_of_records(results.records, results.run.id, machines_of(results)))
    tables = []
    for found in parts or [[]]:
        columns, cells = cells_of(found, several=len(parts) > 1)
        notes = ["; ".join(filter(None, (row.reason, *row.cautions))) for row in found]
        more = ["note"] if any(notes) else []
        lines = [
            [*(str(row.get(name, "")) for name in columns), *([note] if more else [])]
            for row, note in zip(cells, notes, strict=True)
        ]
        tables.append(markdown_text(Grid([*columns, *more], lines)))
    return "\n".join(tables)


# The formats, with the same names as of `opmark query --format`.

SUFFIXES = {"table": "txt"}
"""Suffixes of files that differ from the name of the format."""


@dataclass(frozen=True)
class _Tables:
    name: str
    summary: str
    write: Callable[[Results], str | bytes]

    def files(self, results: Results) -> Mapping[str, str | bytes]:
        return {f"{results.run.id}.{SUFFIXES.get(self.name, self.name)}": self.write(results)}


def _nested_grid(results: Results) -> Grid:
    """Return the lines with parameters as mappings, which JSON can hold."""
    return Grid([*COLUMNS], [[*row.values()] for row in result_rows(results)])


TABLE = _Tables("table", "the table that `opmark show` prints, and the remarks below it", table_of)
MARKDOWN = _Tables("md", "a Markdown table: a row for each case and backend, rounded for people", markdown_of)
CSV = _Tables(
    "csv",
    "a row for each measured quantity, numbers in full, a column for each parameter",
    lambda r: csv_text(result_grid(r)),
)
JSON = _Tables(
    "json",
    "the rows of csv as one JSON array, parameters as they are",
    lambda results: json_text(_nested_grid(results)),
)
JSONL = _Tables(
    "jsonl", "the rows of csv as JSON lines, parameters as they are", lambda results: jsonl_text(_nested_grid(results))
)
PARQUET = _Tables("parquet", "the rows of csv as a Parquet file, by pyarrow", lambda r: parquet_bytes(result_grid(r)))
