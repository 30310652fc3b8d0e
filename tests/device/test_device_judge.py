"""The judge on an NVIDIA GPU: honest kernels in torch and Triton, and cheats that need a device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from judged import FOLDER, bench_for, order_for, run_turn

from opmark.runner.judge import JudgeLimits, judge_candidate
from opmark.worker.judge.main import TrialBench
from opmark.worker.judge.process import Refused

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FILE = FOLDER / "cuda_cheats.py"
PAUSE = 0.02
REFUSED = (
    "zeros", "uninitialised", "cache_by_pointer", "previous_result", "other_stream", "launched_by_a_thread",
    "early_word", "stale_graph", "computed_in_half", "output_on_the_host", "tail_left_out",
)  # fmt: skip
USELESS = ("patched_events", "patched_profiler", "sleeping_kernel")


@pytest.fixture(scope="module")
def bench() -> Iterator[TrialBench]:
    found = bench_for("softmax", "torch-cuda", "torch", shape=[2048, 2048])
    yield found
    found.arena.close()


@pytest.mark.parametrize("name", ["right", "triton_softmax", "graph"])
def test_honest_kernels_are_not_refused(bench: TrialBench, name: str) -> None:
    assert run_turn(bench, f"{FILE}:{name}").result().checked > 0


@pytest.mark.parametrize("name", REFUSED)
def test_a_cheat_is_refused(bench: TrialBench, name: str) -> None:
    with pytest.raises(Refused) as refused:
        run_turn(bench, f"{FILE}:{name}")
    assert refused.value.refusal


def test_work_that_is_still_queued_is_missing_or_its_time_counts(bench: TrialBench) -> None:
    """Whether the judge's copy overtakes a kernel of another process is up to the device."""
    try:
        seconds = run_turn(bench, f"{FILE}:patched_synchronize").result().seconds
    except Refused:
        return
    assert seconds > PAUSE


@pytest.mark.parametrize("name", USELESS)
def test_a_cheat_makes_no_difference(bench: TrialBench, name: str) -> None:
    assert run_turn(bench, f"{FILE}:{name}").result().seconds > PAUSE


def test_tf32_in_a_float32_product_is_refused() -> None:
    bench = bench_for("matmul", "torch-cuda", "torch", M=256, N=256, K=1024)
    with pytest.raises(Refused) as refused:
        run_turn(bench, f"{FILE}:product_in_tf32")
    assert refused.value.refusal in ("wrong", "imprecise")


def test_a_slow_kernel_is_slower() -> None:
    order = order_for("softmax", "torch-cuda", "torch", f"{FILE}:sleeping_kernel", shape=[1024, 1024])
    found = judge_candidate(order, JudgeLimits(5, 300.0, 0.01))
    assert found.correct, found.reason
    assert found.verdict == "slower"


def test_a_thing_is_as_fast_as_itself() -> None:
    order = order_for("softmax", "torch-cuda", "torch", f"{FILE}:right", shape=[4096, 4096])
    found = judge_candidate(order, JudgeLimits(10, 300.0, 0.03))
    assert found.correct, found.reason
    assert found.verdict in ("same", "undecided")
