"""Measure two sides in turns and compare them: `opmark ab`."""

from __future__ import annotations

import dataclasses
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from functools import partial

from msgspec.structs import replace

from opmark.analysis.compared_side import side_of
from opmark.analysis.comparison import compare
from opmark.analysis.pairs import opposite, way_of_task
from opmark.api.fleet import open_fleet
from opmark.api.keywords import keywords_of
from opmark.api.requests import ABRequest, TurnOptions, talk
from opmark.api.result import open_store
from opmark.api.run import plan_cases
from opmark.errors import UserError
from opmark.runner.ab.sides import SideOptions, make_sides
from opmark.runner.ab.turns import Turn, TurnSchedule, run_turns, stages
from opmark.runner.clocks import ClockLocks
from opmark.runner.executors.base import LocalExecutor
from opmark.runner.executors.ray_executor import RayExecutor
from opmark.runner.plan import Plan, rank_count
from opmark.runner.selection import SelectedCases, select_cases
from opmark.runner.session import RunRecorder, new_run
from opmark.runner.supervisor import WorkerOptions
from opmark.runner.workload_source import problem_lines
from opmark.schema import Case, Run, Task
from opmark.schema.case import content_id
from opmark.schema.comparison import Compared, Pairing, Verdict
from opmark.schema.measurement import PREEMPTED
from opmark.schema.messages import Side
from opmark.schema.options import MeasureOptions, Names, StoreOptions, as_list, split_names
from opmark.schema.record import MEASURED
from opmark.schema.run import short_revision
from opmark.stats.verdict import STAGES
from opmark.store.protocol import Store
from opmark.units import count_noun


@dataclass(frozen=True)
class TurnProgress:
    """The turn that is about to be measured, and the verdicts so far."""

    turn: Turn
    side: Side
    verdicts: Counter[Verdict]


@keywords_of(ABRequest)
def ab(request: ABRequest) -> Compared:
    """Compare B with A, measured in turns: A B B A A B B A ..., each in a fresh process.

    Either one of `backend`, `impl`, `python` and `threads` has two values, or `env` (`VAR=VALUE`; `VAR=` is empty,
    `VAR` alone unset) or `rev` says how the sides differ, or `same` compares a thing with itself. A single `env` is for
    B and a single `rev` for A; the other side is as things are.
    """
    return ab_request(request)


def ab_request(request: ABRequest) -> Compared:
    selected = select_cases(request, request.seed)
    refuse_ranks_of_others(selected)
    if selected.source is not None:
        for line in problem_lines(selected.source.problems, (*selected.source.notes, *selected.left_out)):
            request.say(line)
    difference = SideOptions(
        backend=split_names(request.backend), impl=split_names(request.impl), python=split_names(request.python),
        threads=as_list(request.threads), env=_texts(request.env), rev=_texts(request.rev), same=request.same,
        repo=request.repo, make=request.make,
    )  # fmt: skip
    with make_sides(difference, selected.cases) as (a, b), ExitStack() as stack:
        fleet = stack.enter_context(closing(open_fleet(request))) if request.executor == "ray" else None
        return measure_sides(
            a, b, selected.cases, request, StoreOptions(label=request.label, db=request.db),
            on_turn=request.on_turn, on_interrupted=request.on_interrupted, say=request.say, fleet=fleet,
        )  # fmt: skip


def _texts(value: Names) -> list[str]:
    """Return one or several texts as a list. They are not split at commas, which variables and revisions may
    contain."""
    return ([value] if value else []) if isinstance(value, str) else list(value)


def refuse_ranks_of_others(selected: SelectedCases) -> None:
    if selected.place:
        launcher = selected.place.launcher
        raise UserError(
            f"sides are measured in turns by one opmark, and a launcher has started several ({launcher})",
            "start `opmark ab` by itself; --ranks says how many processes a case takes",
        )


def measure_sides(
    a: Side,
    b: Side,
    cases: Sequence[Case],
    options: TurnOptions,
    keep: StoreOptions,
    *,
    on_turn: Callable[[TurnProgress], None] | None = None,
    on_interrupted: Callable[[Compared], None] | None = None,
    settled: Callable[[Pairing], bool] = lambda pair: pair.verdict != "undecided",
    say: Callable[[str], None] = talk,
    configure: Callable[[Side, Task], Task] = lambda side, task: task,
    fleet: RayExecutor | None = None,
) -> Compared:
    """Measure both sides in turns and store them as runs of one session, record by record.

    Backend, interpreter and threads are those of the sides, whatever the options say. `settled` tells whether a case
    needs no more processes. `configure` may give a task of a side another implementation and a configuration. On
    Ctrl-C, `on_interrupted` gets the comparison so far before the exception passes on.
    """
    most = STAGES[-1] if options.processes is None else options.processes
    _refuse_ranks(a, b, cases)
    one, two = (
        _configured(
            plan_cases(
                SelectedCases(list(cases)), options_of_side(options, side, most), alone=bool(side.implementation),
                db=keep.db, fleet=fleet,
            ),
            partial(configure, side),
        )
        for side in (a, b)
    )  # fmt: skip
    for note in dict.fromkeys((*one.notes, *two.notes)):  # which tuned configurations are applied, among others
        say(note)
    _confirm_opposite((one, two), say)
    with (
        closing(ClockLocks("" if fleet else options.clocks, say)) as clocks,
        closing(open_store(keep.db, create=True)) as store,
    ):
        session = _ABSession(store, (a, b), (one, two), keep.label, options.margin, most, settled)

        def announce(turn: Turn) -> None:
            if on_turn:
                on_turn(TurnProgress(turn, (a, b)[turn.side], session.verdicts))

        workers = WorkerOptions(options.timeout, options.compile_timeout, say, store.add_environment, clocks=clocks)
        schedule = TurnSchedule(
            session.settled_cases, workers, most, options.budget, announce, executor=fleet or LocalExecutor()
        )
        try:
            for side, record in run_turns((a, b), (one, two), schedule):
                session.recorders[side].add(record)
        except KeyboardInterrupt:
            if on_interrupted and all(recorder.begun for recorder in session.recorders):
                on_interrupted(session.compared())
            raise
        return session.compared()


def _configured(plan: Plan, configure: Callable[[Task], Task]) -> Plan:
    tasks = {task.id: task for task in map(configure, plan.tasks)}
    return dataclasses.replace(plan, tasks=tuple(tasks.values()))


def options_of_side(options: MeasureOptions, side: Side, processes: int) -> MeasureOptions:
    """Return the same options with the backend, the implementation and the threads of a side. The name of a backend
    holds its interpreter."""
    values = {one.name: getattr(options, one.name) for one in fields(MeasureOptions)}
    own = {"backend": side.backend, "python": (), "threads": side.threads, "impl": side.implementation or options.impl}
    return MeasureOptions(**{**values, **own, "processes": processes})


def _confirm_opposite(plans: tuple[Plan, Plan], say: Callable[[str], None]) -> None:
    """Raise UserError before hours of measuring if no task of one side has a counterpart on the other."""
    a, b = (list(dict.fromkeys(way_of_task(task) for task in plan.tasks)) for plan in plans)
    found = opposite(a, b)
    if found and found.ambiguous:
        say(f"{count_noun(len(found.ambiguous), 'case')} with several ways on a side and none opposite: not compared")


def _refuse_ranks(a: Side, b: Side, cases: Sequence[Case]) -> None:
    if any(map(rank_count, cases)) and not (a.plain and b.plain):
        raise UserError(
            "a variable or a revision is not handed on to the ranks of a case that takes several processes",
            "leave such cases out, or compare backends or threads",
        )


class _ABSession:
    """The runs of both sides, and their comparison so far."""

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
        """Return the ids of the cases that need no more pairs of processes."""
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
    """Return whether more pairs may decide a case: both sides have a number, or the scheduler spoilt one."""
    return pair.ratio is not None or (MEASURED.issuperset(pair.statuses) and PREEMPTED in pair.note)


def _run(side: Side, plan: Plan, label: str, session: str, pairs: int) -> Run:
    """Make the run of one side. It cannot be resumed, so its plan id is its own; it counts only the tasks that will run
    in any case."""
    certain = sum(task.settings.process < pairs for task in plan.tasks) + len(plan.skipped)
    run = replace(new_run(plan, label), session=session, plan=content_id([plan.id, session, side.name]), tasks=certain)
    return replace(run, revision=side.checkout.commit) if side.checkout else run


def _label(side: Side) -> str:
    commit = side.checkout.commit if side.checkout else ""
    return f"ab {short_revision(commit) if commit else side.name}"
