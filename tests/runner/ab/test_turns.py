"""A B B A ...: who is measured when, which cases go on, and when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.plugin.registry import operator as find_operator
from opmark.runner import session
from opmark.runner.ab.turns import Turn, TurnSchedule, run_turns, stages
from opmark.runner.plan import Plan, TaskGroup, make_plan, settings_for
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Environment, Record, Task
from opmark.schema.messages import Hello, Side
from opmark.schema.options import MeasureOptions

pytestmark = [pytest.mark.verdicts, pytest.mark.serial]

SIDES = (Side("a", "numpy-cpu", 1), Side("b", "numpy-cpu", 1))


class Answering:
    def __init__(self, status: Callable[[Task, Side], Any], side: Side) -> None:
        self.status = status
        self.side = side

    def run(self, task: Task) -> Record:
        return Record(task, self.status(task, self.side), "a reason")


def fake(monkeypatch: pytest.MonkeyPatch, status: Callable[[Task, Side], Any] = lambda task, side: "ok") -> None:
    """Workers that answer at once."""

    def start_workers(jobs: list[tuple[TaskGroup, Side]], *rest: Any) -> Iterator[Any]:
        for group, side in jobs:
            who = Answering(status, side)
            yield group, who, Hello(None, Environment.of({}))

    monkeypatch.setattr(session, "start_workers", start_workers)


def cases(count: int = 2) -> list[Case]:
    return [Case.of("add", find_operator("add").complete({"shape": [i + 1]}), "forward") for i in range(count)]


def plan(found: list[Case], most: int = 20, backend: str = "numpy-cpu") -> Plan:
    return make_plan(found, [backend], settings_for(MeasureOptions(threads=[1], effort="quick", processes=most)))


def run(turns: TurnSchedule, plans: tuple[Plan, Plan] | None = None, sides: Any = SIDES) -> list[tuple[str, int, str]]:
    """(side, process, case) of each record."""
    both = plans or (plan(cases(), turns.max_pairs),) * 2
    made = run_turns(sides, both, turns)
    return [("ab"[side], record.task.settings.process, record.task.case.id) for side, record in made]


def schedule(settled_cases: Callable[[], set[str]] = set, **others: Any) -> TurnSchedule:
    return TurnSchedule(settled_cases, WorkerOptions(60.0), **others)


def sequence(made: list[tuple[str, int, str]]) -> str:
    return "".join(dict.fromkeys(f"{side}{process} " for side, process, _ in made))


def test_the_order_is_abba(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    made = run(schedule(max_pairs=4))
    assert sequence(made) == "a0 b0 b1 a1 a2 b2 b3 a3 "
    assert len(made) == 2 * 4 * 2


def test_it_is_looked_after_5_10_and_20_pairs_and_decided_cases_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    first, second = (case.id for case in cases())
    turns: list[Turn] = []
    looks: list[int] = []

    def settled() -> set[str]:
        looks.append(turns[-1].pair)
        return {5: {first}, 10: set(), 20: {second}}[looks[-1]]

    made = run(schedule(settled, on_turn=turns.append))
    assert looks == [5, 10, 20]
    assert sum(case == first for *_, case in made) == 2 * 5
    assert sum(case == second for *_, case in made) == 2 * 20


def test_it_is_over_when_all_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    made = run(schedule(lambda: {case.id for case in cases()}))
    assert len(made) == 2 * 5 * 2


@pytest.mark.parametrize(("most", "expected"), [(2, [2]), (5, [5]), (7, [5, 7]), (10, [5, 10]), (20, [5, 10, 20])])
def test_the_last_look_is_at_what_is_allowed(most: int, expected: list[int]) -> None:
    assert stages(most) == expected


def test_the_budget_ends_it_before_a_pair_that_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    now = [0.0]
    turns: list[Turn] = []
    looks: list[int] = []

    def turn(turn: Turn) -> None:
        turns.append(turn)
        now[0] += 5.0  # so a pair takes 10 s

    def settled() -> set[str]:
        looks.append(turns[-1].pair)
        return set()

    made = run(schedule(settled, budget=35.0, on_turn=turn, clock=lambda: now[0]))
    assert sequence(made) == "a0 b0 b1 a1 a2 b2 "
    assert looks == [3]


def test_a_pair_is_measured_however_small_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    now = iter(range(0, 10_000, 100))
    made = run(schedule(budget=1.0, clock=lambda: next(now)))
    assert sequence(made) == "a0 b0 "


@pytest.mark.parametrize("failing", ["a", "b", "ab"])
def test_a_case_that_fails_is_measured_once_on_both_sides_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    first, second = (case.id for case in cases())
    fake(monkeypatch, lambda task, side: "error" if task.case.id == first and side.name in failing else "ok")
    made = run(schedule(max_pairs=3))
    assert [(side, process) for side, process, case in made if case == first] == [("a", 0), ("b", 0)]
    assert sum(case == second for *_, case in made) == 2 * 3


def test_a_case_that_fails_later_goes_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = (case.id for case in cases())
    fake(monkeypatch, lambda task, side: "timeout" if task.case.id == first and task.settings.process == 1 else "ok")
    made = run(schedule(max_pairs=4))
    assert sum(case == first for *_, case in made) == 2 * 2


def test_what_a_side_cannot_do_is_not_measured_on_the_other_and_both_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    good, bad = cases(1)[0], Case.of("add", find_operator("add").complete({"shape": [3]}), "backward")
    a, b = plan([good, bad], 2, "null"), plan([good, bad], 2)
    sides = (Side("null", "null", 1), SIDES[1])
    made = list(run_turns(sides, (a, b), schedule(max_pairs=2)))
    told = [(side, record) for side, record in made if record.task.case.id == bad.id]
    assert sorted((side, record.status) for side, record in told) == [(0, "skipped"), (1, "skipped")]
    reasons = {side: record.reason for side, record in told}
    assert "no automatic differentiation" in reasons[1]
    assert reasons[0].startswith("not measured, since b cannot:")
    assert sum(record.task.case.id == good.id for _, record in made) == 4


def test_turns_tell_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    told: list[Turn] = []
    run(schedule(max_pairs=2, on_turn=told.append))
    assert told == [Turn(1, 2, 0, 2), Turn(1, 2, 1, 2), Turn(2, 2, 1, 2), Turn(2, 2, 0, 2)]


def test_a_device_that_is_not_here_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "opmark.runner.executors.base.why_no_device", lambda device: "no such device" if device == "cpu" else None
    )
    with pytest.raises(UserError, match="a cannot run here: no such device"):
        run(schedule(max_pairs=2))


def test_real_workers_of_both_sides_take_turns() -> None:
    """A variable that differs is seen by each side's own workers."""
    sides = tuple(Side(name, "numpy-cpu", 1, environ={"OPMARK_TEST_SIDE": name}) for name in "ab")
    environments: dict[str, Environment] = {}
    options = WorkerOptions(60.0, keep=lambda environment: environments.update({environment.id: environment}))
    made = list(run_turns((sides[0], sides[1]), (plan(cases(1), 2),) * 2, TurnSchedule(set, options, 2)))
    assert [record.status for _, record in made] == ["ok"] * 4
    seen = [
        ("ab"[side], environments[record.environment].facts["variables"]["OPMARK_TEST_SIDE"]) for side, record in made
    ]
    assert seen == [("a", "a"), ("b", "b"), ("b", "b"), ("a", "a")]
