"""Runs a PARAM config, from a file or a dictionary, and returns and writes results in the order of the config."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from opmark.api.import_ import read_workload
from opmark.api.requests import talk
from opmark.api.result import Result, interruption_line
from opmark.api.run import Profiling
from opmark.api.run import run as api_run
from opmark.catalogue.expansion import expand
from opmark.errors import UserError, nearest
from opmark.interop.param.exporter import (
    METRICS,
    PHASES,
    ConfigPosition,
    echo,
    header,
    last_line,
    line,
    origin,
    place_of,
    untimed_line,
)
from opmark.interop.param.exporter import text as encode_text
from opmark.interop.param.importer import CaseSpecs, KeptSpecs, keep_specs
from opmark.interop.param.options import Device, ParamOptions
from opmark.interop.param.plugin import plugin_function
from opmark.plugin.registry import operator as find_operator
from opmark.runner.allowed_callables import AllowedCallables
from opmark.runner.plan import Plan
from opmark.runner.supervisor import WorkerPool
from opmark.runner.workload_source import WorkloadSource
from opmark.schema import Case, Entry, Environment, ImportProblem, Record, Run, Workload
from opmark.schema.case import PLUGIN_OPERATOR
from opmark.schema.options import Source, split_names
from opmark.schema.workload import VERSION
from opmark.units import seconds

# Cases are selected by PARAM's op_run_id, as in `torch.add|0|0|1_2`, of `--resume-id` and `--stop-id`.


def select_range(places: Sequence[ConfigPosition], resume_id: str | None, stop_id: str | None) -> slice:
    """Select the cases from `resume_id` to `stop_id`, which is excluded."""
    if not resume_id and not stop_id:
        return slice(0, len(places))
    known = _spellings(places)
    first = _find("--resume-id", resume_id, places, known) if resume_id else 0
    last = _find("--stop-id", stop_id, places, known) if stop_id else len(places)
    if first >= last:
        raise UserError(
            f"nothing is left to run: --resume-id {resume_id or places[0]} is not before --stop-id {stop_id}",
            "--resume-id is included, --stop-id is not; `--dry-run` prints the ids in their order",
        )
    return slice(first, last)


def _spellings(places: Sequence[ConfigPosition]) -> dict[str, list[int]]:
    """Return indices by all spellings of an id: with bars or colons, and with or without operator and file."""
    found: dict[str, list[int]] = {}
    for index, place in enumerate(places):
        names = [str(place), f"{place.op}:{place.id}", f"{place.op}:{place.id.replace('|', ':')}"]
        in_file = [f"{place.file}#{name}" for name in names] if place.file else []
        for text in {*names, *in_file, place.id, place.id.replace("|", ":")}:
            found.setdefault(text, []).append(index)
    return found


def _find(option: str, run_id: str, places: Sequence[ConfigPosition], known: dict[str, list[int]]) -> int:
    indices = known.get(run_id, [])
    if len(indices) == 1:
        return indices[0]
    if indices:
        raise _ambiguous(option, run_id, [places[index] for index in indices])
    near = nearest(run_id, known)
    guess = f"did you mean '{places[known[near][0]]}'? " if near else ""
    raise UserError(f"{option}: no case of this config has the id `{run_id}`", f"{guess}`--dry-run` prints them all")


def _ambiguous(option: str, run_id: str, alike: list[ConfigPosition]) -> UserError:
    files, operators = dict.fromkeys(place.file for place in alike), dict.fromkeys(place.op for place in alike)
    if len(files) > 1:
        listed = ", ".join(list(files)[:5]) + (", ..." if len(files) > 5 else "")
        return UserError(
            f"{option}: {len(files)} files have the id `{run_id}`: {listed}", f"as in {option} '{alike[0].source}'"
        )
    return UserError(f"{option}: `{run_id}` is an id of {len(operators)} operators", f"as in {option} '{alike[0]}'")


# PARAM's result file, written line by line, so that finished cases are on disk.


class ResultFile:
    """The file `PREFIX_<pid>_<seconds>.json`, or with `append` the end of `PREFIX.json`."""

    def __init__(self, prefix: str, *, append: bool) -> None:
        self._started = _now()
        self.stem = f"{prefix}_{os.getpid()}_{int(self._started.timestamp())}"
        self.path = Path(f"{prefix}.json" if append else f"{self.stem}.json")
        self._append = append
        self._file: IO[str] | None = None

    @property
    def begun(self) -> bool:
        return self._file is not None

    def begin(self, options: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Open the file and write the first line."""
        self._file = self._open()
        process_facts = {"pid": os.getpid(), "cwd": str(Path.cwd()), **facts}
        self.write(header({**options, "out_stream": str(self.path)}, process_facts, self._started.isoformat()))

    def write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(encode_text([line]))
        self._file.flush()

    def finish(self) -> None:
        self.write(last_line(_now().isoformat()))

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _open(self) -> IO[str]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("a" if self._append else "w", encoding="utf-8")
        except OSError as error:
            message = f"{self.path}: the file cannot be written: {error.strerror}"
            raise UserError(message, "name another with -o PREFIX") from None


def _now() -> datetime:
    return datetime.now(timezone.utc).astimezone()


# The result of one case of a PARAM config.


@dataclass(frozen=True, repr=False)
class CaseResult:
    """Result of a case, with times in milliseconds and memory in MB, as in PARAM's result file."""

    place: ConfigPosition
    cases: tuple[Case, ...]
    """One per phase, forward first."""
    records: tuple[Record, ...]
    """opmark's records, one per phase: samples, interval, cost, verification, environment."""
    run_id: str
    counts: tuple[int, int] = (1, 1)
    """Requested calls of warm-up and of measurement."""
    specs: dict[str, Any] | None = None
    """`build` and `input` as in the file, if there is one."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Requested phases that the case does not have, and why."""

    def __repr__(self) -> str:
        times = ((name, self._median(name)) for name in ("forward", "backward"))
        medians = [f"{name} {seconds(ms / 1e3)}" for name, ms in times if ms is not None]
        return f"<{self.op_run_id}: {', '.join([self.status if self.records else 'not run', *medians])}>"

    @property
    def op_name(self) -> str:
        return self.place.op

    @property
    def id(self) -> str:
        """The id without the operator, as in `config|build|input`."""
        return self.place.id

    @property
    def op_run_id(self) -> str:
        return str(self.place)

    @cached_property
    def config(self) -> dict[str, Any]:
        """`build` and `input`, as in the file."""
        return self.specs or echo(self.cases[0])

    @cached_property
    def line(self) -> dict[str, Any]:
        """The line in PARAM's result file."""
        if not self.records:
            return untimed_line(self.place, self.config)
        found = line(self.place, self.records, self.run_id, self.config)
        if not self.counts[1]:
            found = _remove_sample(found, warmed=self.counts[0] > 0)
        for phase, reason in self.left_out.items():
            found["opmark"][PHASES[phase]] = {"status": "skipped", "reason": reason}
            if found["metric"]:
                found["metric"][PHASES[phase]] = {name: [] for name in METRICS}
        return found

    @property
    def metric(self) -> dict[str, dict[str, list[float]]]:
        """Figures as in `metric["forward"]["measure.time"]`; empty for a failure."""
        return dict(self.line["metric"])

    @property
    def status(self) -> str:
        """`ok`, or the status of the first phase that is not."""
        return next((record.status for record in self.records if record.status != "ok"), "ok")

    @property
    def error(self) -> dict[str, str] | None:
        """Status, phase and reason of a failure."""
        return self.line.get("error")

    @property
    def forward_ms(self) -> float | None:
        """The median; None for a failure."""
        return self._median("forward")

    @property
    def backward_ms(self) -> float | None:
        return self._median("backward")

    def _median(self, phase: str) -> float | None:
        found = self.line.get("opmark", {}).get(phase, {}).get("median_ms")
        return None if found is None else float(found)


def _remove_sample(found: dict[str, Any], *, warmed: bool) -> dict[str, Any]:
    """Remove the one sample that is taken even if none is requested."""
    for phase, metric in found["metric"].items():
        metric["measure.time"] = metric["measure.gpu.memory"] = []
        for name in ("samples", "median_ms", "interval_ms", "gb_per_s", "gflop_per_s", "cautions"):
            found["opmark"][phase].pop(name, None)
    return found if warmed else {**found, "metric": {}}


OnResult = Callable[[CaseResult], None]


@dataclass(frozen=True)
class ConfigCase:
    """One case of a config; each of its phases is a case of opmark."""

    place: ConfigPosition
    entry: Entry
    cases: tuple[Case, ...]
    specs: CaseSpecs | None = None
    """Its specs as they are in the file."""

    def result(self, records: tuple[Record, ...], run_id: str, counts: tuple[int, int] = (1, 1)) -> CaseResult:
        if self.specs is None:
            return CaseResult(self.place, self.cases, records, run_id, counts)
        ran = {case.phase for case in self.cases}
        left_out = {str(phase): self.specs.forward_only for phase in self.entry.phases if phase not in ran}
        return CaseResult(self.place, self.cases, records, run_id, counts, self.specs.config, left_out)


@dataclass(frozen=True)
class Config:
    """The part of a config that is to run."""

    name: str
    spots: list[ConfigCase]
    problems: tuple[ImportProblem, ...] = ()
    notes: tuple[str, ...] = ()


def read(source: Source, options: ParamOptions) -> Config:
    """Read a config and select cases; raise UserError if it is not a config of PARAM, or lacks an id.

    An operator or a generator that the user registered may run. The importer refuses a config that names the class
    that runs them.
    """
    allow = split_names(options.allow)
    in_folder = isinstance(source, str | os.PathLike) and Path(source).is_dir()
    with keep_specs(in_folder=in_folder) as kept:
        taken = read_workload(
            source, seed=options.seed, phase=options.phases, strict=options.strict, allow=[*allow, PLUGIN_OPERATOR]
        )
    if taken.foreign != "param":
        what = f"a file of {taken.foreign}" if taken.foreign else "a workload of opmark"
        raise UserError(f"{taken.where}: expected a config of PARAM, got {what}", "`opmark run -w FILE` runs it")
    where = None if isinstance(source, Mapping) else taken.where
    spots, refused = _refuse_functions(_spots(taken, kept), where, allow)
    if refused and (options.strict or not spots):
        raise UserError(f"{refused[0].where}: {refused[0].message}", refused[0].hint)
    selected = select_range([spot.place for spot in spots], options.resume_id, options.stop_id)
    return Config(taken.workload.name, spots[selected], (*taken.problems, *refused), taken.notes)


def _refuse_functions(
    spots: Iterable[ConfigCase], where: str | None, allow: Sequence[str]
) -> tuple[list[ConfigCase], list[ImportProblem]]:
    """Return the cases that may run, and a problem for each of the others: a function that gets its data from a
    generator of the user is named by the config all the same."""
    kept, refused = [], []
    for spot in spots:
        name = plugin_function(spot.entry)
        path = Path(_path_of(where, spot.place.file)) if where is not None else None
        try:
            if name is not None:
                AllowedCallables(allow, path.parent if path else None).check(name)
        except UserError as error:
            refused.append(ImportProblem(f"{path or 'config'}: {spot.place}", error.message, error.hint or ""))
        else:
            kept.append(spot)
    return kept, refused


def make_config(place: ConfigPosition, entry: Entry, phases: Sequence[str]) -> Config:
    """Return a config of one case that comes from code."""
    whole = replace(entry, phases=list(phases))
    cases = expand(Workload(VERSION, place.op, [whole]), find_operator)
    return Config(place.op, [ConfigCase(place, whole, tuple(cases))])


def _spots(taken: WorkloadSource, kept: KeptSpecs) -> Iterator[ConfigCase]:
    """Pair entries and cases, which come in the same order, one case per phase."""
    cases = iter(taken.cases)
    for entry in taken.workload.cases:
        place = place_of(entry.source)
        assert place is not None, entry.source
        own = tuple(islice(cases, len(entry.phases)))
        assert all(case.sources == (entry.source,) for case in own), entry.source
        specs = kept.get((_path_of(taken.where, place.file), str(place)))
        if specs and specs.forward_only:
            own = tuple(case for case in own if case.phase == "forward")
        yield ConfigCase(place, entry, own, specs)


def _path_of(where: str, name: str) -> str:
    """Return the path of a file that is `where`, or in that folder."""
    return where if Path(where).name == name else str(Path(where) / name)


def run(
    config: Config,
    options: ParamOptions,
    target: Device,
    on_result: OnResult,
    *,
    profile: Sequence[Profiling] = (),
    pool: WorkerPool | None = None,
    on_environment: Callable[[Environment], None] | None = None,
    say: Callable[[str], None] = talk,
) -> Result | None:
    """Run a config and report every result as soon as all before it are known. Ctrl-C passes on, and `say` tells what
    is stored."""
    if not options.times and not profile:
        for spot in config.spots:
            on_result(spot.result((), ""))
        return None
    entries = [replace(spot.entry, phases=[case.phase for case in spot.cases]) for spot in config.spots]
    workload = Workload(VERSION, config.name, entries)
    counts = (options.warmup, options.iteration)

    def report(spot: ConfigCase, records: tuple[Record, ...]) -> None:
        on_result(spot.result(records, in_order.run_id, counts))

    in_order = RecordsInOrder(config.spots, report)
    arguments = options.run_arguments(target)
    try:
        return api_run(
            workload=workload, **arguments, on_start=in_order.start, on_record=in_order.add, profile=profile, pool=pool,
            on_environment=on_environment, say=say,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(interruption_line(in_order.stored_runs, options.db))
        raise


def rows_of(config: Config) -> Iterator[Mapping[str, Any]]:
    """Yield one line per case for `--dry-run`."""
    for spot in config.spots:
        yield {"id": str(spot.place), **spot.result((), "").config, "opmark": origin(spot.place)}


# Messages on standard error while a config runs, filtered by `--log-level`.

LEVELS = ("debug", "info", "warning", "error", "critical")


class ParamLog:
    def __init__(self, level: str) -> None:
        if level.lower() not in LEVELS:
            raise UserError(f"--log-level: expected one of {', '.join(LEVELS)}, got `{level}`", "as in -l INFO")
        self._least = getattr(logging, level.upper())

    @property
    def shows_results(self) -> bool:
        return bool(self._least <= logging.INFO)

    def debug(self, message: str) -> None:
        self._say(logging.DEBUG, message)

    def info(self, message: str) -> None:
        self._say(logging.INFO, message)

    def warning(self, message: str) -> None:
        self._say(logging.WARNING, message)

    def result(self, found: CaseResult) -> None:
        """Print one line for a finished case."""
        times = (("forward", found.forward_ms), ("backward", found.backward_ms))
        medians = [f"{name} {seconds(ms / 1e3)}" for name, ms in times if ms is not None]
        if found.error:
            error = f"{found.error['phase']} {found.error['status']}: {found.error['reason']}"
            self._say(logging.ERROR, f"{' '.join([found.op_run_id, *medians])}: {error}")
        else:
            self.info(" ".join([found.op_run_id, *medians]))

    def _say(self, level: int, message: str) -> None:
        if level >= self._least:
            print(message, file=sys.stderr, flush=True)


# Cases are reported in a given order while their records come in another one.


class HasCases(Protocol):
    @property
    def cases(self) -> tuple[Case, ...]: ...


_Item = TypeVar("_Item", bound=HasCases)


class RecordsInOrder(Generic[_Item]):
    """Reports each item with its records as soon as these, and those of all items before it, are known.

    If an operator has several implementations, the first record of a case counts; the others are in the store.
    """

    def __init__(self, items: Iterable[_Item], report: Callable[[_Item, tuple[Record, ...]], None]) -> None:
        self.run_id = ""
        self.stored_runs: list[str] = []
        """The run, once it has a record in its store."""
        self._waiting = deque(items)
        self._report_item = report
        self._records: dict[str, Record] = {}

    @property
    def is_complete(self) -> bool:
        return not self._waiting

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        """Begin a run; skipped cases are known before the first one runs."""
        self.run_id = run.id
        coming = {task.case.id for task in plan.tasks}
        self._records = {r.task.case.id: r for r in plan.skipped if r.task.case.id not in coming}
        self._report()

    def add(self, record: Record) -> None:
        self.stored_runs = self.stored_runs if record.untried else [self.run_id]
        self._records.setdefault(record.task.case.id, record)
        self._report()

    def _report(self) -> None:
        while self._waiting and all(case.id in self._records for case in self._waiting[0].cases):
            item = self._waiting.popleft()
            self._report_item(item, tuple(self._records[case.id] for case in item.cases))
