"""How far a comparison in turns is."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from opmark.api.ab import TurnProgress
from opmark.api.progress import Turns, line
from opmark.runner.ab.turns import Turn
from opmark.schema.messages import Side

pytestmark = [pytest.mark.verdicts, pytest.mark.serial]

B = Side("numpy-cpu", "numpy-cpu", 1)


def progress(pair: int = 3, side: int = 1, **verdicts: int) -> TurnProgress:
    return TurnProgress(Turn(pair, 5, side, 12), B, Counter(verdicts))  # type: ignore[arg-type]


def test_a_line_says_pair_side_cases_and_what_is_decided() -> None:
    assert line(progress()) == "pair 3 of 5, B numpy-cpu: 12 cases left"
    assert line(progress(side=0, slower=2, same=5, undecided=12)) == (
        "pair 3 of 5, A numpy-cpu: 12 cases left; so far 5 same, 2 slower"
    )


def test_where_nobody_looks_it_is_a_line_a_pair(capsys: pytest.CaptureFixture[str]) -> None:
    turns = Turns()
    for pair, side in ((1, 0), (1, 1), (2, 1), (2, 0)):
        turns.turn(progress(pair, side))
    turns.end()
    told = capsys.readouterr()
    assert told.out == ""
    assert [text.split(",")[0] for text in told.err.splitlines()] == ["pair 1 of 5", "pair 2 of 5"]


def test_where_somebody_looks_it_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    turns = Turns()
    turns.turn(progress(1))
    turns.turn(progress(2))
    turns.say("done")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.count("\r") == 3
