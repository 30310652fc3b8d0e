from __future__ import annotations

from typing import Any

import pytest

from opmark.report.console.judgement import judgement_lines
from opmark.report.formats.trace import judgement_trace
from opmark.schema.judgement import Judgement

FACTS = {"cpu": "A Processor", "device": "cpu", "threads": 2, "torch": "2.13.0"}
COMMON: dict[str, Any] = {
    "candidate": "k.py:f", "op": "matmul", "params": {"M": 4, "N": 8, "K": 16, "dtype": "float32"},
    "backend": "torch-cpu", "baseline": "torch", "threads": 2, "facts": FACTS, "started": "2030-01-01T00:00:00+00:00",
}  # fmt: skip
CORRECT = Judgement(
    **COMMON, accepted=True, correct=True, checked=7, trials=40, max_abs_error=1e-6, max_rel_error=2e-6, precision=0.1,
    verdict="faster", ratio=0.5, low=0.4, high=0.6, seconds=0.001, baseline_seconds=0.002, protocol_seconds=2e-5,
    pairs=5, share=0.25, bound="memory", share_of="measured in run X",
)  # fmt: skip
WRONG = Judgement(
    **COMMON, accepted=False, correct=False, refusal="wrong", reason="output 0 is off", checked=1, trials=1,
    max_abs_error=0.5, max_rel_error=1.0,
)  # fmt: skip
TAMPERED = Judgement(**COMMON, accepted=False, correct=False, refusal="tampered", reason="it changed its input `a`")


def test_a_correct_one_has_passed() -> None:
    trace = judgement_trace(CORRECT)
    assert trace["definition"] == "matmul"
    assert trace["solution"] == "k.py:f"
    assert trace["workload"]["axes"] == {"M": 4, "N": 8, "K": 16}
    assert trace["workload"]["inputs"] == {"dtype": {"type": "scalar", "value": "float32"}}
    found = trace["evaluation"]
    assert found["status"] == "PASSED"
    assert found["environment"] == {"hardware": "A_Processor", "libs": {"torch": "2.13.0"}}
    assert found["performance"] == {"latency_ms": 1.0, "reference_latency_ms": 2.0, "speedup_factor": 2.0}
    assert found["correctness"]["max_absolute_error"] == 1e-6


@pytest.mark.parametrize(("judged", "status"), [(WRONG, "INCORRECT_NUMERICAL"), (TAMPERED, "RUNTIME_ERROR")])
def test_the_form_allows_numbers_with_some_statuses_only(judged: Judgement, status: str) -> None:
    """flashinfer-bench refuses a trace with a performance unless it has passed, and one with a correctness unless it
    has numbers."""
    found = judgement_trace(judged)["evaluation"]
    assert found["status"] == status
    assert found["performance"] is None
    assert (found["correctness"] is not None) == (status == "INCORRECT_NUMERICAL")
    assert found["log"] == judged.reason


def test_the_answer_fits_on_a_screen() -> None:
    assert list(judgement_lines(CORRECT)) == [
        "k.py:f as matmul M=4 N=8 K=16 dtype=float32 on torch-cpu, 2 threads",
        "",
        "correct: 7 of 40 timed calls were compared with the reference, each with inputs of its own; largest error "
        "1e-06, relative 2e-06",
        "faster: 1.00 ms a call, torch 2.00 ms; ratio 0.500, 99 % interval 0.400 to 0.600, 5 pairs of processes in "
        "turns",
        "starting, stopping and copying take 20.0 µs a call, which is subtracted",
        "roofline: 25 % of what memory allows (measured in run X)",
        "",
        "accepted: it is correct, and not slower than torch",
    ]


def test_a_refusal_says_why_and_what_did_not_hold() -> None:
    from msgspec.structs import replace

    lines = list(judgement_lines(replace(TAMPERED, missing=("it cannot open connections",), seeds={"a": 5, "b": 6})))
    assert lines[2:] == [
        "refused: it changed its input `a`",
        "inputs of that call: a from seed 5, b from seed 6",
        "",
        "not accepted: only what is correct is compared",
        "caution: this kernel does not see to it that it cannot open connections",
    ]
