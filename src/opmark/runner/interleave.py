"""Two sides measured in turns, A B B A A B B A ..., each turn in a fresh process, until the cases are decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opmark.errors import UserError
from opmark.hardware.presence import why_no_device
from opmark.registry import backend as find_backend
from opmark.runner.plan import Group, Plan
from opmark.runner.ranks.muster import Muster
from opmark.runner.session import done, staffed
from opmark.runner.sides import Side
from opmark.runner.supervisor import Keep, Say
from opmark.schema import Record, Task
from opmark.stats.verdict import STAGES


@dataclass(frozen=True)
class Turn:
    """What is about to be measured."""

    pair: int
    """From 1."""
    until: int
    """Pairs at which it is looked whether that is enough."""
    side: int
    """0 is A, 1 is B."""
    left: int
    """Cases that are not decided."""


Look = Callable[[int], set[str]]
"""After so many pairs: the ids of the cases that more of them would tell nothing new of."""


@dataclass(frozen=True)
class Course:
    """How far to go, and who is told."""

    look: Look
    most: int = STAGES[-1]
    """Pairs."""
    budget: float = 900.0
    """Seconds."""
    timeout: float = 60.0
    compile_timeout: float = 300.0
    say: Say = lambda message: None
    keep: Keep = lambda environment: None
    on_turn: Callable[[Turn], None] = lambda turn: None
    clock: Callable[[], float] = time.monotonic


def stages(most: int) -> list[int]:
    """Pairs at which it is looked; the last one is all that is allowed."""
    return [*(stage for stage in STAGES if stage < most), most]


def interleaved(sides: tuple[Side, Side], plans: tuple[Plan, Plan], course: Course) -> Iterator[tuple[int, Record]]:
    """(side, record) as they come. What the caller has to store of one is stored before the next is asked for.

    A case leaves when it is decided, or when a side could not do it: once on each side is then enough. After the last
    look, or when the budget would not do for one more pair, it is over.
    """
    _refuse_absent(sides)
    yield from _skipped(sides, plans)
    left = _on_both(plans)
    since, longest, pair = course.clock(), 0.0, 0
    for until in stages(course.most):
        while pair < until and left:
            began = course.clock()
            if pair > 0 and began - since + longest > course.budget:
                course.look(pair)
                return
            for side, record in _pair(pair, until, left, sides, plans, course):
                yield side, record
                if record.status != "ok":
                    left = left - {record.task.case.id}
            longest = max(longest, course.clock() - began)
            pair += 1
        left = left - course.look(pair)
        if not left:
            return


def _pair(
    pair: int, until: int, left: set[str], sides: tuple[Side, Side], plans: tuple[Plan, Plan], course: Course
) -> Iterator[tuple[int, Record]]:
    """Both sides once, the one first that was last before: what drifts evenly hits both alike."""
    order = (0, 1) if pair % 2 == 0 else (1, 0)
    wanted: list[tuple[Group, Side]] = []
    owner: list[int] = []
    for side in order:
        tasks = tuple(t for t in plans[side].tasks if t.settings.process == pair and t.case.id in left)
        own = [(group, sides[side]) for group in Plan(tasks, ()).groups()]
        wanted += own
        owner += [side] * len(own)
    crews = staffed(wanted, course.timeout, course.say, course.keep, course.compile_timeout, Muster())
    told: set[int] = set()
    for side, (group, supervisor, hello) in zip(owner, crews, strict=True):
        if side not in told:
            told.add(side)
            course.on_turn(Turn(pair + 1, until, side, len(left)))
        for record in done(group, supervisor, hello):
            yield side, record


def _on_both(plans: tuple[Plan, Plan]) -> set[str]:
    a, b = ({task.case.id for task in plan.tasks} for plan in plans)
    return a & b


def _skipped(sides: tuple[Side, Side], plans: tuple[Plan, Plan]) -> Iterator[tuple[int, Record]]:
    """What cannot run on a side is not measured on the other; both say why."""
    both = _on_both(plans)
    for side, plan in enumerate(plans):
        reasons = {record.task.case.id: record for record in plans[1 - side].skipped}
        for record in plan.skipped:
            yield side, record
        for task in _once_a_case(plan.tasks):
            if task.case.id not in both and task.case.id in reasons:
                why = f"not measured, since {sides[1 - side].name} cannot: {reasons[task.case.id].reason}"
                yield side, Record(task, "skipped", why)


def _once_a_case(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.settings.process == 0]


def _refuse_absent(sides: tuple[Side, Side]) -> None:
    for side in sides:
        reason = why_no_device(find_backend(side.backend).device)
        if reason:
            raise UserError(f"{side.name} cannot run here: {reason}", "`opmark list backends` says what can")
