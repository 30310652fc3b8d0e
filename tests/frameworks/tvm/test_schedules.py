"""TVM schedules: configurations drawn at random are verified like any implementation, and compiled for a GPU unseen."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from spaces import configured_task, small_cases

pytest.importorskip("tvm")

from opmark.frameworks.tvm.operators import SCHEDULED
from opmark.frameworks.tvm.targets import build_for
from opmark.worker.task_runner import TaskRunner

pytestmark = pytest.mark.tuning

CASES = [*small_cases()]
DRAWN = 3


@pytest.mark.parametrize(("name", "params"), CASES)
def test_configurations_compute_what_the_reference_does(name: str, params: dict[str, Any], runner: TaskRunner) -> None:
    space = SCHEDULED[name].space("cpu", params)
    for index in {space.index(space.default), *space.draw(Random(name), DRAWN)}:
        record = runner.run(configured_task(name, params, "tvm-cpu", "schedule", space.at(index)))
        assert (record.status, record.reason) == ("ok", ""), space.at(index)


@pytest.mark.parametrize(("name", "params"), CASES)
def test_configurations_become_cuda(name: str, params: dict[str, Any]) -> None:
    space = SCHEDULED[name].space("cuda", params)
    for index in {space.index(space.default), *space.draw(Random(name), DRAWN)}:
        code = build_for("cuda -arch=sm_90", name, params, space.at(index))
        assert code.kind == "cuda"
        assert "__global__" in code.text
        assert "threadIdx.x" in code.text


def test_knobs_show_in_the_code() -> None:
    params = {"M": 64, "N": 64, "K": 64}
    shared = build_for("cuda -arch=sm_90", "matmul", params, {"shared": True}).text
    direct = build_for("cuda -arch=sm_90", "matmul", params, {"shared": False}).text
    assert "__shared__" in shared
    assert "__shared__" not in direct
    vectors = build_for("llvm -mcpu=skylake-avx512", "matmul", params, {"vectorize": True}).text
    scalars = build_for("llvm -mcpu=skylake-avx512", "matmul", params, {"vectorize": False, "pack": False}).text
    assert "<32 x float>" in vectors
    assert "<32 x float>" not in scalars


def test_a_configuration_that_breaks_a_rule_is_a_record_with_the_rule(runner: TaskRunner) -> None:
    params = {"M": 64, "N": 128, "K": 64}
    wrong = {"tile_m": (2, 32), "tile_k": (1, 64), "unroll": "rows+k"}
    record = runner.run(configured_task("matmul", params, "tvm-cpu", "schedule", wrong))
    assert record.status == "error"
    assert "write out at most" in record.reason
    unknown = runner.run(configured_task("matmul", params, "tvm-cpu", "schedule", {"tile_z": 3}))
    assert unknown.status == "skipped"
    assert "tile_z" in unknown.reason
