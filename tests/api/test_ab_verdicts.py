"""What api.ab makes of medians that are known: stages, looks, pairs that are left out. Nothing is measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opmark.api.ab import ab
from opmark.runner.plan import TaskGroup
from opmark.schema import Caution, Environment, Measurement, Record, Task
from opmark.schema.comparison import Compared, Pairing
from opmark.schema.measurement import PREEMPTED
from opmark.schema.messages import Hello, Side
from opmark.stats.verdict import ALPHA, STAGES

pytestmark = [pytest.mark.verdicts, pytest.mark.serial]

Seconds = Callable[[str, int], float]
"""Of a side, `a` or `b`, and the number of a process."""


class Simulated:
    def __init__(self, side: str, seconds: Seconds, preempted: Callable[[str, int], bool]) -> None:
        self._side, self._seconds, self._preempted = side, seconds, preempted

    def run(self, task: Task) -> Record:
        process = task.settings.process
        cautions = (Caution(PREEMPTED, "by others"),) if self._preempted(self._side, process) else ()
        samples = [self._seconds(self._side, process)] * 20
        measured = Measurement("latency", "warm", "host", samples, 1, 0.0, 1, 0.0, "precise", cautions)
        return Record(task, "disturbed" if cautions else "ok", measurements=(measured,))


def simulate(
    monkeypatch: pytest.MonkeyPatch,
    db: Path,
    seconds: Seconds,
    preempted: Callable[[str, int], bool] = lambda side, process: False,
    **asked: Any,
) -> Pairing:
    def start_workers(jobs: list[tuple[TaskGroup, Side]], *rest: Any) -> Iterator[Any]:
        for group, side in jobs:
            yield group, Simulated(side.name[-1], seconds, preempted), Hello(None, Environment.of({}))

    monkeypatch.setattr("opmark.runner.session.start_workers", start_workers)
    how = {"backend": "numpy-cpu", "threads": 1, "params": {"shape": [4]}, "same": True, "db": db, **asked}
    found: Compared = ab("add", **how)
    (pair,) = found.pairs
    return pair


def noisy(effect: float, spread: float, seed: int = 0) -> Seconds:
    """B is slower by the effect; processes differ by the spread; the clock drifts by 2 % over ten pairs."""
    draw = random.Random(seed)
    return lambda side, process: (
        1e-3 * (1 + effect * (side == "b")) * math.exp(draw.gauss(0, spread)) * (1 + 0.002 * process)
    )


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_large_difference_is_called_at_the_first_look(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    pair = simulate(monkeypatch, db, noisy(0.10, 0.005))
    assert (pair.verdict, pair.processes) == ("slower", (5, 5))
    assert pair.ratio == pytest.approx(1.10, rel=0.02)


def test_what_is_not_clear_at_the_first_look_is_looked_at_again(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    def seconds(side: str, process: int) -> float:
        disturbed = 0.03 if process < 5 else 0.001
        return 1e-3 * math.exp((0.05 + disturbed * (-1) ** process) * (side == "b"))

    pair = simulate(monkeypatch, db, seconds)
    assert (pair.verdict, pair.processes) == ("slower", (10, 10))


def test_what_is_faster_is_called_so(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    assert simulate(monkeypatch, db, noisy(-0.10, 0.005)).verdict == "faster"


def test_identical_code_is_the_same(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    assert simulate(monkeypatch, db, noisy(0.0, 0.003)).verdict == "same"


def test_what_noise_hides_stays_undecided_after_all_looks(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    pair = simulate(monkeypatch, db, noisy(0.0, 0.10))
    assert (pair.verdict, pair.processes) == ("undecided", (20, 20))


def test_a_wider_margin_calls_a_small_difference_the_same(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    assert simulate(monkeypatch, db, noisy(0.10, 0.005), margin=0.5).verdict == "same"
    assert simulate(monkeypatch, db, noisy(9.0, 0.005), margin=2.0).verdict == "slower"


def test_each_look_has_its_share_of_what_may_be_wrong(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    """A difference that one look alone would be sure enough of is not called: there may be three."""
    steps = (-1, -1, 0, 1, 1)
    spread = 0.05 * math.sqrt(5) / 5.6

    def seconds(side: str, process: int) -> float:
        return 1e-3 * math.exp((0.05 + spread * steps[process % 5]) * (side == "b"))

    pair = simulate(monkeypatch, db, seconds, processes=5)
    assert pair.p is not None
    assert ALPHA / len(STAGES) < pair.p / len(STAGES) < ALPHA
    assert pair.verdict == "undecided"


def test_a_pair_that_the_scheduler_spoilt_is_left_out(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    honest = noisy(0.10, 0.005)

    def seconds(side: str, process: int) -> float:
        return honest(side, process) * (50 if (side, process) == ("a", 2) else 1)

    pair = simulate(monkeypatch, db, seconds, lambda side, process: (side, process) == ("a", 2))
    assert (pair.verdict, pair.processes) == ("slower", (4, 4))
    assert pair.note == "without 1 of 5 processes that were preempted in numpy-cpu a"


def test_where_every_pair_is_spoilt_nothing_is_decided_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, db: Path
) -> None:
    asked: list[int] = []
    pair = simulate(
        monkeypatch, db, noisy(0.5, 0.005), lambda side, process: True, on_turn=lambda one: asked.append(one.turn.pair)
    )
    assert (pair.verdict, pair.ratio) == ("undecided", None)
    assert "preempted" in pair.note
    assert max(asked) == 20  # the next pair might have been undisturbed


def test_what_failed_is_not_left_out_with_a_spoilt_pair(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    """Process 3 fails on B, and was preempted on A."""
    run = Simulated.run

    def failing(self: Simulated, task: Task) -> Record:
        if (self._side, task.settings.process) == ("b", 3):
            return Record(task, "error", "out of order")
        return run(self, task)

    monkeypatch.setattr(Simulated, "run", failing)
    pair = simulate(monkeypatch, db, noisy(0.1, 0.005), lambda side, process: (side, process) == ("a", 3))
    assert pair.statuses == ("disturbed", "error")
    assert "out of order" in pair.note
