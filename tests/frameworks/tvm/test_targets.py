"""Code for other machines, boards through RPC, and tuned operators inside graphs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from spaces import configured_task

pytest.importorskip("tvm")

from opmark.errors import UserError, WrongResult
from opmark.frameworks.tvm.operators import SCHEDULED
from opmark.frameworks.tvm.remote import Board, _compare, time_model, time_operator
from opmark.frameworks.tvm.targets import build_for, operator_graph, read_target
from opmark.plugin.registry import operator
from opmark.plugin.space import TUNED_OPERATORS
from opmark.worker.task_runner import TaskRunner

pytestmark = pytest.mark.tuning
LEAVES_FILES_OPEN = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""TVM's client for boards does."""

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


# Boards.


@pytest.fixture
def serve(start_process: Callable[..., subprocess.Popen[str]]) -> Callable[..., int]:
    """serve("rpc_server", ...): starts a program of TVM and returns its port, once somebody answers there."""

    def start(program: str, *options: str) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ends = ("--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1))
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        start_process(sys.executable, "-m", f"tvm.exec.{program}", *ends, *options, **silent)
        for _ in range(240):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.5)
            else:
                return port
        pytest.fail(f"{program} does not answer")

    return start


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # TVM's client leaves files open
def test_a_board_times_operators_and_models(serve: Callable[..., int]) -> None:
    board = Board("127.0.0.1", serve("rpc_server"))
    scheduled = time_operator(board, "llvm", "matmul", MATMUL, repeat=3, min_repeat_ms=1)
    assert scheduled.checked
    assert len(scheduled.seconds) == 3
    assert 0 < scheduled.median < 1
    imported = time_operator(board, "llvm", "gelu", {"shape": [64, 64]}, repeat=3, min_repeat_ms=1)
    assert 0 < imported.max_error < 1e-4
    several = time_operator(board, "llvm", "topk", {"shape": [16, 64], "k": 4}, repeat=2, min_repeat_ms=1)
    assert several.checked  # its two outputs are not compared as they are
    model = operator_graph("matmul", operator("matmul").complete(MATMUL))
    inputs = {"a": np.ones((32, 32), "float32"), "b": np.ones((32, 64), "float32")}
    assert len(time_model(board, "llvm", model, inputs, repeat=2, min_repeat_ms=1).seconds) == 2


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # TVM's client leaves files open
def test_a_tracker_knows_boards_by_a_key(serve: Callable[..., int]) -> None:
    pytest.importorskip("tornado")
    tracker = serve("rpc_tracker")
    serve("rpc_server", "--tracker", f"127.0.0.1:{tracker}", "--key", "box")
    found = time_operator(Board("127.0.0.1", tracker, "box"), "llvm", "matmul", MATMUL, repeat=2, min_repeat_ms=1)
    assert found.checked


@pytest.mark.parametrize(
    ("outputs", "message"),
    [([np.nan * np.ones((2, 2))], "wrong in 4 of 4"), ([], "returns 0 outputs"), ([np.zeros((2, 2))], "4 of 4")],
)
def test_what_a_board_computes_is_compared_with_the_reference(outputs: list[Any], message: str) -> None:
    inputs = {"x": np.ones((2, 2), "float32")}
    params = operator("exp").complete({"shape": [2, 2]})
    assert _compare(operator("exp"), params, inputs, [np.full((2, 2), np.e)]) < 1e-6
    with pytest.raises(WrongResult, match=message):
        _compare(operator("exp"), params, inputs, outputs)


def test_nobody_at_home() -> None:
    with pytest.raises(UserError, match="no RPC server of TVM answers at"):
        Board("127.0.0.1", 1).connect()


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
