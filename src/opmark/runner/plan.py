"""Plans a run: tasks from cases, implementations, backends and settings, and skipped records for what cannot run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace as replace_fields

from opmark.errors import InvalidParameter, OpmarkError, Unsupported, UserError, one_line
from opmark.hardware.host import affinity
from opmark.plugin import BackendInfo, Implementation, Operator
from opmark.plugin.registry import MODEL, implementations
from opmark.plugin.registry import backend as find_backend
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
    Resources,
    Sampling,
    Settings,
    Task,
)
from opmark.schema.case import content_id
from opmark.schema.load import Load
from opmark.schema.measurement import REQUEST_LATENCY
from opmark.schema.options import MOST_THREADS, MeasureOptions, as_list, names_function, split_names
from opmark.units import count_noun
from opmark.worker.functions import implementation_of


@dataclass(frozen=True)
class Plan:
    tasks: tuple[Task, ...]
    """Tasks in rounds: each worker is started once per round, and every round has every case in fresh processes."""
    skipped: tuple[Record, ...]
    """Records of tasks that cannot run, with the reason. An operator that is itself broken gives an `error`."""
    problems: tuple[ImportProblem, ...] = ()
    """Parts of a foreign file that could not be imported."""
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same for the same tasks, in whatever order they were asked for."""
        ids = [task.id for task in self.tasks] + [record.task.id for record in self.skipped]
        return content_id(sorted(ids))

    def groups(self) -> Iterator[TaskGroup]:
        keys = (
            (t.settings.process, t.backend, t.settings.threads, rank_count(t.case), t.settings.resources)
            for t in self.tasks
        )
        for (_, backend, threads, ranks, own), pairs in groupby(zip(keys, self.tasks, strict=True), key=itemgetter(0)):
            yield TaskGroup(backend, threads, ranks, [task for _, task in pairs], own)

    def without(self, done: set[str]) -> Plan:
        return replace(
            self,
            tasks=tuple(task for task in self.tasks if task.id not in done),
            skipped=tuple(record for record in self.skipped if record.task.id not in done),
        )


class TaskGroup(NamedTuple):
    """Tasks that one worker process, or one group of ranks, does one after the other."""

    backend: str
    threads: int
    ranks: int
    """0 where a single worker does the tasks."""
    tasks: list[Task]
    resources: Resources | None = None


def make_plan(
    cases: Sequence[Case],
    backends: Sequence[str],
    settings: Sequence[Settings],
    *,
    by_device: bool = False,
    divided: bool = False,
    impl: Sequence[str] = (),
    alone: bool = False,
    may_be_empty: bool = False,
    missing_there: Callable[[BackendInfo], str | None] = why_missing,
) -> Plan:
    """Make the tasks of all cases on all backends, in the order in which they run.

    `impl`: implementations to use, by label, and functions of the user; unless they stand `alone`, functions without a
    label run beside all implementations. `by_device`: use fewer processes on a device and for several ranks than on a
    CPU. `divided`: let the ranks of a host share its threads. `may_be_empty`: return a plan also if nothing can run.
    `missing_there`: says why a backend is missing where the tasks will run.
    """
    choice = _ImplementationChoice(impl, alone=alone)
    tasks, skipped = [], []
    ranks_of = {case.id: rank_count(case) for case in cases}
    for name in dict.fromkeys(backends):
        info = find_backend(name)
        missing = missing_there(info)
        for setting in settings:
            few = setting.process >= DEVICE_PROCESSES[setting.effort]
            if by_device and info.device != "cpu" and few:
                continue
            for case in cases:
                ranks = ranks_of[case.id]
                if by_device and ranks and few:
                    continue
                own = setting
                if divided and ranks:
                    own = replace_fields(setting, threads=max(1, setting.threads // ranks))
                for planned in _plan_case(case, info, own, missing, choice):
                    if isinstance(planned, Record):
                        skipped.append(planned)
                    else:
                        tasks.append(planned)
    if not tasks and not may_be_empty:
        raise _nothing_to_run(skipped)
    # Round by round: a drift of the machine hits all cases alike. A group of ranks is started once for all its cases.
    place = {name: i for i, name in enumerate(dict.fromkeys(task.backend for task in tasks))}
    tasks.sort(key=lambda task: (task.settings.process, place[task.backend], ranks_of[task.case.id]))
    # A task that cannot run is recorded once, not once per process.
    return Plan(tuple(tasks), tuple(record for record in skipped if record.task.settings.process == 0))


def rank_count(case: Case) -> int:
    """Number of ranks that a case takes; 0 where a single worker does it."""
    return find_operator(case.op).processes(case.params)


class _ImplementationChoice:
    """Chooses the implementations of an operator on a backend. Functions of the user are not imported."""

    def __init__(self, names: Sequence[str], *, alone: bool) -> None:
        self._functions = [name for name in names if names_function(name)]
        self._labels = [name for name in names if not names_function(name)]
        self._all = not (self._labels or (self._functions and alone))
        for name in self._functions:
            place = name.rpartition(":")[0]
            if place.endswith(".py") and not os.path.isfile(place):  # noqa: PTH113 - any text
                raise UserError(f"--impl: there is no file {place}", "as in --impl kernels.py:softmax")

    def choose(self, operator: Operator, info: BackendInfo) -> list[Implementation]:
        every = implementations(operator, info, every=not self._all)
        known = [one for one in every if self._all or one.label in self._labels]
        return known + [implementation_of(name, info.framework) for name in self._functions]

    def why_none(self, operator: Operator, info: BackendInfo) -> str:
        wanted = "" if self._all else f" `{', '.join(self._labels)}`"
        frameworks = dict.fromkeys(one.framework for one in operator.implementations)  # may have several of one
        others = ", ".join(frameworks) if operator.category == MODEL else ""
        exist = f"; it has some for {others}" if others else ""
        return f"`{operator.name}` has no implementation{wanted} for {info.framework}{exist}"


def _plan_case(
    case: Case, info: BackendInfo, settings: Settings, missing: str | None, choice: _ImplementationChoice
) -> Iterator[Task | Record]:
    """Yield a task for each implementation, or a record of why it cannot run."""
    operator = find_operator(case.op)
    found = choice.choose(operator, info)
    if not found:
        reason = missing or choice.why_none(operator, info)
        yield Record(Task(case, info.name, "", settings), "skipped", reason)
    for implementation in found:
        task = Task(case, info.name, implementation.label, settings)
        try:
            lack = info.lacks.get(operator.name) if implementation.framework == info.framework else None
            reason = missing or lack or _why_unsupported(case, operator, info, settings) or ""
        except OpmarkError as error:
            yield Record(task, "skipped" if isinstance(error, Unsupported) else "error", one_line(error))
        except Exception as error:  # noqa: BLE001 - the functions of a stranger's operator may raise anything
            broken = f"operator `{operator.name}` is broken: {type(error).__name__}: {error}"
            yield Record(task, "error", broken)
        else:
            yield Record(task, "skipped", reason) if reason else task


def _why_unsupported(case: Case, operator: Operator, info: BackendInfo, settings: Settings) -> str | None:
    if settings.load and rank_count(case):
        return "ranks do a call together: clients of one process cannot send it"
    if operator.device_only and info.device == "cpu":
        return f"{info.name} computes in the memory of the host: there is no device to move data to or from"
    if operator.recorded and info.compiles:
        return f"{info.name} compiles, and a trace is replayed call by call"
    if operator.ranks and info.compiles:
        return f"{info.name} compiles, and what ranks exchange is not compiled"
    named = {case.params.get(param.name, param.default) for param in operator.params if param.kind == "dtype"}
    named |= {spec.dtype for spec in operator.inputs(case.params).values()}
    lacking = sorted(named - info.dtypes)
    if lacking:
        return f"{info.name} has no {', '.join(lacking)}"
    if case.phase != "forward" and not info.differentiates:
        return f"{info.name} has no automatic differentiation, so no phase {case.phase}"
    return operator.why_no_phase(case.params, case.phase)


def _nothing_to_run(skipped: Sequence[Record]) -> UserError:
    """The error for a plan without any task: that is a mistake, not a run of skipped records."""
    reasons = dict.fromkeys(record.reason for record in skipped)
    listed = "; ".join(list(reasons)[:3]) + ("; ..." if len(reasons) > 3 else "")
    if any(record.status == "error" for record in skipped):  # the reasons say what to do
        return UserError(f"nothing can run of {count_noun(len(skipped), 'task')}: {listed}")
    return UserError(
        f"nothing can run of {count_noun(len(skipped), 'task')}: {listed}",
        "`opmark list backends` says what can run here, `opmark describe OP` what an operator takes",
    )


_SAMPLING = ("rel_ci", "min_time", "max_time", "min_samples", "warmup", "samples")
"""Options that replace the field of the same name in the sampling of the effort."""


def settings_for(options: MeasureOptions, cores: int | None = None) -> list[Settings]:
    """The settings of a task for each process, each number of threads and each load. `cores`: how many threads there
    are unless the options say so; None: as this machine has."""
    mode, timer, quantities = options.mode, options.timer, split_names(options.quantity)
    loads = _loads(options)
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
        threads=1, effort=options.effort, sampling=_sampling(options), seed=options.seed, verify=options.verify,
        compile_only=options.compile_only, artifact=str(Path(options.artifact).absolute()) if options.artifact else "",
        data=options.data_choice, **named,
    )  # fmt: skip
    usual = 1 if options.compile_only or options.data_choice else PROCESSES[options.effort]
    rounds = usual if options.processes is None else options.processes
    counts = list(dict.fromkeys(as_list(options.threads))) or [cores or default_threads()]
    return [
        replace_fields(base, threads=count, process=process, load=load)
        for process in range(rounds)
        for count in counts
        for load in loads
    ]


_LOAD = ("clients", "arrival", "rate", "requests", "request_timeout")
"""Options that put a case under load."""
_NO_LOAD = {
    "mode": "a mode measures single calls", "cache": "requests follow each other, so caches are warm",
    "timer": "a request is timed by the clock of the host", "compile_only": "it measures nothing",
    **dict.fromkeys(
        ("rel_ci", "min_time", "max_time", "min_samples", "samples"), "--requests says how long a load lasts"
    ),
}  # fmt: skip
"""Options that a load refuses, with the reason."""


def _loads(options: MeasureOptions) -> list[Load] | list[None]:
    """The loads that the options ask for, each of which becomes a task; a single None where they ask for none."""
    asked = [name for name in _LOAD if getattr(options, name) not in (None, "", (), [])]
    quantities = split_names(options.quantity)
    if not asked and REQUEST_LATENCY not in quantities:
        return [None]
    flag = f"--{asked[0].replace('_', '-')}" if asked else f"--quantity {REQUEST_LATENCY}"
    for name, reason in _NO_LOAD.items():
        if getattr(options, name) not in (None, "", (), [], False):
            raise UserError(
                f"{flag} puts a case under load, which has no --{name.replace('_', '-')}: {reason}",
                "leave one of them out",
            )
    if others := [name for name in quantities if name != REQUEST_LATENCY]:
        raise UserError(
            f"{flag} measures {REQUEST_LATENCY}, not {', '.join(others)}",
            "measure other quantities in a run without load",
        )
    arrival = options.arrival or "closed"
    rates = list(dict.fromkeys(as_list(options.rate)))
    if rates and arrival == "closed":
        raise UserError(
            "--rate is for requests that are due at given times; in a closed loop the answers decide the rate",
            "add --arrival poisson, or leave --rate out",
        )
    if not rates and arrival != "closed":
        raise UserError(
            f"--arrival {arrival} needs a rate in requests per second", f"as in --arrival {arrival} --rate 50"
        )
    usual = Load(1)
    requests = usual.requests if options.requests is None else options.requests
    limit = usual.request_timeout if options.request_timeout is None else options.request_timeout
    found = [
        Load(clients, requests, arrival, rate, limit)  # type: ignore[arg-type]
        for clients in dict.fromkeys(as_list(options.clients) or [usual.clients])
        for rate in rates or [0.0]
    ]
    for load in found:
        if load.rate and load.total / load.rate > options.timeout:
            raise UserError(
                f"{load.total} requests at {load.rate:g} per second take {load.total / load.rate:.0f} s, longer than a "
                f"task may take (--timeout {options.timeout:g})",
                "fewer --requests, a higher --rate, or a longer --timeout",
            )
    return found


def default_threads() -> int:
    """OMP_NUM_THREADS where it is set, else one thread per core."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdecimal() and 1 <= int(setting) <= MOST_THREADS else len(affinity())


def _sampling(options: MeasureOptions) -> Sampling:
    """The sampling of the effort, with the fields that the options replace."""
    chosen = {name: value for name in _SAMPLING if (value := getattr(options, name)) is not None}
    if "samples" in chosen and chosen.keys() & {"rel_ci", "min_time", "max_time", "min_samples"}:
        raise InvalidParameter("a fixed number of samples leaves nothing to stop earlier", "leave --samples out")
    found = replace_fields(EFFORTS[options.effort], **chosen)
    if found.min_time <= found.max_time:
        return found
    if "min_time" in chosen and "max_time" in chosen:
        raise InvalidParameter(
            f"min_time {found.min_time:g} s is longer than max_time {found.max_time:g} s", "leave one of them out"
        )
    # The one of the two that was chosen wins.
    least = found.min_time if "min_time" in chosen else found.max_time
    return replace_fields(found, min_time=least, max_time=least)
