"""One run from its plan to its last record: a worker at a time, every record stored as soon as it is made."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path

import psutil

from opmark.errors import UserError
from opmark.interfaces import Store
from opmark.registry import backend as find_backend
from opmark.runner import early
from opmark.runner.execute import utc_now
from opmark.runner.plan import Group, Plan
from opmark.runner.process import WorkerDied
from opmark.runner.ranks.crew import Crew
from opmark.runner.ranks.muster import Muster
from opmark.runner.revision_now import revision_now
from opmark.runner.sides import Side
from opmark.runner.supervisor import DEFAULT_COMPILE_TIMEOUT, Keep, Say, Supervisor
from opmark.runner.worker import Hello
from opmark.schema import Record, Run, Status, Task
from opmark.store.location import without_secrets
from opmark.version import VERSION

_FEWER_RANKS = "--ranks says how many processes take part; `opmark list backends` says what can run here"
# What an idle worker may hold, its framework imported.
_MEMORY_OF_A_WORKER = 1 << 30
_OURS = ("opmark", "opmark.exe", "__main__.py")
"""Names of the program when it is opmark that was called."""


def perform(
    plan: Plan,
    timeout: float,
    say: Say,
    keep: Keep,
    *,
    fresh: bool = True,
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
    muster: Muster | None = None,
) -> Iterator[Record]:
    """The records of a plan, as they come; what is skipped comes last.

    UserError where no backend can run at all: asking only for what cannot be had is a mistake. Not so for the rest of
    a run that has records already, which is not `fresh`.
    """
    say = _once(say)
    muster = muster or Muster()
    unavailable: dict[tuple[str, str], list[Task]] = {}
    for one in _rounds(plan):
        wanted = [(group, None) for group in one]
        for group, supervisor, hello in staffed(wanted, timeout, say, keep, compile_timeout, muster):
            if isinstance(hello, Hello) and hello.unavailable:
                unavailable.setdefault((group.backend, hello.unavailable), []).extend(group.tasks)
            else:
                yield from done(group, supervisor, hello)
    if fresh and sum(map(len, unavailable.values())) == len(plan.tasks):
        listed = "; ".join(f"backend `{name}` cannot run here: {reason}" for name, reason in unavailable)
        ranks = any(group.ranks for group in plan.groups())
        raise UserError(listed, _FEWER_RANKS if ranks else "`opmark list backends` says what can")
    for (_, reason), tasks in unavailable.items():
        yield from _all(tasks, "skipped", reason)
    yield from plan.skipped


def _rounds(plan: Plan) -> Iterator[list[Group]]:
    """Each the other way round than the one before, so that what drifts evenly hits all backends alike."""
    for i, (_, groups) in enumerate(groupby(plan.groups(), key=lambda group: group.tasks[0].settings.process)):
        yield list(groups)[:: -1 if i % 2 else 1]


def done(group: Group, supervisor: Supervisor | Crew, hello: Hello | WorkerDied) -> Iterator[Record]:
    """A record for each task, by who was found to do it."""
    if isinstance(hello, WorkerDied):
        yield from _all(group.tasks, hello.status, f"{group.backend} cannot start: {hello.reason}")
    elif hello.unavailable:
        yield from _all(group.tasks, "skipped", hello.unavailable)
    else:
        for task in group.tasks:
            yield supervisor.run(task)


def staffed(
    wanted: Sequence[tuple[Group, Side | None]],
    timeout: float,
    say: Say,
    keep: Keep,
    compile_timeout: float,
    muster: Muster,
) -> Iterator[tuple[Group, Supervisor | Crew, Hello | WorkerDied]]:
    """Who does what of one round, one after the other, each with its first word; ended when the next one's turn comes.
    Of a comparison, each for its side.

    Workers of one round on the CPU start together, and all of them have started before the first measures: importing
    frameworks takes seconds and would disturb it. A device is not shared.
    """

    def staff(group: Group, side: Side | None) -> Supervisor | Crew:
        info = find_backend(group.backend)
        if group.ranks:
            return muster.crew(info, group.threads, group.ranks, timeout, keep)
        return Supervisor(info, group.threads, timeout, say, keep, compile_timeout, side)

    crew = [(group, side, staff(group, side)) for group, side in wanted]
    ready: dict[int, Hello | WorkerDied] = {}
    with ExitStack() as stack:
        for *_, supervisor in crew:
            stack.callback(supervisor.close)
        together = {i: (group.backend, group.threads, side) for i, (group, side, who) in enumerate(crew)
                    if find_backend(group.backend).device == "cpu" and isinstance(who, Supervisor)}  # fmt: skip
        if 1 < len(together) <= psutil.virtual_memory().available / _MEMORY_OF_A_WORKER:
            with early.together(together.values()):
                ready = {i: _first_word(crew[i][-1]) for i in together}
        for i, (group, _, supervisor) in enumerate(crew):
            yield group, supervisor, ready.get(i) or _first_word(supervisor)
            supervisor.close()


def _first_word(supervisor: Supervisor | Crew) -> Hello | WorkerDied:
    try:
        return supervisor.start()
    except WorkerDied as death:
        return death


def _once(say: Say) -> Say:
    """The same message is said once, however many workers have it to say."""
    said: set[str] = set()

    def saying(message: str) -> None:
        if message not in said:
            said.add(message)
            say(message)

    return saying


def recorded(store: Store, run: Run, records: Iterator[Record], *, begun: bool) -> Iterator[Record]:
    """Each record, stored. The run itself is written with the first of them: a mistake leaves no empty run. What was
    never tried is not stored: there is nothing to keep, and who resumes the run does it."""
    for record in records:
        if record.untried:
            yield record
            continue
        if not begun:
            store.begin(run)
            begun = True
        store.append(run.id, record)
        yield record


def _all(tasks: list[Task], status: Status, reason: str) -> Iterator[Record]:
    for task in tasks:
        yield Record(task, status, reason, started=utc_now())


def new_run(plan: Plan, label: str) -> Run:
    now = datetime.now(timezone.utc)
    return Run(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
        started=now.isoformat(timespec="milliseconds"),
        plan=plan.id,
        tasks=len(plan.tasks) + len(plan.skipped),
        label=label,
        command=_command(sys.argv),
        version=VERSION,
        revision=revision_now(),
    )


def _command(argv: Sequence[str]) -> str:
    """As it was typed, without secrets: where our own program lies is nobody's business."""
    program = "opmark" if Path(argv[0]).name in _OURS else argv[0]
    return shlex.join(without_secrets([program, *argv[1:]])).encode(errors="backslashreplace").decode()


def run_to_resume(store: Store, plan: Plan, label: str) -> Run:
    """The newest run of the same plan, and of the label if one is given."""
    for run in store.runs():
        if run.plan == plan.id and (not label or run.label == label):
            return run
    raise UserError(
        "no stored run has this plan" + (f" and the label `{label}`" if label else ""),
        "--resume needs the same operators, parameters, backends and effort as the run that was interrupted",
    )
