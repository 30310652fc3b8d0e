"""Made-up items for tests of figures, and what every chart has to keep to."""

from __future__ import annotations

import math
import re
from typing import Any

from opmark.analysis.rows import MachineFacts, Row, RunView, Timing
from opmark.schema import Run
from opmark.schema.chart import Axis, Chart

HOSTILE = '<script>alert("1")</script> & \N{RIGHT-TO-LEFT OVERRIDE}\'é'


def timing(median: float | None, low: float | None = None, high: float | None = None, **more: Any) -> Timing:
    given = {"quantity": "latency", "cache": "warm", "unit": "s", "samples": 40, "processes": 1, **more}
    return Timing(median=median, low=low, high=high, **given)


def item(*timings: Timing, **more: Any) -> Row:
    """One of `add` on torch-cpu with the given fields; its name is unique by `n`."""
    n = more.pop("n", 4)
    given: dict[str, Any] = {
        "key": f"key{n}", "run": "r", "case": f"case{n}", "op": "add", "phase": "forward", "params": {"shape": [n]},
        "parameters": str(n), "backend": "torch-cpu", "implementation": "torch", "threads": 2, "processes": 1,
        "effort": "quick", "mode": "", "status": "ok", "reason": "", "environment": "here", "started": "2030",
        "duration": 1.0, **more,
    }  # fmt: skip
    return Row(timings=timings, **{"where": f"{given['backend']} ×{given['threads']}", **given})


def looked(*items: Row, machines: MachineFacts | None = None, facts: dict[str, Any] | None = None) -> RunView:
    run = Run("r", "2030-01-01T00:00:00", "plan", len(items))
    return RunView(run, items, {"here": facts or {"device": "cpu"}}, {"here": machines or MachineFacts()})


def check(chart: Chart) -> Chart:
    """What `schema.chart` asks of every chart."""
    assert re.fullmatch("[A-Za-z0-9-]+", chart.id)
    for _, mark in chart.marks():
        for axis, value in ((chart.x, mark.x), (chart.y, mark.y)):
            _check(axis, value)
        for value in (mark.low, mark.high):
            if value is not None:
                _check(chart.x if chart.kind == "bars" else chart.y, value)
    for rule in chart.rules:
        for value in (rule.at, rule.to):
            if value is not None:
                assert math.isfinite(value)
                assert value > 0 or not (chart.x if rule.across == "x" else chart.y).scale.startswith("log")
    assert all(one.marks for one in chart.series)
    return chart


def _check(axis: Axis, value: float) -> None:
    assert math.isfinite(value), axis
    if axis.scale.startswith("log"):
        assert value > 0, axis
    if axis.scale == "category":
        assert 0 <= value < len(axis.names), axis
