"""`opmark opbench` from its command line to its files, on small models, with TVM."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opmark.api.requests import TuneRequest
from opmark.errors import UserError
from opmark.interop.autotvm import AUTOTVM
from opmark.interop.opbench.command import main
from opmark.interop.opbench.options import read_options
from opmark.interop.opbench.tuning import OpbenchTuning
from opmark.schema import Case
from opmark.tuning.search import Trial

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not find_spec("tvm") or not find_spec("onnx"), reason="needs TVM and onnx"),
]

SMALL = ["--size=small", "--threads=1"]
TWO_PRODUCTS = ["--modelsource=simple", "--modelname=matmul_matmul_add", *SMALL]


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_first_example_of_the_readme_writes_the_space_without_tuning(tmp_path: Path) -> None:
    arguments = ["--modelsource=local", "--modelname=resnet-18", *SMALL, "--iftime=false", "--batchsize=2"]
    assert main([*arguments, f"--output={tmp_path}"]) == 0
    found = _read(tmp_path / "data/ConfigSpace/resnet-18-llvm.json")
    convolutions = [space for space in found["spaces"] if space["op"] == "conv2d"]
    assert len(convolutions) > 5
    assert {space["params"]["batch"] for space in convolutions} == {2}
    assert all(space["size"] > 100 and space["knobs"] for space in convolutions)
    assert sum(sum(space["count"].values()) for space in convolutions) == 12  # 4 blocks of two, 3 shortcuts, the stem
    table = _read(tmp_path / "data/Performance/resnet-18-llvm-operators.json")
    assert {one["status"] for one in table["operators"]} == {"not timed"}


@pytest.mark.slow
def test_operators_are_timed_and_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TWO_PRODUCTS, f"--output={tmp_path}", f"--db={tmp_path / 'store.db'}", "--top=90%"]) == 0
    table = _read(tmp_path / "data/Performance/matmul_matmul_add-llvm-operators.json")
    (product,) = table["operators"]  # the addition takes less than a tenth of the time
    assert (product["operator"], product["count"]) == ("matmul", 2)
    assert product["input_data"] == {"a": "32x64 float32", "b": "64x64 float32"}
    assert 0.9 < product["share"] < 1
    assert product["seconds"] > 0
    assert table["model_seconds"]["matmul_matmul_add"] > product["seconds"]
    out, err = capsys.readouterr()
    assert "schedule configurations" in out
    assert "1 key operator of 2" in err
    assert "its operators one by one" in err


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm -mtriple=aarch64-linux-gnu", "opencl -device=mali", "cuda"])
def test_code_is_generated_for_machines_that_are_not_here(tmp_path: Path, target: str) -> None:
    if target == "cuda" and Path("/dev/nvidia0").exists():
        pytest.skip("a GPU is here")
    assert main([*TWO_PRODUCTS, f"--target={target}", f"--output={tmp_path}"]) == 0
    (path,) = (tmp_path / "data/Performance").iterdir()
    found = _read(path)["operators"]
    assert [one["status"] for one in found] == ["compiled", "compiled"]
    assert all(one["code"]["bytes"] > 100 for one in found)
    assert {one["code"]["kind"] for one in found} == {target.split()[0]}


@pytest.fixture
def board() -> Iterator[int]:
    """An RPC server of TVM on this machine, on a port of its own."""
    port = 20_000 + os.getpid() % 20_000
    command = [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--port-end", str(port + 1)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    deadline = time.monotonic() + 120
    while "bind to" not in (line := process.stdout.readline()):
        assert line, "the server ended"
        assert time.monotonic() < deadline, "the server does not start"
    yield port
    os.killpg(process.pid, signal.SIGKILL)  # the server has a worker process of its own
    process.wait()
    process.stdout.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_board_is_timed_tuned_and_compared(tmp_path: Path, board: int) -> None:
    where = ["--host=127.0.0.1", f"--port={board}", f"--output={tmp_path}", f"--db={tmp_path / 'store.db'}"]
    tuning = ["--iftune=true", "--ifcompare=true", "--tuner=random", "--trials=3", "--processes=4"]
    assert main([*TWO_PRODUCTS, *where, *tuning]) == 0
    table = _read(tmp_path / "data/Performance/matmul_matmul_add-llvm-operators.json")
    assert table["backend"] == "tvm-board"
    assert [one["status"] for one in table["operators"]] == ["ok", "ok"]
    assert sum(one["share"] for one in table["operators"]) == pytest.approx(1)
    compared = _read(tmp_path / "data/Performance/matmul_matmul_add-random-llvm-compare.json")["cases"]
    assert next(one for one in compared if one["case"].startswith("matmul "))["tuned_seconds"] > 0
    (line,) = (tmp_path / "data/Performance/matmul_matmul_add-random-llvm-autotvm.json").read_text().splitlines()
    assert json.loads(line)["input"][:2] == ["llvm", "dense.schedule"]
    assert "OPMARK_BOARD" not in os.environ


@pytest.mark.parametrize(("key", "when"), [("", ": "), pytest.param("box", " within 20 s", marks=pytest.mark.slow)])
def test_nobody_at_the_address_of_the_board(tmp_path: Path, key: str, when: str) -> None:
    """Nothing is computed or written first."""
    with pytest.raises(UserError, match=rf"--host: no .* answers at 127\.0\.0\.1:9{when}.*rpc_"):
        main([*TWO_PRODUCTS, "--host=127.0.0.1", "--port=9", f"--key={key}", f"--output={tmp_path / 'none'}"])
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_something_else_at_the_address_of_the_board(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = ["--host=127.0.0.1", f"--port={silent.getsockname()[1]}"]
        with pytest.raises(UserError, match=r"--host: no RPC server of TVM answers at .* within 20 s"):
            main([*TWO_PRODUCTS, *where, f"--output={tmp_path}"])


def test_a_model_without_knobs_costs_neither_the_others_nor_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("opmark.interop.opbench.session.find_tunables", lambda case, info: [])
    arguments = ["--modelsource=simple", "--modelname=matmul,matmul_matmul_add", *SMALL, "--iftune", "--iftime=false"]
    assert main([*arguments, f"--output={tmp_path}", f"--db={tmp_path / 'store.db'}"]) == 1
    out, err = capsys.readouterr()
    assert err.count("has knobs on tvm-cpu: there is nothing to tune") == 2
    assert "wrote " in out


@pytest.mark.slow
def test_an_operator_that_no_time_was_left_for_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--modelsource=simple", "--modelname=matmul", *SMALL, "--iftune", "--iftime=false", "--library=none"]
    where = [f"--output={tmp_path}", f"--db={tmp_path / 'store.db'}"]
    assert main([*arguments, *where, "--seconds=0.001", "--trials=2", "--processes=4"]) == 1
    assert "no candidate could be measured" in capsys.readouterr().err


def test_a_model_that_could_not_be_measured_has_no_times_after_so_many_trials(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing: Any = None
    model: Any = SimpleNamespace(name="net")
    tuning = OpbenchTuning(nothing, nothing, nothing, model, (), {}, found=SimpleNamespace())  # type: ignore[arg-type]
    assert not tuning.partial(None)
    assert "net after so many trials: unknown" in capsys.readouterr().err


def test_a_tuning_shows_the_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As `opmark tune` does, which has the same progress."""
    now = [0.0]

    def search(request: TuneRequest) -> None:
        assert request.budget == 2000.0
        assert request.on_case is not None
        request.on_case("matmul", 0, 2)
        now[0] = 10.0
        best: Any = SimpleNamespace(seconds=1e-3)
        request.on_trial(Trial(5, 10, best, best, 10.0))
        request.say("a message")
        raise KeyboardInterrupt

    monkeypatch.setattr("opmark.api.progress.monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("opmark.interop.opbench.tuning.tune_request", search)
    options = read_options([*TWO_PRODUCTS, "--trials=10", "--seconds=1000", "--tuner=random"])
    info: Any = SimpleNamespace(name="tvm-cpu", takes_tuned_operators=False)
    model: Any = SimpleNamespace(name="net")
    folder: Any = None
    operators = [Case.of("matmul", {"M": size}, "forward") for size in (8, 16)]
    with pytest.raises(KeyboardInterrupt):
        OpbenchTuning(options, info, folder, model, operators, {}).tune()
    err = capsys.readouterr().err
    assert "opbench net: 5 of 20, matmul (1 of 2): best 1.00 ms, 10 s so far, about 30 s left" in err
    assert "\r\x1b[Ka message\n" in err
    assert err.endswith("\r\x1b[K")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tuning_and_comparison_end_with_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default of TVM on a CPU is a plain loop, so that any schedule is faster."""
    arguments = ["--modelsource=simple", "--modelname=matmul", *SMALL, "--tuner=random", "--trials=4", "--processes=4"]
    flags = ["--iftune=true", "--ifcompare=true", "--ifpartial=true", "--library=none"]
    folder = tmp_path / "data/Performance"
    assert main([*arguments, *flags, f"--output={tmp_path}", f"--db={tmp_path / 'store.db'}"]) == 0
    compared = _read(folder / "matmul-random-llvm-compare.json")["cases"]
    product = next(one for one in compared if one["case"].startswith("matmul "))
    assert product["verdict"] == "faster"
    assert product["tuned_seconds"] < product["default_seconds"]
    log = AUTOTVM.read(folder / "matmul-random-llvm-autotvm.json")
    assert not log.problems
    assert [entry.implementation for entry in log.entries] == ["dense.schedule"]
    with (folder / "matmul-random-llvm-partial.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["4"]) < float(row["0"])
    assert ": faster, " in capsys.readouterr().out
