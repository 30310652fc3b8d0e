"""Lines of PARAM's result file, one per case. Figures that PARAM does not have are under `opmark`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from opmark.analysis.rows import Row, rows_of_records, unit_of
from opmark.exporters.param_specs import NotExpressible, write_case
from opmark.metrics.throughput import rates
from opmark.schema import Case, Measurement, Problem, Record

_MILLI = 1e3
_MEGA = float(1 << 20)
_GIGA = 1e9
_ONE_CALL = "1 sample, so that the spread is unknown; use -i 50"
_ONE_MEAN = "1 sample, the mean of calls back to back, so that the spread is unknown; use --exec-mode discrete"
PHASES = {"forward": "forward", "backward": "backward", "both": "forward_backward"}
"""PARAM's names of phases, as in the labels of its profiler ranges."""
METRICS = ("warmup.time", "warmup.gpu.memory", "measure.time", "measure.gpu.memory")


class Place(NamedTuple):
    """The position of a case in a config: PARAM's op_run_id in two parts."""

    op: str
    id: str
    """Ids of config, build and input, as in `0|0|1_2`."""
    file: str = ""
    """The file of the config, if it is known."""

    @property
    def source(self) -> str:
        """The id with its file, because several configs of a folder may have the same id."""
        return f"{self.file}#{self}" if self.file else str(self)

    def __str__(self) -> str:
        return f"{self.op}|{self.id}"

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", self.id)))


def place_of(source: str) -> Place | None:
    """Parse `FILE#op|config|build|input`; return None for a source of another kind."""
    file, _, name = source.rpartition("#")
    op, *ids = name.rsplit("|", 3)
    return Place(op, "|".join(ids), file) if op and len(ids) == 3 else None


def places_of(record: Record) -> list[Place]:
    """Return all places of a record's case: a config may have the same case several times."""
    return [place for place in map(place_of, record.task.case.sources) if place]


def echo(case: Case) -> dict[str, Any]:
    """Return `config` of a result line, with opmark's parameters for a case that PARAM cannot express."""
    try:
        specs = write_case(case)
    except NotExpressible:
        return {"build": None, "input": {"params": case.params}}
    return {"build": specs.build, "input": specs.input}


def line(
    place: Place, records: Sequence[Record], run_id: str, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the line of one case; `records` are those of its phases, each in one process or several."""
    found = {PHASES[row.record.task.case.phase]: row for row in rows_of_records(records)}
    cases = [row.record.task.case for row in found.values()]
    whole: dict[str, Any] = {
        "op_name": place.op,
        "id": place.id,
        "metric": {phase: metric(row) for phase, row in found.items()} if any(map(_times, found.values())) else {},
        "config": config or echo(next((case for case in cases if case.wrt), cases[0])),
    }
    error = next((_error(phase, row) for phase, row in found.items() if _is_error(phase, row)), None)
    if error:
        whole["error"] = error
    whole["opmark"] = {"run": run_id, **origin(place), **{phase: extra_figures(row) for phase, row in found.items()}}
    return whole


def untimed_line(place: Place, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a case that was not called at all."""
    return {"op_name": place.op, "id": place.id, "metric": {}, "config": config, "opmark": origin(place)}


def origin(place: Place) -> dict[str, Any]:
    """Return the source of a case for `opmark`, if it comes from a file."""
    return {"source": place.source} if place.file else {}


def problem_line(problem: Problem) -> dict[str, Any]:
    """Return the line of a problem of the config: a case by its id, or a place in the file."""
    place = place_of(problem.where.rpartition(": ")[2])
    error = {"status": "not imported", "where": problem.where, "reason": problem.message, "hint": problem.hint}
    return {
        "op_name": place.op if place else _operator_at(problem.where), "id": place.id if place else None,
        "metric": {}, "config": None, "error": error,
    }  # fmt: skip


def _operator_at(where: str) -> str | None:
    """Return the operator in a place as `c.json: $["torch.add"].config[0]`; places in a batch file have none."""
    found = re.search(r': \$\[("(?:[^"\\]|\\.)*")\]', where)
    return str(json.loads(found[1])) if found else None


def metric(row: Row) -> dict[str, list[float]]:
    """Return times in ms and GPU memory in MB, which is 0 on a CPU as in PARAM; `opmark` has the host's."""
    memory = row.record.memory
    device = row.record.task.backend.rpartition("-")[2] not in ("cpu", "null")
    used = memory.peak / _MEGA if memory and device else 0
    found = _times(row)
    warmup = [_MILLI * value for m in found for value in m.warmup_samples]
    times = [_MILLI * value for m in found for value in m.samples]
    return dict(zip(METRICS, (warmup, [used] * len(warmup), times, [used] * len(times)), strict=True))


def _times(row: Row) -> list[Measurement]:
    """Return the measurements of the first quantity that is a time, one per process."""
    key = next((key for key in row.keys if unit_of(key[0]) == "s"), None)
    return row.measurements(key) if key else []


def _is_error(phase: str, row: Row) -> bool:
    """Whether a phase is reported as an error; a backward pass may be skipped because there is no gradient."""
    return row.record.failed or (row.record.status == "skipped" and phase == "forward")


def _error(phase: str, row: Row) -> dict[str, str]:
    return {"status": row.record.status, "phase": phase, "reason": row.record.reason}


def extra_figures(row: Row) -> dict[str, Any]:
    """Return the figures that PARAM does not have."""
    record = row.record
    task = record.task
    found: dict[str, Any] = {"status": record.status, "case": task.case.id, "backend": task.backend}
    if task.implementation:
        found["implementation"] = task.implementation
    if record.reason:
        found["reason"] = record.reason
    if record.notes:
        found["notes"] = list(record.notes)
    if _times(row):
        found |= _figures(row)
    if record.verification:
        found["verified"] = record.verification.checked
    if record.memory:
        found["memory_mb"] = record.memory.peak / _MEGA
    if record.profiles:
        found["profiles"] = msgspec.to_builtins(record.profiles)
    return found


def _figures(row: Row) -> dict[str, Any]:
    measured = _times(row)[0]
    key, cost = (measured.quantity, measured.cache), row.record.cost
    summary = row.summary(key)
    assert summary is not None
    per_second = rates(cost, summary.median)
    return {
        "quantity": measured.quantity,
        "cache": measured.cache,
        "timer": measured.timer,
        "samples": summary.samples,
        "median_ms": _MILLI * summary.median,
        "interval_ms": [_MILLI * summary.low, _MILLI * summary.high] if summary.samples > 1 else None,
        "bytes": cost.bytes_moved if cost else None,
        "flops": cost.flops if cost else None,
        "gb_per_s": _giga(None if row.record.view else per_second.bytes_per_second),
        "gflop_per_s": _giga(per_second.flops_per_second),
        "cautions": list(_cautions(row, summary.samples, measured)),
    }


def _cautions(row: Row, samples: int, measured: Measurement) -> Iterator[str]:
    """Yield cautions, also about a single sample, which is PARAM's default and says nothing about the spread."""
    yield from row.cautions
    if samples == 1:
        yield _ONE_MEAN if measured.quantity == "throughput" else _ONE_CALL


def _giga(rate: float | None) -> float | None:
    return None if rate is None else rate / _GIGA


def text(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
