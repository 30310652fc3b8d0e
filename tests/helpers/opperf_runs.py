"""Runs of opperf's functions without a worker: every task has a fixed time and the given cautions."""

from __future__ import annotations

from typing import Any

import pytest

from opmark.api.result import Result
from opmark.api.run import plan as api_plan
from opmark.runner.session import new_run
from opmark.schema import Caution, Measurement, Record
from opmark.schema.record import Memory
from opmark.store.location import store_path

SECONDS = 2e-3
PREEMPTED = Caution("preempted", "the core was taken away 9 times in 2 samples", "use fewer --threads")


def without_workers(
    monkeypatch: pytest.MonkeyPatch, *cautions: Caution, memory: Memory | None = None, error: str = ""
) -> list[dict[str, Any]]:
    """Replace `opmark.run`, and return a list of the options that it is called with; `error`: why every task fails."""
    asked: list[dict[str, Any]] = []
    plan = api_plan

    def run(*, timeout: float, label: str, db: Any = None, **more: Any) -> Result:
        asked.append({"db": db, **more})
        told = {key: value for key, value in more.items() if key not in ("on_start", "on_record", "say", "resume")}
        whole = plan(**told)
        times = Measurement("latency", "warm", "host", [SECONDS] * 2, 1, 0.0, 1, 0.0, "count", cautions)
        made = [Record(task, "error", error) if error else
                Record(task, "ok", measurements=(times,), memory=memory) for task in whole.tasks]  # fmt: skip
        return Result(new_run(whole, label), [*made, *whole.skipped], store_path(db))

    monkeypatch.setattr("opmark.interop.opperf.measurement.run", run)
    return asked
