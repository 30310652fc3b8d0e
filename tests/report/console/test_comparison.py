"""Tables of comparisons on a terminal, and lines of a bisection."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console

from opmark.report.console.comparison import bisected_lines, comparison_text, nothing_slower, print_comparison
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


SHORT = "1 process only"
LONG = "preempted in main: the number is the scheduler's; preempted in the branch: the number is the scheduler's"
ROWS = (
    ("matmul", "M=512 N=512 K=64 float32", SHORT),
    ("batched_matmul", "B=8 M=512 N=512 K=64 bfloat16", ""),
    ("exp", "1024x1024 float32", LONG),
    ("scaled_dot_product_attention", "batch=1 heads=4 q_len=128 kv_len=128 head_dim=64 causal float32", SHORT),
)


@pytest.fixture
def compared() -> Compared:
    pairs = [
        msgspec.structs.replace(pairing(op, verdict="undecided"), op=op, params=params, note=note)
        for op, params, note in ROWS
    ]
    return Compared("main", "branch", ("r", "s"), True, 0.01, 0.0, tuple(pairs), None)


def on_terminal(found: Compared, width: int) -> list[str]:
    out = Console(file=StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    print_comparison(found, out)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_comparison_fits_the_terminal_and_its_figures_stay_below_their_heads(compared: Compared, width: int) -> None:
    lines = on_terminal(compared, width)
    assert max(map(len, lines)) <= width
    start = next(i for i, line in enumerate(lines) if line.startswith(("case", "operator")))
    firsts = [line for line in lines[start:] if re.search(r" undecided( |$)", line) and "x " in line]
    assert len(firsts) == len(ROWS)
    for head in ("B/A", "verdict"):
        end = lines[start].index(head) + len(head)
        assert all(re.search(r"\S$", line[:end]) and line[end : end + 1].strip() == "" for line in firsts)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_word_of_a_comparison_is_broken(compared: Compared, width: int) -> None:
    whole = {*comparison_text(compared).split(), "case", "[1]", "[2]"}
    shown = [line for line in on_terminal(compared, width) if not line.startswith(("no room", "  column"))]
    assert {word for line in shown for word in line.split()} <= whole


@pytest.mark.parametrize("width", [80, 100, 120])
def test_notes_without_room_have_numbers_and_stand_below_once(compared: Compared, width: int) -> None:
    lines = on_terminal(compared, width)
    marks = [re.search(r"\[\d\]$", line) for line in lines if re.search(r"(ms|s|x) .*undecided", line)]
    assert [mark and mark[0] for mark in marks] == ["[1]", None, "[2]", "[1]"]
    text = " ".join(" ".join(lines).split())
    assert text.count(SHORT) == 1
    assert f"[1] {SHORT} [2] {LONG}" in text


def test_notes_with_room_stand_in_their_rows(compared: Compared) -> None:
    lines = on_terminal(compared, 300)
    assert sum(line.endswith(SHORT) for line in lines) == 2
    assert not any("[1]" in line for line in lines)


def test_columns_of_a_comparison_without_room_are_named(compared: Compared) -> None:
    assert "no room for interval: a wider terminal shows every column" in on_terminal(compared, 72)
    assert not any("no room" in line for line in on_terminal(compared, 120))
