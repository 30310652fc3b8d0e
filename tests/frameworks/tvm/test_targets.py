"""Code for other machines, tuned operators inside graphs, and MetaSchedule."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spaces import configured_task

pytest.importorskip("tvm")

from opmark.errors import UserError
from opmark.frameworks.tvm.operators import METASCHEDULE, SCHEDULED
from opmark.frameworks.tvm.targets import build_for, read_target
from opmark.frameworks.tvm.tuner import best_of_each, read_records, run_metaschedule
from opmark.plugin.registry import operator
from opmark.plugin.space import TUNED_OPERATORS
from opmark.worker.task_runner import TaskRunner

pytestmark = pytest.mark.tuning

MATMUL = {"M": 32, "N": 64, "K": 32}
CONV = {"batch": 1, "in_channels": 8, "image": [16, 16], "out_channels": 16}


@pytest.mark.parametrize(
    ("target", "kind", "part"),
    [
        ("llvm -mtriple=aarch64-linux-gnu", "llvm", "aarch64"),
        ("llvm -mtriple=riscv64-linux-gnu", "llvm", "riscv64"),
        ("opencl -device=mali", "opencl", "__kernel"),
        ("rocm -mcpu=gfx90a", "hip", "amdgcn"),
        ("cuda -arch=sm_90", "cuda", "__global__"),
        ("metal", "metal", "metal_stdlib"),
        ('{"kind": "webgpu"}', "webgpu", "workgroup"),
    ],
)
@pytest.mark.parametrize("op", ["matmul", "gelu"])
def test_code_for_other_machines(op: str, target: str, kind: str, part: str) -> None:
    """`matmul` has a schedule, `gelu` goes through its ONNX graph."""
    code = build_for(target, op, MATMUL if op == "matmul" else {"shape": [64, 64]})
    assert code.kind == kind
    assert part in code.text
    assert code.size > 500


def test_a_part_that_the_package_lacks_is_named() -> None:
    with pytest.raises(UserError, match="no code generator for vulkan"):
        build_for("vulkan", "matmul", MATMUL)


@pytest.mark.parametrize(
    ("target", "message"),
    [("pynq", "removed VTA"), ("sdaccel", "removed VTA"), ("abacus", "no kind `abacus`"), ("llvm O3", "no option"),
     ("{oops", "no JSON"), ("", "no kind"), ("llvm -mcpu='x", "No closing quotation")],
)  # fmt: skip
def test_targets_that_do_not_exist(target: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_target(target)


# Tuned operators inside a graph.


def _entry(op: str, params: dict[str, Any]) -> str:
    params = operator(op).complete(params)
    chosen = SCHEDULED[op].space("cpu", params).default
    return json.dumps([{"op": op, "params": params, "implementation": "schedule", "configuration": chosen}])


@pytest.mark.parametrize("op", ["conv2d", "conv_relu", "conv_bn_relu"])
def test_a_tuned_convolution_is_applied_to_what_it_is_fused_with(op: str, runner: TaskRunner) -> None:
    task = configured_task(op, CONV, "tvm-cpu", "onnx", {TUNED_OPERATORS: _entry("conv2d", CONV)})
    assert runner.run(task).status == "ok"


def test_a_tuned_product_is_applied_to_a_batch_of_one(runner: TaskRunner) -> None:
    batch = {"B": 1, **MATMUL}
    task = configured_task("batched_matmul", batch, "tvm-cpu", "onnx", {TUNED_OPERATORS: _entry("matmul", MATMUL)})
    assert runner.run(task).status == "ok"


def test_tuned_operators_that_fit_nothing_are_refused(runner: TaskRunner) -> None:
    task = configured_task("conv2d", CONV, "tvm-cpu", "onnx", {TUNED_OPERATORS: _entry("matmul", MATMUL)})
    record = runner.run(task)
    assert record.status == "skipped"
    assert "no kernel of this graph takes a tuned schedule" in record.reason


# MetaSchedule.


@pytest.mark.slow
def test_metaschedule_tunes_in_a_child_and_its_records_are_applied(tmp_path: Path, runner: TaskRunner) -> None:
    params = operator("matmul").complete(MATMUL)
    order = {
        "op": "matmul", "params": params, "folder": str(tmp_path), "threads": 1, "trials": 4,
        "strategy": "replay-trace", "seed": 1,
    }  # fmt: skip
    assert run_metaschedule(order, seconds=200) == ""
    records = best_of_each(read_records(tmp_path))
    assert len(records) == 1
    text = json.dumps(records)
    assert runner.run(configured_task("matmul", MATMUL, "tvm-cpu", "onnx", {METASCHEDULE: text})).status == "ok"
    fused = {"M": 32, "N": 64, "K": 32}
    other = runner.run(configured_task("matmul", {**fused, "M": 16}, "tvm-cpu", "onnx", {METASCHEDULE: text}))
    assert "no kernel of this graph" in other.reason


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    order = {"op": "matmul", "params": dict(MATMUL), "folder": str(tmp_path), "threads": 1, "trials": 1000}
    assert "stopped after 1 s" in run_metaschedule(order, seconds=1)


PROGRAM = """
import sys
from opmark.frameworks.tvm.tuner import run_metaschedule
sizes = {"M": 32, "N": 64, "K": 32, "dtype": "float32"}
order = {"op": "matmul", "params": sizes, "folder": sys.argv[1], "threads": 1, "trials": 1000}
run_metaschedule(order, 600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of its parent's end")
def test_the_child_ends_with_an_opmark_that_is_killed(
    tmp_path: Path, wait_for: Callable[..., None], alive: Callable[[int], bool]
) -> None:
    """It would go on for minutes, on the cores of the command that is started again."""
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    wait_for((tmp_path / "database_workload.json").exists, "the child to begin", 120)
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.wait()
    wait_for(lambda: not alive(int(child)), "the child to end", 20)


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "database_workload.json").write_text('["hash", "module"]\n')
    lines = ["[0,[[[],[]],[0.002],{},[]]]", "[0,[[[],[]],[0.001],{},[]]]", "[0,[[[],[]],[1e10],{},[]]]", "[0,[[["]
    (tmp_path / "database_tuning_record.json").write_text("\n".join(lines))
    found = read_records(tmp_path)
    assert [one["record"][1] for one in found] == [[0.001], [0.002]]
    assert best_of_each(found) == found[:1]
    assert read_records(tmp_path / "nowhere") == []


def test_the_child_fails_with_a_reason(tmp_path: Path) -> None:
    order = {"op": "no_such_operator", "params": {}, "folder": str(tmp_path), "threads": 1, "trials": 1}
    assert "no_such_operator" in run_metaschedule(order, seconds=100)
    assert not any(tmp_path.iterdir())
