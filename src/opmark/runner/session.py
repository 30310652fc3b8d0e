"""One run from its plan to its last record: a worker at a time, every record stored as soon as it is made."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone

from opmark.errors import UserError
from opmark.interfaces import Store
from opmark.registry import backend as find_backend
from opmark.runner.execute import utc_now
from opmark.runner.plan import Plan
from opmark.runner.process import WorkerDied
from opmark.runner.supervisor import DEFAULT_COMPILE_TIMEOUT, Keep, Say, Supervisor
from opmark.schema import Record, Run, Status, Task
from opmark.version import VERSION


def perform(
    plan: Plan,
    timeout: float,
    say: Say,
    keep: Keep,
    *,
    fresh: bool = True,
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
) -> Iterator[Record]:
    """The records of a plan, as they come; what is skipped comes last.

    UserError where no backend can run at all: asking only for what cannot be had is a mistake. Not so for the rest of
    a run that has records already, which is not `fresh`.
    """
    say = _once(say)
    unavailable: dict[tuple[str, str], list[Task]] = {}
    for name, threads, tasks in plan.groups():
        with closing(Supervisor(find_backend(name), threads, timeout, say, keep, compile_timeout)) as supervisor:
            try:
                hello = supervisor.start()
            except WorkerDied as death:
                yield from _all(tasks, death.status, f"{name} cannot start: {death.reason}")
                continue
            if hello.unavailable:
                unavailable.setdefault((name, hello.unavailable), []).extend(tasks)
                continue
            for task in tasks:
                yield supervisor.run(task)
    if fresh and sum(map(len, unavailable.values())) == len(plan.tasks):
        listed = "; ".join(f"backend `{name}` cannot run here: {reason}" for name, reason in unavailable)
        raise UserError(listed, "`opmark list backends` says what can")
    for (_, reason), tasks in unavailable.items():
        yield from _all(tasks, "skipped", reason)
    yield from plan.skipped


def _once(say: Say) -> Say:
    """The same message is said once, however many workers have it to say."""
    said: set[str] = set()

    def saying(message: str) -> None:
        if message not in said:
            said.add(message)
            say(message)

    return saying


def recorded(store: Store, run: Run, records: Iterator[Record], *, begun: bool) -> Iterator[Record]:
    """Each record, stored. The run itself is written with the first of them: a mistake leaves no empty run."""
    for record in records:
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
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        started=now.isoformat(timespec="milliseconds"),
        plan=plan.id,
        tasks=len(plan.tasks) + len(plan.skipped),
        label=label,
        command=shlex.join(sys.argv).encode(errors="backslashreplace").decode(),
        version=VERSION,
    )


def run_to_resume(store: Store, plan: Plan, label: str) -> Run:
    """The newest run of the same plan, and of the label if one is given."""
    for run in store.runs():
        if run.plan == plan.id and (not label or run.label == label):
            return run
    raise UserError(
        "no stored run has this plan" + (f" and the label `{label}`" if label else ""),
        "--resume needs the same operators, parameters, backends and effort as the run that was interrupted",
    )
