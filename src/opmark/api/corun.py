"""Measure operators that run at the same time: `opmark corun`."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.analysis.corun import corun_results, known_slowdown
from opmark.analysis.rows import MachineFacts
from opmark.api.keywords import keywords_of
from opmark.api.program_requests import CorunRequest
from opmark.api.result import machine_at, open_store
from opmark.errors import InvalidParameter, UserError
from opmark.hardware.host import cores_by_place
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.ab.turns import stages
from opmark.runner.clocks import ClockLocks
from opmark.runner.corun import Member, member_tasks, round_of, run_company, share_streams
from opmark.runner.plan import Plan, make_plan, rank_count, settings_for
from opmark.runner.selection import default_backends, parse_params, select_cases
from opmark.runner.session import RunRecorder, begin_or_resume, new_run
from opmark.runner.supervisor import WorkerOptions
from opmark.runner.workload_source import problem_lines
from opmark.schema import Case, Record, Run, Settings, Task
from opmark.schema.case import content_id
from opmark.schema.company import cores_text
from opmark.schema.corun import CorunResult
from opmark.schema.options import MeasureOptions, Selection, as_list, split_names
from opmark.schema.record import MEASURED
from opmark.stats.verdict import STAGES
from opmark.store.protocol import Store
from opmark.tuning.database import refuse_tuned
from opmark.units import count_noun

__all__ = ["Corun", "corun", "corun_request", "corun_view", "known_slowdown"]

_MOST_MEMBERS = 32
_NUMBERED = re.compile(r"(?P<place>\d+)\.(?P<rest>.+)", re.DOTALL)
SPLIT, SHARED = "split", "shared"


@dataclass(frozen=True)
class Corun:
    """The result of `opmark corun`."""

    run: Run
    results: list[CorunResult]
    """One for each pair, and one for the whole group."""
    records: list[Record] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return any(record.failed for record in self.records)


@keywords_of(CorunRequest)
def corun(request: CorunRequest) -> Corun:
    """Measure operators that run at the same time, two by two, against each alone and one after the other.

    All of that is measured in turns, in rounds of fresh processes, and results are verified while the others run. With
    `tune`, cores, threads and knobs of all of them are searched together first. Every record says beside what it was
    measured, so that no comparison, history or ranking takes it for anything else.
    """
    return corun_request(request)


def corun_request(request: CorunRequest) -> Corun:
    operators = _operators(request)
    session = CorunSession(request, operators)
    if request.tune:
        from opmark.api.corun_tuning import tune_company

        return tune_company(session)
    return session.run(session.companies())


# Which operators.


@dataclass(frozen=True)
class CorunOperator:
    """One of the operators of the command line, in its place, without threads and cores."""

    case: Case
    info: BackendInfo
    implementation: str

    @property
    def on_host(self) -> bool:
        """Whether it computes on the cores of this machine."""
        return self.info.device in ("cpu", "none") and not self.info.streams


def _operators(request: CorunRequest) -> list[CorunOperator]:
    cases = _cases(request)
    if len(cases) < 2:
        raise UserError(
            f"expected at least two operators that run at the same time, got {len(cases)}",
            "name two, as in `opmark corun matmul softmax`; the same one may be named twice",
        )
    if len(cases) > _MOST_MEMBERS:
        raise UserError(
            f"expected at most {_MOST_MEMBERS} operators, got {len(cases)}",
            "choose fewer: take entries out of the workload" if request.workload is not None else "choose fewer",
        )
    for case in cases:
        if rank_count(case):
            raise UserError(
                f"{case.op} takes several processes of its own, and cannot run beside others here",
                "`opmark run` measures how it overlaps with computation",
            )
    backends = _each("backend", split_names(request.backend) or default_backends(cases), len(cases))
    impls = _each("impl", split_names(request.impl) or [""], len(cases))
    settings = settings_for(_measure_options(request, threads=1, processes=1))[0]
    return [
        _operator(case, find_backend(backend), impl, settings)
        for case, backend, impl in zip(cases, backends, impls, strict=True)
    ]


def _cases(request: CorunRequest) -> list[Case]:
    """Return the case of each place: the same one may be there twice."""
    names, phases, sizes = split_names(request.ops), split_names(request.phase), split_names(request.size)
    if bool(names) == (request.workload is not None):
        raise UserError(
            "expected operators or a workload" + (", got both" if names else ", got nothing"),
            "as in `opmark corun matmul softmax`, or `opmark corun -w ops.yaml`",
        )
    texts = split_texts(request.params)
    if request.workload is not None:
        selected = select_cases(
            Selection(workload=request.workload, phase=phases, size=sizes, params=parse_params([], texts) or None),
            request.seed,
        )
        if selected.source is not None:
            for line in problem_lines(selected.source.problems, (*selected.source.notes, *selected.left_out)):
                request.say(line)
        return selected.cases
    params = _params_by_place(texts, names)
    phases, sizes = _each("phase", phases or ["forward"], len(names)), _each("size", sizes or [""], len(names))
    found = []
    for name, own, phase, size in zip(names, params, phases, sizes, strict=True):
        selection = Selection([name], params=parse_params([name], own), phase=phase, size=size)
        cases = select_cases(selection, request.seed).cases
        if len(cases) != 1:
            raise UserError(
                f"`{name}` stands for {count_noun(len(cases), 'case')}, and one place is for one",
                "give each parameter one value, and name the operator once for each case",
            )
        found += cases
    return found


def split_texts(value: str | Sequence[str]) -> list[str]:
    """Return one or several texts as a list, not split at commas."""
    return ([value] if value else []) if isinstance(value, str) else list(value)


def _params_by_place(texts: Sequence[str], names: Sequence[str]) -> list[list[str]]:
    """Return the texts `NAME=VALUE` of each operator: its own, which replace those for all."""
    found: list[dict[str, str]] = [{} for _ in names]
    for own in (False, True):
        for text in texts:
            numbered = _NUMBERED.fullmatch(text)
            if bool(numbered) != own:
                continue
            rest = numbered["rest"] if numbered else text
            places = range(len(names))
            if numbered:
                place = int(numbered["place"])
                if not 1 <= place <= len(names):
                    raise InvalidParameter(
                        f"-p {text}: there is no operator {place} among {len(names)}", f"as in -p 1.{rest}"
                    )
                places = range(place - 1, place)
            for index in places:
                name = rest.partition("=")[0]
                if not numbered and name not in find_operator(names[index]).by_name:
                    raise InvalidParameter(
                        f"-p {text}: `{names[index]}` has no parameter `{name}`, and this is for all operators",
                        f"-p {_place_with(name, names)}.{text} is for one of them; `opmark describe {names[index]}` "
                        "lists what it takes",
                    )
                found[index][name] = rest
    return [list(own.values()) for own in found]


def _place_with(name: str, names: Sequence[str]) -> int:
    return next((i for i, op in enumerate(names, 1) if name in find_operator(op).by_name), 1)


def _each(option: str, values: Sequence[Any], count: int) -> list[Any]:
    """Return a value for each operator: one for all, or as many as there are."""
    if len(values) not in (1, count):
        raise InvalidParameter(
            f"--{option}: expected one value for all or one for each of {count} operators, got {len(values)}",
            f"as in --{option} {','.join(map(str, (list(values) * count)[:count]))}",
        )
    return list(values) * (count if len(values) == 1 else 1)


def _operator(case: Case, info: BackendInfo, impl: str, settings: Settings) -> CorunOperator:
    refuse_tuned(info, "--tune finds the knobs for running together")
    plan = make_plan([case], [info.name], [settings], impl=[impl] if impl else (), may_be_empty=True)
    if not plan.tasks:
        reason = plan.skipped[0].reason if plan.skipped else "nothing implements it"
        raise UserError(
            f"{case.op} cannot run on {info.name}: {reason}",
            "`opmark list backends` says what can run here, `opmark describe OP` what an operator takes",
        )
    return CorunOperator(case, info, plan.tasks[0].implementation)


def _measure_options(request: CorunRequest, **changed: Any) -> MeasureOptions:
    values: dict[str, Any] = {
        "effort": request.effort, "seed": request.seed, "verify": request.verify, "timeout": request.timeout,
        "compile_timeout": request.compile_timeout, "processes": request.processes,
    }  # fmt: skip
    return MeasureOptions(**{**values, **changed})


# Which cores and threads.


def read_cores(text: str) -> tuple[int, ...]:
    """Return the cores of a set as in `0-3,8`."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise InvalidParameter(
                f"--cores: expected split, shared, or a set of cores for each operator, got `{text}`",
                "as in --cores 0-1 --cores 2,3",
            )
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def split_cores(cores: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return as many disjoint sets of cores as there are operators, as equal as possible. Threads of one physical core
    stay together as far as that goes."""
    if count > len(cores):
        raise UserError(
            f"{count_noun(count, 'operator')} and {count_noun(len(cores), 'core')}: there is no core for each",
            "--cores shared lets all run on all cores; or name fewer operators",
        )
    ends = [round(len(cores) * i / count) for i in range(count + 1)]
    return [tuple(sorted(cores[start:end])) for start, end in pairwise(ends)]


class CorunSession:
    """Measures companies, round by round, and stores every record."""

    def __init__(self, request: CorunRequest, operators: Sequence[CorunOperator]) -> None:
        self.request, self.operators = request, operators
        self.cores = cores_by_place()
        self._texts = [text for text in split_texts(request.cores) if text]
        self.threads = _each("threads", as_list(request.threads) or [0], len(operators))
        self.most = STAGES[-1] if request.processes is None else request.processes
        self._session = secrets.token_hex(8)
        self._check_devices()
        self._check_cores()

    def companies(self) -> list[list[Member]]:
        """Return every pair; of a workload, each operator beside itself too where it can be, because branches of a
        program are often alike; with three operators or more, on request, also all of them."""
        count = len(self.operators)
        places: list[tuple[int, ...]] = list(combinations(range(count), 2))
        if self.request.workload is not None:
            places = sorted([*places, *((place, place) for place in range(count) if self._fits_twice(place))])
        if self.request.group and count > 2:
            places.append(tuple(range(count)))
        return [self.members(one) for one in places]

    def members(self, places: Sequence[int]) -> list[Member]:
        """Return some of the operators as they run together."""
        on_host = [place for place in places if self.operators[place].on_host]
        cores = iter(self._cores_of(on_host))
        whole = self.whole_cores(on_host)
        return [self.member(place, next(cores) if self.operators[place].on_host else (), whole) for place in places]

    def whole_cores(self, places: Sequence[int]) -> tuple[int, ...]:
        """Return the cores that some of the operators have between them."""
        return tuple(sorted({core for own in self._cores_of(places) for core in own}))

    def member(self, place: int, cores: tuple[int, ...], whole: tuple[int, ...]) -> Member:
        """Return an operator on these cores. By itself it could have `whole`, the cores of all."""
        own = self.task(place, self.threads[place] or max(1, len(cores)))
        if len(whole) > len(cores) and self.operators[place].on_host:
            return Member(own, cores, self.task(place, len(whole)), whole)
        return Member(own, cores)

    def task(self, place: int, threads: int) -> Task:
        operator = self.operators[place]
        settings = settings_for(_measure_options(self.request, threads=threads, processes=1))[0]
        return Task(operator.case, operator.info.name, operator.implementation, settings)

    def run(
        self, companies: Sequence[Sequence[Member]], notes: Sequence[str] = (), since: float | None = None
    ) -> Corun:
        """Measure companies in rounds of fresh processes until their verdicts are decided, or time is up: none is begun
        that would take longer than what is left, but the first. `since`: when the time began to run."""
        request, label = self.request, ""
        until = stages(self.most) if request.processes is None else [self.most]
        with (
            closing(ClockLocks("", request.say)) as clocks,
            closing(open_store(request.db, create=True, say=request.say)) as store,
        ):
            recorder, done = self.recorder(store, companies, until[0], label)
            recorder.records += done.values()
            workers = WorkerOptions(
                request.timeout, request.compile_timeout, request.say, store.add_environment, clocks=clocks
            )
            left = list(companies)
            since, process, longest = time.monotonic() if since is None else since, 0, 0.0
            for stage in until:
                while process < stage and left:
                    for place, members in enumerate(left):
                        names = " beside ".join(one.task.case.op for one in members)
                        request.on_step(process * len(left) + place, stage * len(left), names)
                        if round_of(members, process, done):
                            continue
                        began = time.monotonic()
                        if longest and began - since + longest > request.budget:
                            missing = [] if process else [one for one in left[place:] if not round_of(one, 0, done)]
                            notes = [*notes, *_not_begun(len(missing), len(companies))]
                            left = []
                            break
                        recorder.add(*run_company(members, process, workers))
                        longest = max(longest, time.monotonic() - began)
                    process += 1
                undecided = self._undecided(self.results(store, recorder.records, len(until)))
                left = [one for one in left if _key(one) in undecided]
            results = self.results(store, recorder.records, len(until))
        return Corun(recorder.run, results, recorder.records, tuple(notes))

    def recorder(
        self, store: Store, companies: Sequence[Sequence[Member]], rounds: int, label: str
    ) -> tuple[RunRecorder, dict[str, Record]]:
        tasks = tuple(task for process in range(rounds) for one in companies for task in member_tasks(one, process))
        names = " and ".join(dict.fromkeys(one.case.op for one in self.operators))
        plan = Plan(tasks, ())
        run = new_run(plan, label or self.request.label or f"corun {names}"[:200])
        solos = sum(one.solo is not None for members in companies for one in members)
        certain = rounds * (2 * sum(map(len, companies)) + solos)
        asked = [self.request.trials, self.request.seed] if self.request.tune else []
        run = replace(run, session=self._session, plan=content_id([plan.id, label, *asked]), tasks=certain)
        resume = self.request.resume
        if self.request.tune and not label:  # it may have been interrupted in the search
            resume = resume and any(one.plan == run.plan for one in store.runs())
        return begin_or_resume(
            store, run, resume=resume, label=self.request.label if not label else "", say=self.request.say,
            on_record=self.request.on_record,
        )  # fmt: skip

    def results(self, store: Store, records: Sequence[Record], looks: int) -> list[CorunResult]:
        known: dict[str, MachineFacts] = {
            key: machine_at(store, key) for key in dict.fromkeys(record.environment for record in records) if key
        }
        return corun_results(records, known, margin=self.request.margin, looks=looks)

    @staticmethod
    def _undecided(results: Sequence[CorunResult]) -> set[object]:
        """Return the companies that more rounds may decide."""
        return {
            tuple((one.case, one.backend, one.threads, one.cores, one.configuration) for one in result.members)
            for result in results
            if (result.together is None or result.together.verdict == "undecided")
            and MEASURED.issuperset(one.status for one in result.members)
        }

    def _fits_twice(self, place: int) -> bool:
        """Return whether an operator can run beside itself: on streams of its device, or with cores for each."""
        operator = self.operators[place]
        if not operator.on_host:
            return share_streams([operator.info.name])
        return self._texts == [SHARED] or (self._texts in ([], [SPLIT]) and len(self.cores) > 1)

    def _cores_of(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        if not places:
            return []
        texts = self._texts or [SPLIT]
        if texts == [SPLIT]:
            return split_cores(self.cores, len(places))
        if texts == [SHARED]:
            return [tuple(sorted(self.cores))] * len(places)
        return [read_cores(texts[place]) for place in places]

    def _check_cores(self) -> None:
        texts = self._texts
        if texts and texts not in ([SPLIT], [SHARED]) and len(texts) != len(self.operators):
            raise InvalidParameter(
                f"--cores: expected split, shared, or a set for each of {len(self.operators)} operators, "
                f"got {count_noun(len(texts), 'value')}",
                "as in --cores 0-1 --cores 2,3",
            )
        if texts in ([], [SPLIT], [SHARED]):
            if texts != [SHARED]:
                hosts = sum(one.on_host for one in self.operators)
                split_cores(self.cores, max(1, hosts if self.request.group else min(2, hosts)))
            return
        for text, operator in zip(texts, self.operators, strict=True):
            wanted = read_cores(text)
            if absent := sorted(set(wanted) - set(self.cores)):
                raise UserError(
                    f"--cores {text}: this process may not use {cores_text(absent)}",
                    f"it may use {cores_text(self.cores)}",
                )
            if not operator.on_host:
                raise UserError(
                    f"--cores {text}: {operator.case.op} runs on {operator.info.name}, not on cores of this machine",
                    "leave --cores out",
                )

    def _check_devices(self) -> None:
        """Raise UserError where operators cannot share a device."""
        devices: dict[str, set[str]] = {}
        for one in self.operators:
            if not one.on_host:
                devices.setdefault(one.info.device, set()).add(one.info.name)
        for device, names in devices.items():
            on_it = sum(one.info.device == device for one in self.operators)
            if len(names) > 1:
                raise UserError(
                    f"{' and '.join(sorted(names))} would each have a process on the same {device}, and processes take "
                    "turns there",
                    "name one backend for all operators, as in --backend torch-cuda",
                )
            if on_it > 1 and not share_streams(sorted(names)):
                raise UserError(
                    f"{next(iter(names))} cannot run several operators at the same time: it has no streams",
                    "as in --backend torch-cuda or --backend torch-cpu",
                )


def _not_begun(missing: int, every: int) -> list[str]:
    """Return a remark about co-runs that were never begun, because time was up."""
    if not missing:
        return []
    many = f"{missing} of {count_noun(every, 'co-run')} not measured, because --budget is over"
    return [f"{many}: --resume with a longer one goes on"]


def _key(members: Sequence[Member]) -> object:
    return tuple(
        (one.task.case.id, one.task.backend, one.task.settings.threads, one.cores, one.task.settings.configuration)
        for one in members
    )


def corun_view(found: Corun) -> dict[str, Any]:
    """Return the result as plain data."""
    return {
        "run": found.run.id,
        "results": [msgspec.to_builtins(one) for one in found.results],
        "notes": list(found.notes),
    }
