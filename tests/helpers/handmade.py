"""Items by hand, for exact numbers: what a page gets, without a store."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from opmark.analysis.metrics import PeakShare
from opmark.analysis.rows import MachineFacts, Row, RunView, Timing
from opmark.schema import Run
from opmark.schema.chart import Axis, Chart
from opmark.schema.machine import Level, Peaks

RUN = Run("r", "2030-01-01T00:00:00.000+00:00", "p", 1)
GPU_FACTS = {"gpu": "Chip G", "device": "cuda"}
CPU_FACTS = {"cpu": "Chip C", "device": "cpu", "threads": 4}
MEASURED = Peaks("Chip G", "calibrate", {"float32": 1e12, "float16": 8e12},
                 [Level("L2", 4e11, 1 << 20), Level("memory", 1e11)])  # fmt: skip
SHEET = Peaks("Chip G", "sheet", {"float32": 2e12}, [Level("L2", None, 1 << 20), Level("memory", 2e11)])


def timing(median: float | None, quantity: str = "latency", cache: Any = "warm", unit: str = "s", **own: Any) -> Timing:
    spread = {"low": median * 0.8, "high": median * 1.25} if median else {"low": None, "high": None}
    return Timing(quantity, cache, unit, median, **{**spread, "samples": 40, "processes": 1, **own})


def item(op: str = "add", number: int = 0, *timings: Timing, backend: str = "torch-cpu", **own: Any) -> Row:
    """Number `number` of its operator: it has a case and a key of its own."""
    params = own.pop("params", {"shape": [1 << number], "dtype": "float32"})
    case = own.pop("case", f"{op}-{sorted(params.items())}")
    fields: dict[str, Any] = {
        "key": f"{op}-{number}-{backend}-{own.get('threads', 4)}", "run": "r", "case": case, "op": op,
        "phase": "forward", "params": params, "parameters": f"n={number}", "backend": backend,
        "implementation": "", "where": f"{backend} ×4", "threads": 4, "processes": 1,
        "effort": "standard", "mode": "", "status": "ok", "reason": "", "timings": timings or (timing(1e-3),),
        "environment": "cpu", "started": "", "duration": 1.0, "bytes": 1000, "flops": 500,
    }  # fmt: skip
    return Row(**{**fields, **own})


def failed(op: str, number: int, backend: str, status: Any = "error", **own: Any) -> Row:
    made = item(op, number, backend=backend, status=status, reason="<b>no</b>", flops=None, bytes=None, **own)
    return replace(made, timings=(), environment=own.get("environment", ""))


def looked(*items: Row, measured: Peaks | None = None, sheet: Peaks | None = None) -> RunView:
    """What ran on `gpu` or `cpu`; the ceilings are the GPU's."""
    machines = {"gpu": MachineFacts(measured, sheet), "cpu": MachineFacts()}
    return RunView(RUN, items, {"gpu": GPU_FACTS, "cpu": CPU_FACTS}, machines, len(items))


def share(value: float) -> PeakShare:
    return PeakShare(value, "memory")


def sound(charts: list[Chart]) -> None:
    """What every chart promises."""
    ids = [chart.id for chart in charts]
    assert len(set(ids)) == len(ids)
    for chart in charts:
        assert chart.id
        assert all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in chart.id)
        assert chart.title
        assert chart.about
        names = [series.name for series in chart.series]
        assert len(set(names)) == len(names)
        for series, mark in chart.marks():
            _fits(mark.x, chart.x)
            _fits(mark.y, chart.y)
            upon = chart.x if series.shape == "bars" else chart.y
            for end in (mark.low, mark.high):
                if end is not None:
                    _fits(end, upon)
            assert mark.value is None or math.isfinite(mark.value)


def _fits(value: float, axis: Axis) -> None:
    assert math.isfinite(value)
    assert value > 0 or axis.scale not in ("log", "log2")
    assert axis.scale != "category" or value in range(len(axis.names))
