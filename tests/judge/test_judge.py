"""`opmark judge` from one end to the other, and honest candidates."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from judged import FOLDER, bench_for, run_turn

import opmark

HONEST, CHEATS = FOLDER / "honest.py", FOLDER / "cheats.py"
# Operators of every kind: element-wise, reductions, products, several outputs, whole numbers, in place, views.
OPERATORS = (
    "add",
    "gelu",
    "layer_norm",
    "matmul",
    "sum",
    "argmax",
    "topk",
    "cumsum",
    "transpose",
    "conv2d",
    "embedding",
)


def judge(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opmark", "judge", *arguments], capture_output=True, text=True, check=False
    )  # fmt: skip


def test_an_honest_candidate(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    done = judge(
        f"{HONEST}:softmax_by_name", "--like", "softmax", "-p", "shape=64x512", "--backend", "numpy-cpu", "--effort",
        "quick", "--processes", "4", "--json", "--trace", str(trace),
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["correct"], found
    assert found["pairs"] == 4
    assert 0 < found["checked"] <= found["trials"]
    assert found["low"] < found["ratio"] < found["high"]
    assert done.returncode == (0 if found["accepted"] else 1)
    assert json.loads(trace.read_text())["evaluation"]["status"] == "PASSED"


def test_a_wrong_candidate() -> None:
    done = judge(
        f"{CHEATS}:tail_left_out", "--like", "softmax", "-p", "shape=32x64", "--backend", "numpy-cpu", "--effort",
        "quick",
    )  # fmt: skip
    assert done.returncode == 1
    assert "\nwrong: output 0: 32 of 2048 elements are off by more than" in done.stdout
    assert "worst at [" in done.stdout
    assert done.stdout.endswith("not accepted: only what is correct is compared\n")


def test_a_candidate_that_raises_is_told_the_line(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("import numpy\n\ndef cut(x):\n    return numpy.reshape(x, (7, 7))\n\nsoftmax = lambda x: cut(x)\n")
    done = judge(f"{path}:softmax", "--like", "softmax", "-p", "shape=4x4", "--backend", "numpy-cpu", "--json")
    found = json.loads(done.stdout)
    assert re.search(r"ValueError: cannot reshape .* \(kernel.py, line 4\)$", found["reason"]), found["reason"]


def test_a_slow_candidate() -> None:
    found = opmark.judge(
        f"{HONEST}:slow_softmax", like="softmax", params={"shape": [256, 1024]}, backend="numpy-cpu", effort="quick",
        processes=4,
    )  # fmt: skip
    assert found.correct
    assert found.verdict == "slower"
    assert not found.accepted


def test_a_file_as_the_baseline() -> None:
    found = opmark.judge(
        f"{HONEST}:softmax_by_name", like="softmax", params={"shape": [256, 1024]}, backend="numpy-cpu", effort="quick",
        processes=4, baseline=f"{HONEST}:slow_softmax",
    )  # fmt: skip
    assert found.verdict == "faster"
    assert found.accepted


def test_the_inputs_of_a_refused_call_can_be_drawn_again() -> None:
    from opmark.plugin import draw_values
    from opmark.plugin.registry import operator

    found = opmark.judge(
        f"{CHEATS}:makes_inputs_fit", like="softmax", params={"shape": [4, 16]}, backend="numpy-cpu", effort="quick"
    )
    spec = operator("softmax").inputs(found.params)["x"]
    expected = operator("softmax").reference(found.params, draw_values(spec, found.seeds["x"], block=spec.elements))
    found_at = re.search(r"worst at \[(\d+), (\d+)\]: .*, expected ([\d.e-]+),", found.reason)
    assert found_at is not None
    row, column, value = found_at.groups()
    assert float(value) == pytest.approx(expected[int(row), int(column)], rel=1e-4)


def test_modules_beside_a_candidate_are_not_the_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("numpy", "msgspec", "psutil", "opmark"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('this is not a part of the judge')\n")
    (tmp_path / "kernels.py").write_text("def zeros(x):\n    return 0 * x\n")
    monkeypatch.chdir(tmp_path)
    found = opmark.judge("kernels.py:zeros", like="softmax", params={"shape": [4, 16]}, backend="numpy-cpu")
    assert found.refusal == "wrong"


def test_a_baseline_that_is_wrong_is_no_verdict_about_the_candidate() -> None:
    with pytest.raises(opmark.UserError, match="the baseline cannot be measured"):
        opmark.judge(
            f"{CHEATS}:right", like="softmax", params={"shape": [4, 16]}, backend="numpy-cpu", effort="quick",
            baseline=f"{CHEATS}:zeros",
        )  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("backend", ["numpy-cpu", "torch-cpu"])
def test_implementations_of_the_catalogue_are_honest(op: str, backend: str) -> None:
    from opmark.plugin.registry import backend as find_backend
    from opmark.plugin.registry import implementations, operator

    if backend == "torch-cpu":
        pytest.importorskip("torch")
    found = operator(op)
    label = implementations(found, find_backend(backend))[0].label
    bench = bench_for(op, backend, label, **found.presets["small"])
    assert run_turn(bench, label).result().checked > 0


def test_jax_is_judged_as_well() -> None:
    pytest.importorskip("jax")
    bench = bench_for("softmax", "jax-cpu", "jax", shape=[16, 64])
    assert run_turn(bench, f"{FOLDER / 'honest.py'}:softmax_of_jax").result().checked > 0


def test_bfloat16_is_judged_as_well() -> None:
    pytest.importorskip("torch")
    bench = bench_for("matmul", "torch-cpu", "torch", M=16, N=16, K=64, dtype="bfloat16")
    assert run_turn(bench, "torch").result().excess < 1
