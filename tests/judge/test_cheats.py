"""Every way to cheat that is written down in cheats.py and torch_cheats.py, given to the judge: none is accepted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cheats
import psutil
import pytest
from judged import FOLDER, bench_for, order_for, run_turn

from opmark.runner.judge import JudgeLimits, judge_candidate
from opmark.worker.judge.main import TrialBench
from opmark.worker.judge.process import Refused
from opmark.worker.judge.sandbox import GUARDS

NUMPY, TORCH, HONEST = (FOLDER / name for name in ("cheats.py", "torch_cheats.py", "honest.py"))


@pytest.fixture(scope="module")
def bench() -> TrialBench:
    return bench_for("softmax", "numpy-cpu", "numpy", shape=[32, 256])


@pytest.fixture(scope="module")
def torch_bench() -> TrialBench:
    pytest.importorskip("torch")
    return bench_for("matmul", "torch-cpu", "torch", M=32, N=32, K=512)


def test_the_honest_one_is_not_refused(bench: TrialBench) -> None:
    assert run_turn(bench, f"{NUMPY}:right").result().checked > 0


def test_a_pause_is_seen(bench: TrialBench) -> None:
    assert run_turn(bench, f"{NUMPY}:slow").result().seconds > cheats.PAUSE


@pytest.mark.parametrize("cheat", [one.__name__ for one in cheats.REFUSED])
def test_it_is_refused(bench: TrialBench, cheat: str) -> None:
    with pytest.raises(Refused) as refused:
        run_turn(bench, f"{NUMPY}:{cheat}")
    assert refused.value.refusal


@pytest.mark.parametrize("cheat", [one.__name__ for one in cheats.USELESS])
def test_it_makes_no_difference(bench: TrialBench, cheat: str) -> None:
    assert run_turn(bench, f"{NUMPY}:{cheat}").result().seconds > cheats.PAUSE


def _names(kind: str) -> list[str]:
    """Read the names out of the source: torch is imported by the candidates' processes only."""
    text = TORCH.read_text().partition(f"\n{kind} = [")[2].partition("]")[0]
    return [name.strip() for name in text.replace("\n", " ").split(",") if name.strip()]


@pytest.mark.parametrize("cheat", _names("REFUSED"))
def test_it_is_refused_by_torch(torch_bench: TrialBench, cheat: str) -> None:
    with pytest.raises(Refused) as refused:
        run_turn(torch_bench, f"{TORCH}:{cheat}")
    assert refused.value.refusal in ("wrong", "imprecise")


@pytest.mark.parametrize("cheat", _names("USELESS"))
def test_it_makes_no_difference_to_torch(torch_bench: TrialBench, cheat: str) -> None:
    assert run_turn(torch_bench, f"{TORCH}:{cheat}").result().seconds > cheats.PAUSE


def test_there_are_enough_of_them() -> None:
    assert len(cheats.REFUSED) + len(cheats.USELESS) + len(_names("REFUSED")) + len(_names("USELESS")) == 92


@pytest.mark.parametrize(
    ("cheat", "refusal"),
    [
        ("zeros", "wrong"),
        ("early_word", "wrong"),
        ("overwrites_inputs", "tampered"),
        ("ends_itself", "failed"),
        ("hangs", "timeout"),
        ("other_type", "failed"),
    ],
)
def test_the_reason_is_the_right_one(bench: TrialBench, cheat: str, refusal: str) -> None:
    with pytest.raises(Refused) as refused:
        run_turn(bench, f"{NUMPY}:{cheat}")
    assert refused.value.refusal == refusal, refused.value.reason


def test_sums_in_half_precision_are_not_precise_enough() -> None:
    bench = bench_for("matmul", "numpy-cpu", "numpy", M=16, N=16, K=512, dtype="float16")
    assert run_turn(bench, f"{HONEST}:sum_in_single_precision").result().excess < 0.5
    with pytest.raises(Refused) as refused:
        run_turn(bench, f"{HONEST}:sum_in_half_precision")
    assert refused.value.refusal in ("wrong", "imprecise")


def test_a_process_that_was_abandoned_is_ended() -> None:
    """The judge itself has to adopt it, so it runs in its own process here."""
    order = order_for("softmax", "numpy-cpu", "numpy", f"{NUMPY}:child_of_the_loading", shape=[32, 256])
    assert judge_candidate(order, JudgeLimits(1, 60.0, 0.01)).refusal == "wrong"
    assert "left-behind" not in [one.info["name"] for one in psutil.process_iter(["name"])]


def test_every_guard_holds_here(bench: TrialBench) -> None:
    """The tests above could pass for the wrong reason on a kernel that lacks one."""
    process = bench.start("numpy")
    try:
        process.open()
        assert set(process.guards) == set(GUARDS)
    finally:
        process.close()


@pytest.mark.parametrize(
    "cheat",
    [
        "reads_the_judges_environment", "steals_a_descriptor", "slows_the_judge", "limits_the_judge",
        "writes_beside_itself", "truncates_itself", "asks_a_server",
    ],
)  # fmt: skip
def test_it_would_work_without_the_guards(cheat: str, tmp_path: Path) -> None:
    copy = tmp_path / "cheats.py"
    copy.write_text(NUMPY.read_text())
    code = f"import cheats, numpy as np; x = np.ones((2, 2)); print((cheats.{cheat}(x) == cheats.right(x)).all())"
    shell = f"cd {tmp_path} && {sys.executable} -c '{code}'; exit"  # a parent that may be tampered with
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n", done.stderr
