"""A record as plain data: the same view for `--json`, for tables and for Python."""

from __future__ import annotations

from typing import Any

import msgspec

from opmark.metrics.latency import summarize
from opmark.metrics.throughput import rates
from opmark.schema import Measurement, Record


def view(record: Record, run_id: str = "") -> dict[str, Any]:
    """Seconds, bytes and flops; nothing is rounded and nothing is left out but the samples."""
    task, case = record.task, record.task.case
    return {
        "run": run_id,
        "case": case.id,
        "op": case.op,
        "params": case.params,
        "phase": case.phase,
        "tags": list(case.tags),
        "backend": task.backend,
        "implementation": task.implementation,
        "threads": task.settings.threads,
        "effort": task.settings.effort,
        "status": record.status,
        "reason": record.reason,
        "quantities": {m.quantity: _quantity(m) for m in record.measurements},
        "metrics": _metrics(record),
        "cost": msgspec.to_builtins(record.cost),
        "memory": msgspec.to_builtins(record.memory),
        "verification": msgspec.to_builtins(record.verification),
        "environment": record.environment,
        "started": record.started,
        "duration": record.duration,
    }


def _quantity(measurement: Measurement) -> dict[str, Any]:
    summary = summarize(measurement)
    return {
        "median": summary.median,
        "fastest": min(measurement.samples),
        "interval": [summary.low, summary.high],
        "coverage": summary.coverage,
        "noise": summary.noise,
        "samples": summary.samples,
        "cache": measurement.cache,
        "timer": measurement.timer,
        "calls_per_sample": measurement.calls,
        "overhead": measurement.overhead,
        "stop": measurement.stop,
        "warnings": msgspec.to_builtins(measurement.cautions),
    }


def _metrics(record: Record) -> dict[str, float | None]:
    measurement = record.measurement()
    found = rates(record.cost, summarize(measurement).median) if measurement else rates(None, 0.0)
    return {"bytes_per_second": found.bytes_per_second, "flops_per_second": found.flops_per_second}
