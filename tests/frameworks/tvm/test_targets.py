"""Code for other machines, and tuned operators inside graphs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spaces import configured_task

pytest.importorskip("tvm")

from opmark.errors import UserError
from opmark.frameworks.tvm.operators import SCHEDULED
from opmark.frameworks.tvm.targets import build_for, read_target
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
