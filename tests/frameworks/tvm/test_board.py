"""The backend of a board, by an RPC server of TVM on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from spaces import configured_task

pytest.importorskip("tvm")

from opmark.errors import UserError
from opmark.frameworks.tvm.board import BoardBackend, connect
from opmark.plugin import Configuration
from opmark.plugin.registry import backend
from opmark.schema import Record, Task
from opmark.worker.task_runner import TaskRunner

pytestmark = [
    pytest.mark.tuning,
    # TVM's client leaves files open.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

MATMUL = {"M": 32, "N": 64, "K": 32}
INFO = backend("tvm-board")

Serve = Callable[..., tuple[int, subprocess.Popen[str]]]


@pytest.fixture
def serve(start_process: Callable[..., subprocess.Popen[str]]) -> Serve:
    """serve("rpc_server", ...): starts a program of TVM, and returns its port and itself once somebody answers."""

    def start(program: str, *options: str) -> tuple[int, subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ends = ("--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1))
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = start_process(sys.executable, "-m", f"tvm.exec.{program}", *ends, *options, **silent)
        for _ in range(240):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.5)
            else:
                return port, process
        pytest.fail(f"{program} does not answer")

    return start


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Callable[..., BoardBackend]:
    """board(port): the backend of a board at this port of this machine."""

    def make(port: int, key: str = "", target: str = "llvm") -> BoardBackend:
        monkeypatch.setenv("OPMARK_BOARD", f"127.0.0.1:{port}{key}")
        monkeypatch.setenv("OPMARK_BOARD_TARGET", target)
        made = INFO.load(threads=1)
        assert isinstance(made, BoardBackend)
        return made

    return make


def measured(op: str, params: dict[str, Any], impl: str = "onnx", configuration: Configuration | None = None) -> Task:
    task = configured_task(op, params, INFO.name, impl, configuration or {})
    sampling = replace(task.settings.sampling, warmup=1, samples=3)
    return replace(task, settings=replace(task.settings, compile_only=False, sampling=sampling))


def run(live: BoardBackend, task: Task) -> Record:
    """What a worker does with a task, which ends the session with the board."""
    record = TaskRunner(INFO, live).run(task)
    assert live.usable()
    return record


def test_a_board_is_verified_and_timed_by_its_own_clock(serve: Serve, board: Callable[..., BoardBackend]) -> None:
    live = board(serve("rpc_server")[0])
    assert live.why_unavailable() is None
    facts = live.environment()
    assert facts["chip"] == os.environ["OPMARK_BOARD"]
    assert facts["threads"] >= 1
    split = {"tile_m": (8, 4), "tile_n": (4, 16), "tile_k": (8, 4)}
    for task in (
        measured("matmul", MATMUL),
        measured("matmul", MATMUL, "schedule", split),
        measured("topk", {"shape": [16, 64], "k": 4}),  # two outputs
    ):
        record = run(live, task)
        assert record.status == "ok", record.reason
        (found,) = record.measurements
        assert (found.quantity, found.cache, found.timer) == ("device_time", "warm", "time_evaluator")
        assert all(0 < sample < 1 for sample in found.samples)
        assert record.verification is not None
        assert (record.verification.checked, record.verification.after) == ("full", "same")


def test_the_way_through_the_network_is_no_time_of_an_operator(
    serve: Serve, board: Callable[..., BoardBackend]
) -> None:
    live, task = board(serve("rpc_server")[0]), measured("matmul", MATMUL)
    asked = replace(task.settings, quantities=("latency", "throughput", "device_time"), caches=("cold", "warm"))
    record = run(live, replace(task, settings=asked))
    assert [(one.quantity, one.cache) for one in record.measurements] == [("device_time", "warm")]
    assert [note.partition(":")[0] for note in record.notes] == ["latency", "throughput", "device_time cold"]


def test_code_that_the_board_cannot_link_is_a_reason(serve: Serve, board: Callable[..., BoardBackend]) -> None:
    """This machine stands for the board, so that code for another processor does not fit."""
    other = "riscv64" if os.uname().machine == "aarch64" else "aarch64"
    live = board(serve("rpc_server")[0], target=f"llvm -mtriple={other}-linux-gnu")
    for implementation in ("onnx", "schedule"):
        record = run(live, measured("matmul", MATMUL, implementation))
        assert record.status == "skipped"
        assert record.reason.startswith("the board cannot link code for `llvm -mtriple=")


def test_a_board_that_dies_costs_a_record_and_ends_the_worker(
    serve: Serve, board: Callable[..., BoardBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, server = serve("rpc_server")
    live = board(port)
    load = live.load

    def die_first(executable: Any) -> Any:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        return load(executable)

    monkeypatch.setattr(live, "load", die_first)
    record = TaskRunner(INFO, live).run(measured("matmul", MATMUL))
    assert (record.status, record.stage) == ("error", "compile")
    assert "the board does not answer any more" in record.reason
    assert not live.usable()
    assert "no RPC server of TVM answers at" in (live.why_unavailable() or "")


def test_a_tracker_knows_boards_by_a_key(serve: Serve, board: Callable[..., BoardBackend]) -> None:
    pytest.importorskip("tornado")
    tracker, _ = serve("rpc_tracker")
    serve("rpc_server", "--tracker", f"127.0.0.1:{tracker}", "--key", "box")
    live = board(tracker, "/box")
    for _ in range(2):  # the first task does not keep the board
        record = run(live, measured("matmul", MATMUL))
        assert record.status == "ok", record.reason


@pytest.mark.parametrize(
    ("target", "reason"),
    [("opencl -device=mali", "has no device for `opencl -device=mali`"), ("abacus", "no kind `abacus`")],
)
def test_a_board_without_the_device_says_so(
    target: str, reason: str, serve: Serve, board: Callable[..., BoardBackend]
) -> None:
    assert reason in (board(serve("rpc_server")[0], target=target).why_unavailable() or "")


@pytest.mark.parametrize("address", ["10.0.0.7", "10.0.0.7:x", ":9090", "board"])
def test_an_address_says_what_is_expected(address: str) -> None:
    with pytest.raises(UserError, match=f"expected HOST:PORT.*got `{address}`"):
        connect(address)


@pytest.mark.parametrize("key", ["", "/box"])
def test_something_that_does_not_answer_is_not_waited_for(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.frameworks.tvm.board._ANSWER_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(UserError, match=r"answers at .* within 0\.5 s"):
            connect(f"127.0.0.1:{silent.getsockname()[1]}{key}")


def test_knobs_are_those_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.plugin.registry import implementations, operator

    matmul = operator("matmul")
    (own,) = (one for one in implementations(matmul, INFO, every=True) if one.label == "schedule")
    assert own.space is not None
    found = {}
    for target in ("llvm -mtriple=aarch64-linux-gnu", "opencl -device=mali", '{"kind": "c"}'):
        monkeypatch.setenv("OPMARK_BOARD_TARGET", target)
        found[target] = {knob.name for knob in own.space(matmul.complete(MATMUL)).knobs}
    assert ["fetch" in names for names in found.values()] == [False, True, False]
