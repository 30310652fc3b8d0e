"""A row as plain data, the same for `--json`, pandas and Python."""

from __future__ import annotations

from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.analysis.ranking import Key
from opmark.analysis.rows import Row, unit_of
from opmark.schema import Caution, Measurement


def row_view(row: Row) -> dict[str, Any]:
    """Return a row of whole records in seconds, joules, bytes and flops, not rounded, without the samples."""
    record, warnings = row.record, row.warnings()
    quantities: dict[str, dict[str, Any]] = {}
    for key in row.keys:
        own = [caution for quantity, caution in warnings if quantity == key]
        quantities.setdefault(key[0], {})[key[1]] = _quantity(row, key, own)
    compiled = [one.compilation for one in row.records if one.compilation]
    times = {"cold": row.compile_time, "cached": row.compile_cached}
    overlap = row.overlap
    return {
        "run": row.run,
        "case": row.case,
        "op": record.task.case.op,
        "params": row.params,
        "phase": row.phase,
        "wrt": list(row.wrt),
        "tags": list(row.tags),
        "backend": row.backend,
        "implementation": row.implementation,
        "threads": row.threads,
        "effort": row.effort,
        "mode": row.mode,
        "processes": row.processes,
        "status": row.status,
        "untried": row.untried,
        "reason": row.reason,
        "stage": row.stage,
        "view": row.view,
        "called": record.called,
        "notes": list(row.notes),
        "headline": list(row.headline.key) if row.headline else None,
        "quantities": quantities,
        "metrics": {
            "bytes_per_second": row.bytes_per_second,
            "flops_per_second": row.flops_per_second,
            "of_measured_peak": msgspec.to_builtins(row.of_peak),
            "of_datasheet_peak": msgspec.to_builtins(row.of_datasheet),
            "algorithm_bandwidth": row.algorithm_bandwidth,
            "bus_bandwidth": row.bus_bandwidth,
            "of_link": msgspec.to_builtins(row.of_link),
            "skew": msgspec.to_builtins(row.skew),
            "overlap": {**msgspec.to_builtins(overlap), "share": overlap.share} if overlap else None,
            "gain": row.gain,
            "items_per_second": row.items_per_second,
            "time_to_first_token": row.time_to_first_token,
            "time_per_token": row.time_per_token,
            "token_cache": row.token_cache,
            "step_share": row.step_share,
        },
        "count": row.count,
        "original": row.original,
        "items": row.items,
        "load": _load(row),
        "cost": msgspec.to_builtins(record.cost),
        "memory": msgspec.to_builtins(record.memory),
        "compilation": {**msgspec.to_builtins(compiled[0]), **times} if compiled else None,
        "verification": msgspec.to_builtins(record.verification),
        "evaluation": {**msgspec.to_builtins(replace(record.evaluation, scores={}))} if record.evaluation else None,
        "profiles": msgspec.to_builtins([profile for one in row.records for profile in one.profiles]),
        "environment": row.environment,
        "started": row.started,
        "duration": row.duration,
    }


def _load(row: Row) -> dict[str, Any] | None:
    """Return the load and its figures; without figures where nothing was measured."""
    if row.load is None:
        return None
    figures = row.load_figures
    return {**msgspec.to_builtins(figures or {}), "load": msgspec.to_builtins(row.load)}


def _quantity(row: Row, key: Key, warnings: list[Caution]) -> dict[str, Any]:
    found = row.measurements(key)
    summary, first = row.summary(key), found[0]
    assert summary is not None
    described = {
        "unit": unit_of(key[0]),
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
        "warnings": msgspec.to_builtins(warnings),
    }
    if first.by_rank:
        described["rank_medians"] = [[median(samples) for samples in m.by_rank] for m in found]
    if first.kernels:
        described["kernels"] = msgspec.to_builtins(first.kernels)
    return described


def _conditions(found: list[Measurement]) -> dict[str, Any]:
    """Return the range of each sensor and the worst value of each counter over all processes."""
    readings = [reading for m in found for reading in m.conditions.readings]
    conditions: dict[str, Any] = {}
    for name in ("clock", "power", "temperature"):
        known = [value for reading in readings if (value := getattr(reading, name)) is not None]
        conditions[name] = [min(known), max(known)] if known else None
    conditions["throttle"] = sorted({reason for reading in readings for reason in reading.throttle})
    conditions["throttled_samples"] = sum(len(m.throttled) for m in found)
    for name in ("switches", "load", "others", "steal"):
        known = [value for m in found if (value := getattr(m.conditions, name)) is not None]
        conditions[name] = max(known) if known else None
    return conditions
