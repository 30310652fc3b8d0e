"""Measures two sides in turns, A B B A A B B A ..., each turn in a fresh process, until the cases are decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.executors.base import Executor, LocalExecutor
from opmark.runner.plan import Plan
from opmark.runner.session import Job
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Record
from opmark.schema.messages import Side
from opmark.schema.record import MEASURED
from opmark.stats.verdict import STAGES


@dataclass(frozen=True)
class Turn:
    """One side of one pair, which is about to be measured."""

    pair: int
    """From 1."""
    until: int
    """Pairs after which the sides are compared."""
    side: int
    """0 is A, 1 is B."""
    left: int
    """Cases that are not decided."""


@dataclass(frozen=True)
class TurnSchedule:
    """How many turns to take, and whom to tell about them."""

    settled_cases: Callable[[], set[str]]
    """Compares the records so far; returns the ids of the cases that more pairs would not change."""
    options: WorkerOptions
    max_pairs: int = STAGES[-1]
    budget: float = 900.0
    """Seconds."""
    on_turn: Callable[[Turn], None] = lambda turn: None
    clock: Callable[[], float] = time.monotonic
    executor: Executor = field(default_factory=LocalExecutor)


def stages(max_pairs: int) -> list[int]:
    """Numbers of pairs after which the sides are compared; the last one is all that is allowed."""
    return [*(stage for stage in STAGES if stage < max_pairs), max_pairs]


def run_turns(
    sides: tuple[Side, Side], plans: tuple[Plan, Plan], schedule: TurnSchedule
) -> Iterator[tuple[int, Record]]:
    """Yield (side, record) as they come. The caller stores one before it asks for the next.

    A case leaves when it is decided, or when a side could not do it: once on each side is then enough. It is over after
    the last stage, or when the budget would not do for one more pair.
    """
    _refuse_absent(sides, schedule.executor)
    yield from _skipped_records(sides, plans)
    left = _common_cases(plans)
    since, longest, pair = schedule.clock(), 0.0, 0
    for until in stages(schedule.max_pairs):
        while pair < until and left:
            began = schedule.clock()
            if pair > 0 and began - since + longest > schedule.budget:
                schedule.settled_cases()
                return
            for side, record in _run_pair(pair, until, left, sides, plans, schedule):
                yield side, record
                if record.status not in MEASURED:  # of a disturbed process, more pairs take the place
                    left = left - {record.task.case.id}
            longest = max(longest, schedule.clock() - began)
            pair += 1
        left = left - schedule.settled_cases()
        if not left:
            return


def _run_pair(
    pair: int, until: int, left: set[str], sides: tuple[Side, Side], plans: tuple[Plan, Plan], schedule: TurnSchedule
) -> Iterator[tuple[int, Record]]:
    """Measure both sides once. The one that was last before is first now: what drifts evenly hits both alike."""
    jobs: list[Job] = []
    owners: list[int] = []
    for side in (0, 1) if pair % 2 == 0 else (1, 0):
        tasks = tuple(t for t in plans[side].tasks if t.settings.process == pair and t.case.id in left)
        for group in Plan(tasks, ()).groups():
            jobs.append((group, sides[side]))
            owners.append(side)
    announced: set[int] = set()

    def announce(position: int) -> None:
        side = owners[position]
        if side not in announced:
            announced.add(side)
            schedule.on_turn(Turn(pair + 1, until, side, len(left)))

    for position, record in schedule.executor.run_jobs(jobs, schedule.options, announce):
        yield owners[position], record


def _common_cases(plans: tuple[Plan, Plan]) -> set[str]:
    a, b = ({task.case.id for task in plan.tasks} for plan in plans)
    return a & b


def _skipped_records(sides: tuple[Side, Side], plans: tuple[Plan, Plan]) -> Iterator[tuple[int, Record]]:
    """Skipped records: a case that cannot run on one side is not measured on the other, and both say why."""
    both = _common_cases(plans)
    for side, plan in enumerate(plans):
        reasons = {record.task.case.id: record for record in plans[1 - side].skipped}
        for record in plan.skipped:
            yield side, record
        for task in plan.tasks:
            if task.settings.process == 0 and task.case.id not in both and task.case.id in reasons:
                why = f"not measured, since {sides[1 - side].name} cannot: {reasons[task.case.id].reason}"
                yield side, Record(task, "skipped", why)


def _refuse_absent(sides: tuple[Side, Side], executor: Executor) -> None:
    for side in sides:
        reason = executor.why_no_device(find_backend(side.backend).device)
        if reason:
            raise UserError(f"{side.name} cannot run here: {reason}", "`opmark list backends` says what can")
