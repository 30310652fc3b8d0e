"""A row as plain data: the same view for `--json`, for tables and for Python."""

from __future__ import annotations

from typing import Any

import msgspec

from opmark.metrics.roofline import Attained, attained
from opmark.metrics.throughput import rates
from opmark.report.communication import communication_view, traffic
from opmark.report.known import Known as Known
from opmark.report.rows import Key, Row, unit
from opmark.schema import Measurement
from opmark.schema.peaks import Peaks
from opmark.stats import median


def view(row: Row, run_id: str = "", known: Known | None = None, gain: float | None = None) -> dict[str, Any]:
    """Seconds, joules, bytes and flops; nothing is rounded and nothing is left out but the samples."""
    record = row.record
    task, case = record.task, record.task.case
    quantities: dict[str, dict[str, Any]] = {}
    for quantity, cache in row.measured():
        quantities.setdefault(quantity, {})[cache] = _quantity(row, (quantity, cache))
    return {
        "run": run_id,
        "case": case.id,
        "op": case.op,
        "params": case.params,
        "phase": case.phase,
        "wrt": list(case.wrt),
        "tags": list(case.tags),
        "backend": task.backend,
        "implementation": task.implementation,
        "threads": task.settings.threads,
        "effort": task.settings.effort,
        "mode": task.settings.mode,
        "processes": len(row.records),
        "status": record.status,
        "reason": record.reason,
        "view": record.view,
        "called": record.called,
        "notes": list(dict.fromkeys(note for r in row.records for note in r.notes)),
        "headline": list(row.measured()[0]) if row.measured() else None,
        "quantities": quantities,
        "metrics": {**_metrics(row, known or Known()), "gain": gain},
        "cost": msgspec.to_builtins(record.cost),
        "memory": msgspec.to_builtins(record.memory),
        "compilation": _compilation(row),
        "verification": msgspec.to_builtins(record.verification),
        "profiles": msgspec.to_builtins([profile for r in row.records for profile in r.profiles]),
        "environment": record.environment,
        "started": record.started,
        "duration": sum(r.duration for r in row.records),
    }


def _compilation(row: Row) -> dict[str, Any] | None:
    """Its times are medians over the processes; None where nothing was compiled."""
    found = [record.compilation for record in row.records if record.compilation]
    if not found:
        return None
    cached = [one.cached for one in found if one.cached is not None]
    return {
        **msgspec.to_builtins(found[0]),
        "cold": row.compile_time(),
        "cached": median(cached) if cached else None,
    }


def _quantity(row: Row, key: Key) -> dict[str, Any]:
    found = row.measurements(key)
    summary, first = row.summary(key), found[0]
    assert summary is not None
    described = {
        "unit": unit(key),
        "median": summary.median,
        "fastest": summary.fastest,
        "interval": [summary.low, summary.high],
        "coverage": summary.coverage,
        "noise": summary.noise,
        "samples": summary.samples,
        "process_medians": [median(m.samples) for m in found],
        "cycles": summary.cycles,
        "timer": first.timer,
        "calls_per_sample": first.calls,
        "overhead": first.overhead,
        "stop": first.stop,
        "cache_control": first.control,
        "conditions": _conditions(found),
        "check": msgspec.to_builtins(first.check),
        "warnings": msgspec.to_builtins([caution for m, caution in row.cautions() if (m.quantity, m.cache) == key]),
    }
    if first.by_rank:
        described["rank_medians"] = [[median(samples) for samples in m.by_rank] for m in found]
    if first.kernels:
        described["kernels"] = msgspec.to_builtins(first.kernels)
    return described


def _conditions(found: list[Measurement]) -> dict[str, Any]:
    """Over all processes: the range of each sensor, the worst of each counter."""
    readings = [reading for m in found for reading in m.conditions.readings]
    shown: dict[str, Any] = {
        name: _range([getattr(reading, name) for reading in readings]) for name in ("clock", "power", "temperature")
    }
    shown["throttle"] = sorted({reason for reading in readings for reason in reading.throttle})
    shown["throttled_samples"] = sum(len(m.throttled) for m in found)
    for name in ("switches", "load", "others", "steal"):
        known = [value for m in found if (value := getattr(m.conditions, name)) is not None]
        shown[name] = max(known) if known else None
    return shown


def _range(values: list[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else None


def _metrics(row: Row, known: Known) -> dict[str, Any]:
    """Of what communicates, the bandwidth is that of a link: what its buffers take is no rate of anything."""
    found = rates(None if traffic(row) else row.record.cost, row.seconds() or 0.0)
    return {
        "bytes_per_second": found.bytes_per_second,
        "flops_per_second": found.flops_per_second,
        "of_measured_peak": msgspec.to_builtins(of_peak(row, known.measured)),
        "of_datasheet_peak": msgspec.to_builtins(of_peak(row, known.datasheet)),
        **communication_view(row, known),
    }


def of_peak(row: Row, peaks: Peaks | None) -> Attained | None:
    """Of the headline, if that is a time."""
    seconds = None if peaks is None else row.seconds()
    if peaks is None or seconds is None:
        return None
    _, cache = row.measured()[0]
    dtype = str(row.record.task.case.params.get("dtype", ""))
    return attained(row.record.cost, seconds, dtype, peaks, cold=cache == "cold")
