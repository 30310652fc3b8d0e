"""Cases x implementations x backends x settings -> tasks; what cannot run -> records that say why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from opmark.backends.null import NOTHING
from opmark.errors import UserError
from opmark.guests.place import why_missing
from opmark.interfaces import BackendInfo
from opmark.registry import backend as find_backend
from opmark.registry import implementations as registered
from opmark.registry import operator as find_operator
from opmark.schema import DEVICE_PROCESSES, Case, Implementation, Operator, Problem, Record, Settings, Task
from opmark.schema.case import content_id
from opmark.units import counted


@dataclass(frozen=True)
class Plan:
    tasks: tuple[Task, ...]
    """Ordered so that each worker is started once a round; every round has every case in fresh processes."""
    skipped: tuple[Record, ...]
    """What cannot run, with its reason; an operator that is itself broken is an `error` among them."""
    problems: tuple[Problem, ...] = ()
    """What of a foreign file is not in here."""
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same for the same tasks, in whatever order they were asked for."""
        ids = [task.id for task in self.tasks] + [record.task.id for record in self.skipped]
        return content_id(sorted(ids))

    def groups(self) -> Iterator[tuple[str, int, list[Task]]]:
        """(backend, threads, tasks): what one worker process does."""
        for (_, backend, threads), tasks in groupby(self.tasks, key=_worker):
            yield backend, threads, list(tasks)

    def without(self, done: set[str]) -> Plan:
        return replace(
            self,
            tasks=tuple(task for task in self.tasks if task.id not in done),
            skipped=tuple(record for record in self.skipped if record.task.id not in done),
        )


def make_plan(
    cases: Sequence[Case], backends: Sequence[str], settings: Sequence[Settings], *, by_device: bool = False
) -> Plan:
    """`by_device`: nobody asked for a number of processes, and a device needs fewer than a CPU."""
    tasks, skipped = [], []
    for name in dict.fromkeys(backends):
        info = find_backend(name)
        missing = why_missing(info)
        for setting in settings:
            if by_device and info.device != "cpu" and setting.process >= DEVICE_PROCESSES[setting.effort]:
                continue
            for case in cases:
                for planned in _planned(case, info, setting, missing):
                    if isinstance(planned, Record):
                        skipped.append(planned)
                    else:
                        tasks.append(planned)
    if not tasks:
        raise _nothing_to_run(skipped)
    tasks.sort(key=lambda task: task.settings.process)  # round by round: what drifts meanwhile hits all cases alike
    # What cannot run cannot run in any process: once is enough.
    return Plan(tuple(tasks), tuple(record for record in skipped if record.task.settings.process == 0))


def _worker(task: Task) -> tuple[int, str, int]:
    return task.settings.process, task.backend, task.settings.threads


def implementations(operator: Operator, info: BackendInfo) -> tuple[Implementation, ...]:
    """What computes an operator on a backend; a backend that computes nothing takes any operator."""
    return registered(operator, info) or (() if info.computes else (NOTHING,))


def _planned(case: Case, info: BackendInfo, settings: Settings, missing: str | None) -> Iterator[Task | Record]:
    """A task for each implementation, or the record of why there is none."""
    operator = find_operator(case.op)
    found = implementations(operator, info)
    if not found:
        reason = f"`{operator.name}` has no implementation for {info.framework}"
        yield Record(Task(case, info.name, "", settings), "skipped", reason)
    for implementation in found:
        task = Task(case, info.name, implementation.label, settings)
        try:
            lack = info.lacks.get(operator.name) if implementation.framework == info.framework else None
            reason = missing or lack or _why_not(case, operator, info) or ""
        except Exception as error:  # noqa: BLE001 - the functions of a stranger's operator may raise anything
            broken = f"operator `{operator.name}` is broken: {type(error).__name__}: {error}"
            yield Record(task, "error", broken)
        else:
            yield Record(task, "skipped", reason) if reason else task


def _why_not(case: Case, operator: Operator, info: BackendInfo) -> str | None:
    named = {case.params[param.name] for param in operator.params if param.kind == "dtype"}
    named |= {spec.dtype for spec in operator.inputs(case.params).values()}
    lacking = sorted(named - info.dtypes)
    if lacking:
        return f"{info.name} has no {', '.join(lacking)}"
    if case.phase != "forward" and not info.differentiates:
        return f"{info.name} has no automatic differentiation, so no phase {case.phase}"
    return operator.why_no_phase(case.params, case.phase)


def _nothing_to_run(skipped: Sequence[Record]) -> UserError:
    """Asking only for what cannot be had is a mistake, not a run of skipped records."""
    reasons = dict.fromkeys(record.reason for record in skipped)
    listed = "; ".join(list(reasons)[:3]) + ("; ..." if len(reasons) > 3 else "")
    return UserError(
        f"nothing can run of {counted(len(skipped), 'task')}: {listed}",
        "`opmark list backends` says what can run here, `opmark describe OP` what an operator takes",
    )
