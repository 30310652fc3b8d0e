"""Lines of a bisection."""

from __future__ import annotations

from typing import Any

from opmark.report.console.comparison import bisected_lines, nothing_slower
from opmark.schema.comparison import BisectResult, Candidate, Compared, Pairing


def pairing(case: str, **fields: Any) -> Pairing:
    known: dict[str, Any] = {"ratio": 2.0, "low": 1.9, "high": 2.1, "verdict": "slower", **fields}
    return Pairing(
        case, "work:f", "4 float32", "forward", ("x", "x"), "latency", "warm", 1.0, 2.0, (5, 5), known["ratio"],
        known["low"], known["high"], 0.001, known["verdict"], 0.0,
    )  # fmt: skip


def test_lines_for_people() -> None:
    step = Candidate("b" * 40, "Ada", "2024-01-01", "tidy up", "bad", 2.0, 1.9, 2.1)
    whole = Compared("a", "b", ("r", "s"), True, 0.01, 0.0, (pairing("c"),), None)
    found = BisectResult("a" * 40, "c" * 40, whole, "c", "work:f", "4 float32", 0.414, (step,), (step,), "log")
    text = "\n".join(bisected_lines(found))
    assert f"first bad commit: {'b' * 40}" in text
    assert "Ada, 2024-01-01" in text
    assert "tidy up" in text
    assert "2.00 (1.90–2.10)" in text
    assert "takes 1.41 times as long or more" in text


def test_nothing_slower_says_what_it_is_instead() -> None:
    whole = Compared("a", "b", ("r", "s"), True, 0.01, 0.0, (pairing("c", verdict="undecided"),), None)
    assert "(1 undecided)" in nothing_slower(whole)


def test_several_that_it_may_be_are_listed_with_why() -> None:
    skipped = Candidate("d" * 40, "Ada", "2024-01-01", "half done", "skip", why="it cannot be imported")
    last = Candidate("e" * 40, "Bob", "2024-01-02", "done", "bad", 2.0, 1.9, 2.1)
    whole = Compared("a", "b", ("r", "s"), True, 0.01, 0.0, (pairing("c"),), None)
    found = BisectResult(
        "a" * 40, "e" * 40, whole, "c", "work:f", "4 float32", 0.414, (skipped,), (skipped, last), "log"
    )
    text = "\n".join(bisected_lines(found))
    assert "one of 2" in text
    assert "half done (it cannot be imported)" in text
    assert f"  {'e' * 40} Bob: done" in text
