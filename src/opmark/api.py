"""What the command line does, as functions: the same names, the same defaults."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, overload

from msgspec import convert
from msgspec.structs import replace

from opmark.analysis.rank import rank as rank_runs
from opmark.analysis.rank import read, source_of
from opmark.errors import UnknownName, UserError
from opmark.frameworks.coverage import coverage as framework_coverage
from opmark.frameworks.coverage import grouping, last_of_most
from opmark.frameworks.matrix import matrix
from opmark.hardware.datasheets import datasheet, datasheets
from opmark.interfaces import Store
from opmark.registry import catalogue, exporters, operators_like, workload_exporters
from opmark.registry import operator as find_operator
from opmark.report.fits import Fitted, fits
from opmark.report.view import Known
from opmark.result import Result
from opmark.runner.calibrate import calibration
from opmark.runner.chosen import backends_for
from opmark.runner.intake import Intake, Source, complaints, take_in, wishes
from opmark.runner.plan import Plan, make_plan
from opmark.runner.probe import probe
from opmark.runner.profiling import Profiling, profiled
from opmark.runner.ranks.asked import of_ranks
from opmark.runner.request import cases_for, default_backends
from opmark.runner.self_test import PROCESSES, self_test
from opmark.runner.session import new_run, perform, recorded, run_to_resume
from opmark.runner.settings import default_threads, settings_for
from opmark.runner.supervisor import DEFAULT_COMPILE_TIMEOUT
from opmark.schema import (
    QUANTITIES,
    Availability,
    Entry,
    Environment,
    Operator,
    Quantity,
    Record,
    Run,
    Workload,
)
from opmark.schema.coverage import Coverage, Matrix
from opmark.schema.noise import NoiseFloor
from opmark.schema.peaks import Peaks, chip, kept_under
from opmark.schema.ranking import Ranking
from opmark.store import memory
from opmark.store.find import find_run, noise_of, noise_under
from opmark.store.location import store_path
from opmark.units import counted
from opmark.workloads.expand import cases_of, expand
from opmark.workloads.select import Selection

DEFAULT_EFFORT = "standard"
DEFAULT_TIMEOUT = 60.0
LONGEST_TIMEOUT = 1e6

PathLike = str | os.PathLike[str]


def talk(message: str) -> None:
    """Talk goes to stderr, data to stdout."""
    print(message, file=sys.stderr)


def plan(
    ops: str | Sequence[str] = (),
    *,
    workload: Source | None = None,
    suite: str | None = None,
    op: str | Sequence[str] = (),
    category: str | Sequence[str] = (),
    tag: str | Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    size: str | Sequence[str] = (),
    phase: str | Sequence[str] = (),
    python: str | Sequence[str] = (),
    wrt: str | Sequence[str] = (),
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    build: Mapping[str, Any] | Sequence[Any] | None = None,
    backend: str | Sequence[str] = (),
    threads: int | Sequence[int] = (),
    ranks: int | Sequence[int] = (),
    group_size: int | Sequence[int] = (),
    effort: str = DEFAULT_EFFORT,
    quantity: str | Sequence[str] = (),
    cache: str | Sequence[str] = (),
    mode: str = "",
    timer: str = "",
    processes: int | None = None,
    rel_ci: float | None = None,
    min_time: float | None = None,
    max_time: float | None = None,
    warmup: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    verify: bool = True,
    strict: bool = False,
) -> Plan:
    """What `run` would do: `--dry-run`. A workload is a file, a folder, or an object; a foreign file is recognised."""
    taken = None if workload is None else take_in(workload, seed=seed, phases=_many(phase), strict=strict)
    call = {name: value for name, value in (("args", args), ("kwargs", kwargs), ("build", build)) if value is not None}
    selection = Selection(_many(op), _many(category), _many(tag), _many(size))
    named = cases_for(_many(ops), params or {}, _many(phase), taken, suite, _many(wrt), call, selection)
    cases, left_out = of_ranks(named, _numbers(ranks), _numbers(group_size), strict=bool(ops))
    sampling = {"rel_ci": rel_ci, "min_time": min_time, "max_time": max_time, "warmup": warmup, "samples": samples}
    settings = settings_for(
        threads=_numbers(threads), effort=effort, seed=seed, verify=verify,
        quantities=_many(quantity), caches=_many(cache), mode=mode, timer=timer, processes=processes,
        sampling=sampling,
    )  # fmt: skip
    chosen, absent = backends_for(_many(backend) or default_backends(cases), _many(python))
    shared = not _numbers(threads) and not os.environ.get("OMP_NUM_THREADS")
    whole = make_plan(cases, chosen, settings, by_device=processes is None, divided=shared)
    if taken is None:
        return dataclasses.replace(whole, notes=(*left_out, *absent))
    told = () if samples or warmup else tuple(wishes(taken.asked))
    return dataclasses.replace(whole, problems=taken.problems, notes=(*taken.notes, *told, *left_out, *absent))


def run(
    ops: str | Sequence[str] = (),
    *,
    timeout: float = DEFAULT_TIMEOUT,
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
    label: str = "",
    db: PathLike | None = None,
    resume: bool = False,
    profile: Profiling | Sequence[Profiling] | None = None,
    on_start: Callable[[Run, Plan, list[Record]], None] | None = None,
    on_record: Callable[[Record], None] | None = None,
    on_environment: Callable[[Environment], None] | None = None,
    say: Callable[[str], None] = talk,
    **asked: Any,
) -> Result:
    """Measure, store, return: all that `plan` takes, and where to keep it.

    `profile` names profilers that look at what was measured, afterwards. Ctrl-C passes through; what was measured
    until then is in the store.
    """
    if not label.isprintable():
        raise UserError(f"label: expected printable text, got {label!a}")
    _check_timeout(timeout)
    _check_timeout(compile_timeout, "compile_timeout")
    whole = plan(ops, **asked)
    for line in complaints(whole.problems, whole.notes):
        say(line)
    with closing(open_store(db, create=not resume)) as store:
        this = run_to_resume(store, whole, label) if resume else new_run(whole, label)
        records = store.records(this.id) if resume else []
        rest = whole.without({record.task.id for record in records})
        if on_start:
            on_start(this, rest, list(records))
        made = perform(
            rest, timeout, say, _keeping(store, on_environment), fresh=not records, compile_timeout=compile_timeout
        )
        stream = profiled(made, profile, this.id, say)
        try:
            _take(recorded(store, this, stream, begun=resume), records, on_record)
        finally:  # nothing is left unless it was interrupted
            _take(recorded(store, this, stream.left(), begun=resume or bool(records)), records, on_record)
        return dataclasses.replace(_result(store, this, records, db), problems=whole.problems)


def _keeping(store: Store, told: Callable[[Environment], None] | None) -> Callable[[Environment], None]:
    def keep(environment: Environment) -> None:
        store.add_environment(environment)
        if told:
            told(environment)

    return keep


def _take(made: Iterable[Record], records: list[Record], on_record: Callable[[Record], None] | None) -> None:
    for record in made:
        records.append(record)
        if on_record:
            on_record(record)


def read_workload(
    source: Source, *, seed: int = 0, phase: str | Sequence[str] = (), strict: bool = False, format: str = ""
) -> Intake:
    """A file or a folder, ours or foreign, as `opmark import` reads it. What it could not use is in `problems`."""
    return take_in(source, seed=seed, phases=_many(phase), strict=strict, format=format)


def export(run: str | Result | None = None, *, format: str, db: PathLike | None = None) -> Mapping[str, str]:
    """A run, stored or just made, in another system's format: texts by relative path."""
    known = exporters()
    if format not in known:
        raise UnknownName("format of results", format, known, "opmark list formats")
    return known[format].files((run if isinstance(run, Result) else show(run, db=db)).results())


def export_workload(source: Source, *, format: str, strict: bool = False) -> tuple[Mapping[str, str], Sequence[str]]:
    """A workload in another system's format: (texts by relative path, what is not in them or said otherwise)."""
    known = workload_exporters()
    if format not in known:
        raise UnknownName("format of workloads", format, known, "opmark list formats")
    taken = take_in(source, strict=strict)
    whole = replace(taken.workload, cases=[_with_gradients(entry) for entry in taken.workload.cases])
    cases = expand(whole, find_operator, taken.where, operators_like)
    files, unsaid = known[format].files(whole.name, cases)
    again = _again(whole.cases) if taken.foreign else 0
    twice = [f"{counted(again, 'case')} stood there before, and each is written once"] if again else []
    return files, [*(f"not imported: {problem}" for problem in taken.problems), *twice, *unsaid]


def _again(entries: Sequence[Entry]) -> int:
    """Entries that bring no case which was not there before."""
    seen: set[str] = set()
    again = 0
    for entry in entries:
        ids = {case.id for case in cases_of(entry, find_operator)}
        again += ids <= seen
        seen |= ids
    return again


def _with_gradients(entry: Entry) -> Entry:
    """Which gradients an entry is about can be seen of a backward case alone."""
    missing = bool(entry.wrt) and "backward" not in entry.phases
    return replace(entry, phases=[*entry.phases, "backward"]) if missing else entry


def calibrate(
    backend: str | None = None,
    *,
    threads: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> Peaks:
    """This machine's real peaks, measured, stored as a run and kept for what is shown of later ones."""
    _check_timeout(timeout)
    chosen = backend or default_backends()[0]
    work = calibration(chosen, default_threads() if threads is None else threads, timeout, say)
    with closing(open_store(db, create=True)) as store:
        this = new_run(Plan((), ()), "calibrate")
        peaks = work.run(f"measured in run {this.id}")
        _store_all(store, this, work.environments.values(), work.records)
        if not peaks.levels and not peaks.flops:
            raise UserError(
                f"nothing could be measured on {chosen}: {work.records[0].reason}", f"`opmark show {this.id}` says why"
            )
        store.keep("peaks", kept_under(work.facts()), this.started, peaks)
    say(f"stored as run {this.id} in {store_path(db)}")
    return peaks


def noise_floor(
    backend: str | None = None,
    *,
    threads: int | None = None,
    processes: int = PROCESSES,
    timeout: float = DEFAULT_TIMEOUT,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> NoiseFloor:
    """How much identical code differs from itself here: `doctor --aa`. Kept for comparisons."""
    if processes < 4 or processes % 2:
        raise UserError(f"processes: expected an even number of at least 4, got {processes}", "as in --processes 10")
    _check_timeout(timeout)
    with closing(open_store(db, create=True)) as store:
        this = new_run(Plan((), ()), "noise")
        floor, environments, records = self_test(backend or default_backends()[0], threads, processes, timeout, say)
        _store_all(store, this, environments, records)
        store.keep("noise", noise_under(floor.backend, environments[0].facts), this.started, floor)
    say(f"stored as run {this.id} in {store_path(db)}")
    return floor


def _check_timeout(timeout: float, name: str = "timeout") -> None:
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise UserError(
            f"{name}: expected seconds above 0 and up to {LONGEST_TIMEOUT:g}, got {timeout:g}", "as in --timeout 60"
        )


def _store_all(store: Store, run: Run, environments: Iterable[Environment], records: Sequence[Record]) -> None:
    store.begin(replace(run, tasks=len(records)))
    for environment in environments:
        store.add_environment(environment)
    for record in records:
        store.append(run.id, record)


def show(run: str | None = None, *, db: PathLike | None = None) -> Result:
    """A stored run: the last one, or one by its id (or the beginning of it) or its label."""
    with closing(open_store(db)) as store:
        this = find_run(store, run)
        return _result(store, this, store.records(this.id), db)


def rank(runs: str | Sequence[str] | None = None, *, by: str = "operator", db: PathLike | None = None) -> Ranking:
    """Which implementation wins where, over stored runs, or all of them; `choose` of it is for programs."""
    with closing(open_store(db)) as store:
        return rank_runs(source_of(store, [find_run(store, run) for run in _many(runs or ())] or store.runs()), by)


def read_ranking(path: PathLike) -> Ranking:
    """What `opmark rank -o FILE` wrote."""
    return read(Path(path))


def list_(
    kind: str, category: str | None = None
) -> Sequence[Operator] | Sequence[Workload] | Sequence[Availability] | Sequence[Quantity] | Sequence[Peaks]:
    """`ops` (of a category), `suites`, `quantities`, `hardware` or `backends`; of a backend, whether it can run here,
    and if not, why."""
    if kind == "ops":
        return [op for op in catalogue().values() if category in (None, op.category)]
    if kind == "backends":
        return probe()
    if kind == "suites":
        from opmark.workloads.load import suites

        return suites()
    if kind == "quantities":
        return list(QUANTITIES.values())
    if kind == "hardware":
        return datasheets()
    raise UnknownName("listing", kind, ("ops", "suites", "backends", "quantities", "hardware"))


@overload
def coverage(framework: str = ..., *, by: Literal["framework"] = ..., db: PathLike | None = ...) -> Coverage: ...
@overload
def coverage(framework: str = ..., *, by: str, db: PathLike | None = ...) -> Coverage | Matrix: ...
def coverage(framework: str = "torch", *, by: str = "framework", db: PathLike | None = None) -> Coverage | Matrix:
    """Which operators of a framework can be measured and how; by `backend`, which of the catalogue each backend has.

    With what became of them in stored runs."""
    with closing(open_store(db) if store_path(db).exists() else memory.MemoryStore()) as store:
        if grouping(by) == "backend":
            return matrix(store)
        return framework_coverage(framework, *last_of_most(store, framework))


def describe(op: str) -> Operator:
    return find_operator(op)


def open_store(db: PathLike | None = None, *, create: bool = False) -> Store:
    if str(db) == memory.NAME:
        return memory.MemoryStore()
    from opmark.store.sql import SqlStore

    return SqlStore(store_path(db), create=create)


def _result(store: Store, run: Run, records: list[Record], db: PathLike | None) -> Result:
    found = store.environments({record.environment for record in records if record.environment})
    facts = {key: environment.facts for key, environment in found.items()}
    return Result(run, records, store_path(db), facts, {key: _known(store, f) for key, f in facts.items()})


def _known(store: Store, facts: dict[str, Any]) -> Known:
    """What was measured of a chip and of its noise, and what its datasheet says."""
    measured = store.kept("peaks", kept_under(facts))
    known = convert(measured, Peaks) if measured else None
    return Known(known, datasheet(chip(facts), facts.get("threads")), noise_of(store, facts))


def _numbers(value: int | Sequence[int]) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


def _many(value: str | Sequence[str]) -> list[str]:
    """As on the command line, a text may name several."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)


def fit(run: str | Result | None = None, *, db: PathLike | None = None) -> list[Fitted]:
    """Latency and bandwidth of what communicates, over its sizes: one of each series of a run that differs only in
    size."""
    return fits((run if isinstance(run, Result) else show(run, db=db)).records)
