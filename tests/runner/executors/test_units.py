from __future__ import annotations

import pytest

from opmark.plugin.registry import operator as find_operator
from opmark.runner.executors.units import FIRST_CASES, UNIT_SECONDS, Bundle, WorkQueue
from opmark.runner.plan import make_plan, settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions


def tasks(cases: int, processes: int = 1, backends: tuple[str, ...] = ("null",)) -> tuple[Task, ...]:
    found = [Case.of("add", find_operator("add").complete({"shape": [i + 1]}), "forward") for i in range(cases)]
    settings = settings_for(MeasureOptions(threads=[1], effort="quick", processes=processes))
    return make_plan(found, list(backends), settings).tasks


def queue(found: tuple[Task, ...], **homes: str) -> WorkQueue:
    return WorkQueue(found, lambda task: "any", homes)


def take(work: WorkQueue, seats: int = 1, fits: object = None) -> list[Bundle]:
    return work.take(lambda group: True, fits or (lambda bundle: True), seats)  # type: ignore[arg-type]


def test_all_processes_and_backends_of_a_case_stay_together() -> None:
    planned = tasks(6, processes=3, backends=("null", "null-device"))
    work = queue(planned)
    seen: list[Task] = []
    while work:
        for bundle in take(work, seats=4):
            assert len(bundle.tasks) == 6
            assert len({task.case.id for task in bundle.tasks}) == 1
            seen += bundle.tasks
    assert {task.id for task in seen} == {task.id for task in planned}
    assert len(seen) == len(planned)


def test_the_first_units_are_small_and_later_ones_as_long_as_they_are_worth_it() -> None:
    work = queue(tasks(200))
    assert len(take(work, seats=2)) == FIRST_CASES
    work.observe(FIRST_CASES, tasks_seconds=FIRST_CASES * 3.0, unit_seconds=FIRST_CASES * 3.0 + 1)
    assert len(take(work, seats=2)) == UNIT_SECONDS / 3
    work.observe(10, tasks_seconds=30.0, unit_seconds=60.0)  # starting takes as long as measuring
    assert len(take(work, seats=2)) > 2 * UNIT_SECONDS / 3


def test_the_last_units_leave_work_for_all_seats() -> None:
    work = queue(tasks(64))
    work.observe(1, 1e-3, 1e-3)
    sizes = []
    while work:
        sizes.append(len(take(work, seats=4)))
    assert sizes[0] == 8
    assert sizes[-4:] == [1, 1, 1, 1]
    assert sizes == sorted(sizes, reverse=True)


def test_what_comes_back_is_first_and_a_suspect_is_alone() -> None:
    work = queue(tasks(10))
    first, second, *_ = given = take(work)
    second.alone = True
    work.give_back(given)
    assert take(work)[0] is first
    assert take(work) == [second]
    assert not any(bundle in (first, second) for bundle in take(work))


def test_nothing_without_tasks_comes_back() -> None:
    work = queue(tasks(1))
    (only,) = take(work)
    only.tasks.clear()
    work.give_back([only])
    assert not work


def test_a_case_that_was_begun_has_a_home() -> None:
    planned = tasks(3)
    work = queue(planned, **{planned[1].case.id: "b"})
    (begun,) = take(work, fits=lambda bundle: bundle.home == "b")
    assert begun.case == planned[1].case.id
    assert len([*work.tasks]) == 2


@pytest.mark.parametrize("seats", [1, 7])
def test_a_group_that_a_seat_cannot_do_is_left(seats: int) -> None:
    work = WorkQueue(tasks(4, backends=("null", "null-device")), lambda task: task.backend, {})
    taken = work.take(lambda group: group == "null-device", lambda bundle: True, seats)
    assert {bundle.group for bundle in taken} == {"null-device"}
    assert work.groups()["null"] == 4
