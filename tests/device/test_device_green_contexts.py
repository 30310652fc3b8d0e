"""Green contexts on an NVIDIA GPU: `python -m pytest tests/device`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.api.factors import factors
from opmark.hardware.multiprocessors import multiprocessors
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.runner.selection import select_cases
from opmark.runner.session import run_plan
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Environment, Record, Resources
from opmark.schema.options import MeasureOptions, Selection

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LONG = 300.0
LARGE = {"M": 4096, "N": 4096, "K": 4096, "dtype": "float16"}


def measure(sms: int) -> tuple[Record, dict[str, Any]]:
    options = MeasureOptions(effort="quick", quantity="device_time", cache="warm", processes=1)
    cases = select_cases(Selection(ops="matmul", params=LARGE), 0).cases
    (task,) = make_plan(cases, ["torch-cuda"], settings_for(options), impl=["torch"]).tasks
    task = replace(task, settings=replace(task.settings, resources=Resources(sms=sms)))
    found: list[Environment] = []
    (record,) = run_plan(Plan((task,), ()), WorkerOptions(LONG, keep=found.append), fresh=False)
    return record, found[0].facts if found else {}


def test_a_quarter_of_the_multiprocessors_takes_about_four_times_as_long() -> None:
    total, step = multiprocessors()
    quarter = total // 4 // step * step
    (all_of_them, facts), (fewer, limited) = measure(total), measure(quarter)
    assert [record.status for record in (all_of_them, fewer)] == ["ok", "ok"], (all_of_them.reason, fewer.reason)
    assert (facts["sms"], limited["sms"], limited["gpu_sms"]) == (total, quarter, total)
    assert fewer.verification is not None
    times = [record.measurement("device_time").per_call for record in (all_of_them, fewer)]  # type: ignore[union-attr]
    assert 2.5 < times[1] / times[0] < 6  # type: ignore[operator]


def test_what_the_driver_rounds_is_refused_and_not_measured() -> None:
    total, step = multiprocessors()
    record, _ = measure(total // 4 // step * step + 1)
    assert record.status == "skipped"
    assert "are asked for" in record.reason


def test_a_study_finds_the_effect(tmp_path: Path) -> None:
    total, step = multiprocessors()
    found = factors(
        "matmul", params=LARGE, backend="torch-cuda", factor=[f"sms={step}:{total}"], quantity="device_time",
        effort="quick", db=tmp_path / "store.db",
    )  # fmt: skip
    (effect,) = found.outcomes[0].effects
    assert (effect.name, effect.matters) == ("sms", True)
    assert effect.ratio is not None
    assert effect.ratio > 4
    assert float(effect.best[0]) > total / 2
