"""Cases x implementations x backends x settings -> tasks; what cannot run -> records that say why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace as replace_fields
from msgspec.structs import replace as structs_replace

from opmark.errors import InvalidParameter, UserError
from opmark.hardware.host import affinity
from opmark.plugin import BackendInfo, Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import why_missing
from opmark.schema import (
    DEVICE_PROCESSES,
    EFFORTS,
    MODES,
    PROCESSES,
    Case,
    ImportProblem,
    Record,
    Sampling,
    Settings,
    Task,
)
from opmark.schema.case import content_id
from opmark.schema.options import MOST_THREADS, MeasureOptions, as_list, split_names
from opmark.units import count_noun


@dataclass(frozen=True)
class Plan:
    tasks: tuple[Task, ...]
    """Ordered so that each worker is started once a round; every round has every case in fresh processes."""
    skipped: tuple[Record, ...]
    """What cannot run, with its reason; an operator that is itself broken is an `error` among them."""
    problems: tuple[ImportProblem, ...] = ()
    """What of a foreign file is not in here."""
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same for the same tasks, in whatever order they were asked for."""
        ids = [task.id for task in self.tasks] + [record.task.id for record in self.skipped]
        return content_id(sorted(ids))

    def groups(self) -> Iterator[TaskGroup]:
        for (_, backend, threads, ranks), tasks in groupby(self.tasks, key=_worker):
            yield TaskGroup(backend, threads, ranks, list(tasks))

    def without(self, done: set[str]) -> Plan:
        return replace(
            self,
            tasks=tuple(task for task in self.tasks if task.id not in done),
            skipped=tuple(record for record in self.skipped if record.task.id not in done),
        )


def _shared(settings: Settings, ranks: int) -> Settings:
    """Each rank has its part of the cores."""
    return replace_fields(settings, threads=max(1, settings.threads // ranks)) if ranks else settings


class TaskGroup(NamedTuple):
    """What one worker process does, or the ranks of one world."""

    backend: str
    threads: int
    ranks: int
    """0: a worker of its own."""
    tasks: list[Task]


def make_plan(
    cases: Sequence[Case],
    backends: Sequence[str],
    settings: Sequence[Settings],
    *,
    by_device: bool = False,
    divided: bool = False,
) -> Plan:
    """`by_device`: nobody asked for a number of processes, and a device, or several ranks, need fewer than a CPU.
    `divided`: nobody asked for threads, so that the ranks of a host share its cores.
    """
    tasks, skipped = [], []
    for name in dict.fromkeys(backends):
        info = find_backend(name)
        missing = why_missing(info)
        for setting in settings:
            few = setting.process >= DEVICE_PROCESSES[setting.effort]
            if by_device and info.device != "cpu" and few:
                continue
            for case in cases:
                ranks = rank_count(case)
                if by_device and ranks and few:
                    continue
                for planned in _planned(case, info, _shared(setting, ranks) if divided else setting, missing):
                    if isinstance(planned, Record):
                        skipped.append(planned)
                    else:
                        tasks.append(planned)
    if not tasks:
        raise _nothing_to_run(skipped)
    # Round by round: what drifts meanwhile hits all cases alike. A world of ranks is started once for all its cases.
    place = {name: i for i, name in enumerate(dict.fromkeys(task.backend for task in tasks))}
    tasks.sort(key=lambda task: (task.settings.process, place[task.backend], rank_count(task.case)))
    # What cannot run cannot run in any process: once is enough.
    return Plan(tuple(tasks), tuple(record for record in skipped if record.task.settings.process == 0))


def rank_count(case: Case) -> int:
    """Ranks that it takes; 0 where one worker does it."""
    return find_operator(case.op).processes(case.params)


def _worker(task: Task) -> tuple[int, str, int, int]:
    return task.settings.process, task.backend, task.settings.threads, rank_count(task.case)


def _planned(case: Case, info: BackendInfo, settings: Settings, missing: str | None) -> Iterator[Task | Record]:
    """A task for each implementation, or the record of why there is none."""
    operator = find_operator(case.op)
    found = implementations(operator, info)
    if not found:
        reason = missing or f"`{operator.name}` has no implementation for {info.framework}"
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
    if operator.device_only and info.device == "cpu":
        return f"{info.name} computes in the memory of the host: there is no device to move data to or from"
    if operator.ranks and info.compiles:
        return f"{info.name} compiles, and what ranks exchange is not compiled"
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
        f"nothing can run of {count_noun(len(skipped), 'task')}: {listed}",
        "`opmark list backends` says what can run here, `opmark describe OP` what an operator takes",
    )


# From measuring options to the settings of tasks.

_SAMPLING = ("rel_ci", "min_time", "max_time", "min_samples", "warmup", "samples")
"""Options that replace the field of the same name in the sampling of the effort."""


def settings_for(options: MeasureOptions) -> list[Settings]:
    """One for each process and each number of threads."""
    mode, timer, quantities = options.mode, options.timer, split_names(options.quantity)
    if mode and (quantities or timer):
        what = "--quantity" if quantities else "--timer"
        raise UserError(f"a mode measures one quantity in its own way ({mode}: {MODES[mode]})", f"leave {what} out")
    if timer in ("events", "graph") and "device_time" in quantities and "device_span" not in quantities:
        raise UserError(f"{timer} cannot tell device_time, only device_span", "--quantity device_span, or no --timer")
    named: dict[str, Any] = {
        "quantities": tuple(dict.fromkeys(quantities)),
        "caches": tuple(dict.fromkeys(split_names(options.cache))),
        "mode": mode,
        "timer": timer,
    }
    base = Settings(
        threads=1, effort=options.effort, sampling=_sampling(options), seed=options.seed, verify=options.verify, **named
    )  # fmt: skip
    rounds = PROCESSES[options.effort] if options.processes is None else options.processes
    counts = list(dict.fromkeys(as_list(options.threads))) or [default_threads()]
    return [structs_replace(base, threads=count, process=process) for process in range(rounds) for count in counts]


def default_threads() -> int:
    """As many as the environment says, in the words that math libraries know, or else one per core."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and 1 <= int(told) <= MOST_THREADS else len(affinity())


def _sampling(options: MeasureOptions) -> Sampling:
    """The sampling of the effort, with what was asked for in its place."""
    asked = {name: getattr(options, name) for name in _SAMPLING}
    given = {name: value for name, value in asked.items() if value is not None}
    if "samples" in given and given.keys() & {"rel_ci", "min_time", "max_time", "min_samples"}:
        raise InvalidParameter("a fixed number of samples leaves nothing to stop earlier", "leave --samples out")
    found = structs_replace(EFFORTS[options.effort], **given)
    if found.min_time <= found.max_time:
        return found
    if "min_time" in given and "max_time" in given:
        raise InvalidParameter(
            f"min_time {found.min_time:g} s is longer than max_time {found.max_time:g} s", "leave one of them out"
        )
    # Who asks for a long minimum gets it, and who asks for a short budget has it kept.
    least = found.min_time if "min_time" in given else found.max_time
    return structs_replace(found, min_time=least, max_time=least)
