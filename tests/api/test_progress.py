"""How far a command is, and how long it may still take."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from opmark.api.ab import TurnProgress
from opmark.api.progress import StepProgress, TuneProgress
from opmark.runner.ab.turns import Turn
from opmark.schema.messages import Side
from opmark.tuning.search import Trial


class Stream(io.StringIO):
    """Standard error, on a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which a test sets."""
    now = [0.0]
    monkeypatch.setattr("opmark.api.progress.monotonic", lambda: now[0])
    return now


def test_a_terminal_has_one_line_with_an_estimate(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    with StepProgress("calibrate") as progress:
        progress.step(0, 4, "copy")
        assert stream.getvalue() == ""  # what ends within a second shows nothing
        clock[0] = 10.0
        progress.step(1, 4, "triad")
    assert "\n" not in stream.getvalue()
    assert "calibrate: 1 of 4, triad, 10 s so far, about 30 s left" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_time_left_is_that_of_the_stage_and_of_the_budget(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(sys, "stderr", Stream(terminal=True))
    progress = StepProgress("tune")
    clock[0] = 100.0
    progress.step(10, 20, "candidates", at_most=30.0)
    assert progress.line().endswith("about 30 s left")
    progress.step(20, 20, "finalists", at_most=0.0)
    assert progress.line().endswith(" so far")  # no more steps and no more budget, and yet it goes on
    progress.step(0, 4, "verdicts")  # fewer than before: another stage
    clock[0] = 110.0
    progress.step(1, 4, "verdicts")
    assert progress.line().endswith("about 30 s left")


def test_a_narrow_terminal_shows_the_time_left_and_less_of_what_is_done(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    with StepProgress("tune") as progress:
        clock[0] = 10.0
        progress.step(1, 4, "conv2d of many parameters, best 1.00 ms")
    assert "\x1b[Ktune: 1 of 4, conv2d of many…, 10 s so far, about 30 s left\r" in stream.getvalue()
    assert len(progress.line(8)) == 8


def test_elsewhere_there_is_a_line_now_and_then_also_within_a_long_step(
    monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., None]
) -> None:
    stream = Stream(terminal=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with StepProgress("import", measures=False, every=0.01) as progress:
        progress.step(1, 2, "reading b.json")
        wait_for(lambda: stream.getvalue().count("\n") > 1, "the second line")
    first, second, *_ = stream.getvalue().splitlines()
    assert first.startswith("import: 1 of 2, reading b.json, ")
    assert second.startswith("import: 1 of 2, reading b.json, ")
    assert "\x1b" not in stream.getvalue()


def test_a_command_that_ends_within_a_minute_prints_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with StepProgress("calibrate") as progress:
        progress.step(1, 2, "copy")
    assert stream.getvalue() == ""


def trial(number: int, best: float | None) -> Trial:
    found: Any = SimpleNamespace(seconds=best) if best else None
    return Trial(number, 10, found, found, 0.0)


def test_a_tuning_counts_the_candidates_of_all_cases_and_keeps_to_its_budget(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    with TuneProgress("tune", 10, 100.0) as progress:
        progress.case("matmul", 0, 2)
        clock[0] = 10.0
        progress.trial(trial(5, 1e-3))
        assert progress.line() == "tune: 5 of 20, matmul (1 of 2): best 1.00 ms, 10 s so far, about 30 s left"
        progress.case("exp", 1, 2)
        clock[0] = 90.0
        progress.trial(trial(1, None))
        assert progress.line() == "tune: 11 of 20, exp (2 of 2): none measured, 1 min 30 s so far, about 10 s left"
        turn: Any = Turn(2, 4, 0, 1)
        progress.turn(TurnProgress(turn, Side("tuned", "numpy-cpu", 1), Counter()))
        assert progress.line().startswith("tune: 2 of 8, the verdicts, in turns: tuned, pair 2 of 4, ")
    assert "pair 2 of 4, A tuned: 1 case left" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
