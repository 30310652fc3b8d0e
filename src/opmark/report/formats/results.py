"""A run as rows for programs: one for each thing that was measured of a case, on a backend, in a way.

What was not measured has one row too, with its status and its reason. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.interfaces import Results
from opmark.metrics.throughput import rates
from opmark.report.communication import bandwidths_of, traffic
from opmark.report.formats.grid import Grid
from opmark.report.known import Known
from opmark.report.plain import json_line
from opmark.report.rows import Key, Row, rows, unit
from opmark.report.view import of_peak

FACTS = ("machine", "cpu", "gpu", "device", "python", "torch", "opmark", "system")
"""Of the environment that it ran in; all of them are in the view `environments`."""
_NO_WORK = ("host_time",)
"""Times in which the work need not be done: there is no rate in them."""

_TEXT, _WHOLE, _NUMBER, _YES = "string", "int64", "float64", "bool_"

# The columns, in their order, and what each is of; those of the parameters come behind `params`.
COLUMNS = {
    "run": _TEXT, "label": _TEXT, "run_started": _TEXT, "revision": _TEXT, "session": _TEXT,
    "case": _TEXT, "op": _TEXT, "phase": _TEXT, "wrt": _TEXT, "params": _TEXT,
    "backend": _TEXT, "implementation": _TEXT, "threads": _WHOLE, "effort": _TEXT, "mode": _TEXT, "processes": _WHOLE,
    "status": _TEXT, "reason": _TEXT,
    "quantity": _TEXT, "cache": _TEXT, "headline": _YES, "unit": _TEXT,
    "median": _NUMBER, "low": _NUMBER, "high": _NUMBER, "coverage": _NUMBER, "fastest": _NUMBER, "noise": _NUMBER,
    "samples": _WHOLE, "calls": _WHOLE, "cycles": _NUMBER, "timer": _TEXT, "cautions": _TEXT,
    "bytes": _WHOLE, "flops": _NUMBER, "bytes_per_second": _NUMBER, "flops_per_second": _NUMBER,
    "of_peak": _NUMBER, "of_datasheet": _NUMBER, "algorithm_bandwidth": _NUMBER, "bus_bandwidth": _NUMBER,
    "memory_peak": _WHOLE, "compile_time": _NUMBER, "verified": _TEXT,
    "environment": _TEXT, "started": _TEXT, "duration": _NUMBER, **dict.fromkeys(FACTS, _TEXT),
}  # fmt: skip
PARAMS = "params"


def result_rows(results: Results) -> list[dict[str, Any]]:
    """By column; `params` is a mapping here."""
    this = results.run
    of_run = {"run": this.id, "label": this.label, "run_started": this.started, "revision": this.revision,
              "session": this.session}  # fmt: skip
    found: list[dict[str, Any]] = []
    for row in rows(results.records):
        shared = {**of_run, **_who(row), **_record(row, results)}
        each = [_measured(row, key, results) for key in row.measured()]
        for measured in each or [{}]:
            whole = {**shared, **measured}
            found.append({name: whole.get(name) for name in COLUMNS})
    return found


def result_grid(results: Results) -> Grid:
    """With a column for each parameter, behind all of them as JSON."""
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


def _who(row: Row) -> dict[str, Any]:
    task, case = row.record.task, row.record.task.case
    return {
        "case": case.id, "op": case.op, "phase": case.phase, "wrt": ",".join(case.wrt), "params": case.params,
        "backend": task.backend, "implementation": task.implementation, "threads": task.settings.threads,
        "effort": task.settings.effort, "mode": task.settings.mode, "processes": len(row.records),
        "status": row.record.status, "reason": row.record.reason,
    }  # fmt: skip


def _record(row: Row, results: Results) -> dict[str, Any]:
    """What is the same for all that was measured of it."""
    record = row.record
    facts = results.environments.get(record.environment, {})
    cost = record.cost
    return {
        "bytes": cost.bytes_moved if cost else None,
        "flops": None if cost is None or cost.flops is None else float(cost.flops),
        "memory_peak": record.memory.peak if record.memory else None,
        "compile_time": row.compile_time(),
        "verified": record.verification.checked if record.verification else None,
        "environment": record.environment,
        "started": record.started,
        "duration": sum(one.duration for one in row.records),
        **{name: _text(facts.get(name)) for name in FACTS},
    }


def _text(fact: Any) -> str | None:
    return fact if fact is None or isinstance(fact, str) else json_line(fact)


def _measured(row: Row, key: Key, results: Results) -> dict[str, Any]:
    """Of one quantity in one state of the caches."""
    summary = row.summary(key)
    assert summary is not None
    first, headline = row.measurements(key)[0], key == row.measured()[0]
    codes = dict.fromkeys(caution.code for m, caution in row.cautions() if (m.quantity, m.cache) == key)
    found = {
        "quantity": key[0], "cache": key[1], "headline": headline, "unit": unit(key),
        "median": summary.median, "low": summary.low, "high": summary.high, "coverage": summary.coverage,
        "fastest": summary.fastest, "noise": summary.noise, "samples": summary.samples, "calls": first.calls,
        "cycles": summary.cycles, "timer": first.timer, "cautions": ",".join(codes),
    }  # fmt: skip
    return found | _rates(row, key, summary.median) | (_shares(row, results) if headline else {})


def _rates(row: Row, key: Key, median: float) -> dict[str, Any]:
    """A view moves nothing; what crosses a link has the bandwidth of that."""
    if unit(key) != "s" or key[0] in _NO_WORK:
        return {}
    found = rates(None if traffic(row) else row.record.cost, median)
    moved = None if row.record.view else found.bytes_per_second
    return {"bytes_per_second": moved, "flops_per_second": found.flops_per_second}


def _shares(row: Row, results: Results) -> dict[str, Any]:
    known, links = known_of(results).get(row.record.environment, Known()), bandwidths_of(row)
    measured, datasheet = of_peak(row, known.measured), of_peak(row, known.datasheet)
    return {
        "of_peak": measured.share if measured else None,
        "of_datasheet": datasheet.share if datasheet else None,
        "algorithm_bandwidth": links.algorithm,
        "bus_bandwidth": links.bus,
    }


def known_of(results: Results) -> dict[str, Known]:
    """What is known of the chip of each environment."""
    ids: Sequence[str] = [*results.environments]
    return {key: Known(results.peaks.get(key), results.chips.get(key)) for key in ids}
