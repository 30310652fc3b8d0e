"""Two sides measured in turns: `opmark ab`."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from opmark.analysis.compare import compare, side_of
from opmark.analysis.matching import Way, opposite
from opmark.api.common import DEFAULT_TIMEOUT, PathLike, check_timeout, open_store, talk
from opmark.api.measuring import planned
from opmark.errors import InvalidParameter, UserError
from opmark.interfaces import Store
from opmark.runner.intake import complaints
from opmark.runner.interleave import Turn, TurnSchedule, run_turns, stages
from opmark.runner.plan import Plan, processes
from opmark.runner.session import RunRecorder, new_run
from opmark.runner.sides import Side
from opmark.runner.supervisor import DEFAULT_COMPILE_TIMEOUT, WorkerOptions
from opmark.runner.two_sides import Difference, two_sides
from opmark.runner.wanted import ARGUMENTS, OF_CASES, Wanted, many, numbers, wanted
from opmark.schema import Case, Run, Task
from opmark.schema.case import content_id
from opmark.schema.comparison import Compared, Pairing, Verdict
from opmark.schema.measurement import PREEMPTED
from opmark.schema.run import short_revision
from opmark.stats.verdict import MARGIN, STAGES
from opmark.units import counted

BUDGET = 900.0
"""Seconds that a comparison may take, if nothing else is said."""
EFFORT = "quick"
"""Of each process: what differs between processes is not helped by more samples of one of them."""


@dataclass(frozen=True)
class Progress:
    """What is about to be measured, and what is known so far."""

    turn: Turn
    side: Side
    verdicts: Counter[Verdict]


def ab(
    ops: str | Sequence[str] = (),
    *,
    backend: str | Sequence[str] = (),
    python: str | Sequence[str] = (),
    threads: int | Sequence[int] = (),
    env: str | Sequence[str] = (),
    rev: str | Sequence[str] = (),
    repo: PathLike | None = None,
    make: str = "",
    same: bool = False,
    say: Callable[[str], None] = talk,
    **asked: Any,
) -> Compared:
    """B as A has it, measured in turns: A B B A A B B A ..., each in a fresh process.

    Exactly one of `backend`, `python`, `threads` has two values, or `env` (`VAR=VALUE`, `VAR=`, `VAR` for without) or
    `rev` says what differs, or `same` compares a thing with itself. One `env` or `rev` is B or A, the other side is as
    things are. All else that `opmark.run` takes to choose cases and `measure_sides` to measure them goes in `asked`.
    """
    chosen = wanted(ops, **{name: value for name, value in asked.items() if name in ARGUMENTS})
    refuse_ranks_of_others(chosen)
    if chosen.taken is not None:
        for line in complaints(chosen.taken.problems, (*chosen.taken.notes, *chosen.left_out)):
            say(line)
    difference = Difference(
        backend=many(backend), python=many(python), threads=numbers(threads), env=[env] if isinstance(env, str) and env
        else list(env), rev=[rev] if isinstance(rev, str) and rev else list(rev), same=same, repo=repo, make=make,
    )  # fmt: skip
    how = {name: value for name, value in asked.items() if name not in OF_CASES}
    with two_sides(difference, chosen.cases) as (a, b):
        return measure_sides(a, b, chosen.cases, say=say, **how)


def refuse_ranks_of_others(chosen: Wanted) -> None:
    if chosen.place:
        raise UserError(
            f"sides are measured in turns by one opmark, and a launcher has started several ({chosen.place.launcher})",
            "start `opmark ab` by itself; --ranks says how many processes a case takes",
        )


def measure_sides(
    a: Side,
    b: Side,
    cases: Sequence[Case],
    *,
    budget: float = BUDGET,
    processes: int | None = None,
    margin: float = MARGIN,
    effort: str = EFFORT,
    label: str = "",
    db: PathLike | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
    on_turn: Callable[[Progress], None] | None = None,
    on_interrupted: Callable[[Compared], None] | None = None,
    settled: Callable[[Pairing], bool] = lambda pair: pair.verdict != "undecided",
    say: Callable[[str], None] = talk,
    **how: Any,
) -> Compared:
    """Both are stored as runs of one session, record by record.

    `processes`: pairs at most. `settled`: whether a case needs no more of them. Ctrl-C passes through; before,
    `on_interrupted` is given what is known until then.
    """
    if not label.isprintable():
        raise UserError(f"label: expected printable text, got {label!a}")
    check_timeout(timeout)
    check_timeout(compile_timeout, "compile_timeout")
    check_timeout(budget, "budget")
    if not 0 <= margin < math.inf:
        raise InvalidParameter(f"margin: expected a share of at least 0, got {margin:g}", "as in --margin 3%")
    most = _most(processes)
    _refuse_ranks(a, b, cases)
    one, two = (
        planned(
            Wanted(list(cases)), backend=[side.backend], threads=[side.threads], processes=most, effort=effort, **how
        )
        for side in (a, b)
    )
    _confirm_opposite((one, two), say)
    with closing(open_store(db, create=True)) as store:
        session = _Session(store, (a, b), (one, two), label, margin, most, settled)

        def tell(turn: Turn) -> None:
            if on_turn:
                on_turn(Progress(turn, (a, b)[turn.side], session.verdicts))

        options = WorkerOptions(timeout, compile_timeout, say, store.add_environment)
        schedule = TurnSchedule(session.settled_cases, options, most, budget, tell)
        try:
            for side, record in run_turns((a, b), (one, two), schedule):
                session.recorders[side].add(record)
        except KeyboardInterrupt:
            if on_interrupted and all(recorder.begun for recorder in session.recorders):
                on_interrupted(session.compared())
            raise
        return session.compared()


def _most(processes: int | None) -> int:
    most = STAGES[-1] if processes is None else processes
    if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= STAGES[-1]:
        raise InvalidParameter(
            f"processes: expected a whole number from 2 to {STAGES[-1]}, got {most!r}",
            f"each side is measured in {', '.join(map(str, STAGES))} processes, until it is decided",
        )
    return most


def _confirm_opposite(plans: tuple[Plan, Plan], say: Callable[[str], None]) -> None:
    """UserError before hours of measuring, where nothing of one side would stand opposite anything of the other."""
    a, b = (list(dict.fromkeys(_way(task) for task in plan.tasks)) for plan in plans)
    found = opposite(a, b)
    if found and found.ambiguous:
        say(f"{counted(len(found.ambiguous), 'case')} with several ways on a side and none opposite: not compared")


def _way(task: Task) -> Way:
    return Way(task.case.id, task.backend, task.implementation, task.settings.threads)


def _refuse_ranks(a: Side, b: Side, cases: Sequence[Case]) -> None:
    if any(map(processes, cases)) and not (a.plain and b.plain):
        raise UserError(
            "a variable or a revision is not handed on to the ranks of a case that takes several processes",
            "leave such cases out, or compare backends or threads",
        )


class _Session:
    """The runs of both sides, and how they compare so far."""

    def __init__(
        self,
        store: Store,
        sides: tuple[Side, Side],
        plans: tuple[Plan, Plan],
        label: str,
        margin: float,
        most: int,
        settled: Callable[[Pairing], bool],
    ) -> None:
        self._store = store
        self._sides = sides
        self._margin = margin
        self._settled = settled
        session, first = secrets.token_hex(8), stages(most)[0]
        self.recorders = [
            RunRecorder(store, _run(side, plan, f"{label} {letter}" if label else _label(side), session, first))
            for side, plan, letter in zip(sides, plans, "ab", strict=True)
        ]
        self.verdicts: Counter[Verdict] = Counter()

    def settled_cases(self) -> set[str]:
        """The cases that need no more pairs."""
        found = self.compared()
        self.verdicts = found.counts()
        waiting = {pair.case for pair in found.pairs if not self._settled(pair) and _may_be_decided(pair)}
        return {pair.case for pair in found.pairs} - waiting

    def compared(self) -> Compared:
        a, b = (
            side_of(self._store, recorder.run, side.name)
            for recorder, side in zip(self.recorders, self._sides, strict=True)
        )
        cases = self._store.cases({figure.case for side in (a, b) for figure in side.figures})
        return compare(a, b, cases, margin=self._margin, unlike=True)


def _may_be_decided(pair: Pairing) -> bool:
    """Whether more pairs may decide a case: there is a number, or one that the scheduler spoilt."""
    return pair.ratio is not None or (pair.statuses == ("ok", "ok") and PREEMPTED in pair.note)


def _run(side: Side, plan: Plan, label: str, session: str, pairs: int) -> Run:
    """The run of one side. Its plan id is its own, since nobody can resume it; it has the tasks that are surely run."""
    surely = sum(task.settings.process < pairs for task in plan.tasks) + len(plan.skipped)
    run = replace(new_run(plan, label), session=session, plan=content_id([plan.id, session, side.name]), tasks=surely)
    return replace(run, revision=side.checkout.commit) if side.checkout else run


def _label(side: Side) -> str:
    commit = side.checkout.commit if side.checkout else ""
    return f"ab {short_revision(commit) if commit else side.name}"
