"""opmark micro-perf: ByteMicroPerf's launch.py, measured by opmark. Reports are written while the run goes on."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.analysis.rows import Row, rows_of_records
from opmark.api.result import interruption_line, machine_facts, open_store, storage_line
from opmark.api.run import run
from opmark.errors import UserError
from opmark.interop.bytemicroperf.machine import ChipLookup, apply_placement, fit_ranks, make_chip_lookup, most_ranks
from opmark.interop.bytemicroperf.operators import reported_cases, tensor_shapes, v1_name
from opmark.interop.bytemicroperf.options import HARDWARE, LEVELS, backend_for, parse_options, remarks
from opmark.interop.bytemicroperf.report_figures import (
    MICRO,
    ReportFigures,
    figures_of,
    rates_of,
    round_figure,
    transfer_of,
)
from opmark.interop.bytemicroperf.report_v1 import V1Report
from opmark.interop.bytemicroperf.report_v3 import V3Report
from opmark.interop.bytemicroperf.selection import (
    EntryGroup,
    Kind,
    Offer,
    TaskChoice,
    choose_tasks,
    count_cases,
    group_items,
    read_offer,
)
from opmark.plugin import Results
from opmark.plugin.registry import backend as find_backend
from opmark.runner.survey import survey
from opmark.schema import Record, Run, Workload
from opmark.schema.machine import Peaks
from opmark.schema.record import MEASURED
from opmark.schema.workload import VERSION
from opmark.units import count_noun

# The report tree is written while the run goes on: when a task's last case is done, and every few seconds.

_WRITE_INTERVAL = 5.0


class Reports:
    """Writes files of this run over files of the same name, and keeps all others in the folder."""

    def __init__(self, folder: Path, report: V1Report | V3Report, look: ChipLookup) -> None:
        self.written: dict[str, Path] = {}
        self._folder = folder
        self._report = report
        self._look = look
        self._titles: Callable[[Record], list[str]] = lambda r: [case.op for case in reported_cases(r.task.case)]
        if isinstance(report, V1Report):
            self._titles = lambda r: [v1_name(r.task.case)]
        self._run: Run | None = None
        self._records: dict[str, list[Record]] = {}
        self._runs: dict[str, dict[str, Run]] = {}
        """Runs of each title; files that set other numbers of iterations are runs of their own."""
        self._unwritten: dict[str, None] = {}
        self._environments: dict[str, Mapping[str, Any]] = {}
        self._chips: dict[str, Peaks] = {}
        self._measured: dict[str, Peaks] = {}
        """Calibrated peaks by environment."""
        self._last = time.monotonic()
        _make_folder(folder)

    def start(self, run: Run) -> None:
        """Begin a run; records that are not written yet belong to the run before."""
        self.write()
        self._run = run

    def add(self, record: Record) -> None:
        titles = dict.fromkeys(self._titles(record))
        if not titles.keys() <= self._unwritten.keys() or time.monotonic() - self._last > _WRITE_INTERVAL:
            self.write()
        assert self._run is not None
        for title in titles:
            self._runs.setdefault(title, {})[self._run.id] = self._run
            self._records.setdefault(title, []).append(record)
            self._unwritten[title] = None

    def write(self) -> None:
        self._last = time.monotonic()
        for title in self._unwritten:
            for path, text in self._report.files(self._results(title), title).items():
                _replace_file(self._folder / path, text)
                self.written[path] = self._folder / path
        self._unwritten.clear()

    def _results(self, title: str) -> Results:
        records, runs = self._records[title], list(self._runs[title].values())
        run = replace(runs[0], id=", ".join(run.id for run in runs))
        unknown = {record.environment for record in records if record.environment} - self._environments.keys()
        if unknown:
            with closing(open_store()) as store:
                for key, environment in store.environments(unknown).items():
                    self._environments[key] = environment.facts
                    peaks = self._look(environment.facts)
                    self._chips |= {key: peaks} if peaks else {}
                    measured = machine_facts(store, environment.facts).measured
                    self._measured |= {key: measured} if measured else {}
        return Results(run, records, self._environments, self._chips, self._measured)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--report_dir {folder}: the folder cannot be created: {error.strerror}"
        raise UserError(message, "name another folder") from None


def _replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, because somebody may be reading the one of an earlier run."""
    _make_folder(path.parent)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path}: the file cannot be written: {error.strerror}") from None


V1_SAMPLING = {"samples": 100, "warmup": 10}
"""Sampling of the generation of 2024, where the file does not set it."""
_TIMEOUT = 600.0
"""Seconds per case; generous, because the number of calls is fixed."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 for success, 1 if a case failed or was left out, 130 after Ctrl-C."""
    options = parse_options(arguments)
    talk = MicroPerfLog(LEVELS.index(options.log_level))
    if options.show_hardware_list:
        return _show_hardware()
    v1 = options.hardware_type is not None
    offer = read_offer(options.workload, options.task_dir, v1=v1, allow=options.allow)
    if options.show_task_list:
        return _show_tasks(offer, v1=v1)
    hardware = options.hardware_type or options.backend or "GPU"
    backend = backend_for(hardware)
    choice = choose_tasks(offer, options.task)
    items, left_out = fit_ranks(choice.items, options.device, find_backend(backend).device, v1=v1)
    talk.info(f"workload: {offer.where}")
    for line in [*remarks(options), *choice.remarks, *left_out, *(f"not measured: {line}" for line in choice.missing)]:
        talk.warning(line)
    if options.compile_only:
        talk.always("--compile_only: operators run as their framework provides them, so there is nothing to compile")
        return 0
    if not items:
        return 1
    look = make_chip_lookup(options.vendor_path, talk.warning)
    report = V1Report(hardware) if v1 else V3Report(hardware, most_ranks(items))
    session = _MicroPerfSession(options, backend, Reports(options.report_dir, report, look), talk)
    with apply_placement(options, backend) as differences:
        for line in differences:
            talk.warning(line)
        return session.run(choice._replace(items=items))


@dataclass
class MicroPerfLog:
    """Prints lines about cases to standard output, the rest to standard error, filtered by `--log_level`."""

    level: int

    def case(self, line: str) -> None:
        if self.level <= LEVELS.index("INFO"):
            print(line, flush=True)

    def info(self, line: str) -> None:
        self._if("INFO", line)

    def warning(self, line: str) -> None:
        self._if("WARNING", line)

    def always(self, line: str) -> None:
        print(line, file=sys.stderr)

    def _if(self, level: str, line: str) -> None:
        if self.level <= LEVELS.index(level):
            self.always(line)


@dataclass
class _MicroPerfSession:
    options: argparse.Namespace
    backend: str
    reports: Reports
    talk: MicroPerfLog
    run_id: str = ""
    """The run that goes on now."""
    runs: list[str] = field(default_factory=list)
    """Runs that have a record in the store."""
    journals: dict[Path, None] = field(default_factory=dict)
    """Journals that hold something of the runs, because their store could not be written."""
    records: list[Record] = field(default_factory=list)
    refused: dict[str, UserError] = field(default_factory=dict)
    """Errors by the operators that could not be measured."""

    def run(self, choice: TaskChoice) -> int:
        try:
            for part in group_items(choice.items, v1=self._v1):
                self._run_part(part)
        except KeyboardInterrupt:
            self.talk.always(interruption_line(self.runs, None, "the reports hold the cases that were measured"))
            return 130
        finally:
            self.reports.write()
            self._name_reports()
        self._say_where_stored()
        if self.refused and not self.runs:
            raise next(iter(self.refused.values()))
        for names, error in self.refused.items():
            self.talk.warning(f"not measured: {names}: {error.message}")
        measured = any(record.status in MEASURED for record in self.records)
        failed = any(record.failed for record in self.records)
        return 0 if measured and not (failed or choice.missing or self.refused or self.journals) else 1

    def _run_part(self, part: EntryGroup) -> None:
        """Measure a part; an error of one part, such as ranks that cannot be started, does not stop the others."""
        try:
            self._measure(part)
        except UserError as error:
            self.refused[", ".join(dict.fromkeys(entry.op for entry in part.entries))] = error

    @property
    def _v1(self) -> bool:
        return self.options.hardware_type is not None

    def _measure(self, part: EntryGroup) -> None:
        sampling = {**(V1_SAMPLING if self._v1 else {}), **part.requests}
        if "samples" in sampling:
            sampling.setdefault("warmup", V1_SAMPLING["warmup"])
        result = run(
            workload=Workload(VERSION, "micro-perf", part.entries),
            backend=self.backend,
            quantity=self._quantities(part.kind),
            cache="cold" if part.kind == "compute" else "warm",
            processes=1,
            timeout=_TIMEOUT,
            threads=self.options.threads or (),
            on_start=lambda run, plan, done: self._start(run),
            on_record=self._record,
            say=self.talk.info,
            **sampling,
        )
        self.journals.update(dict.fromkeys(result.journals))

    def _quantities(self, kind: Kind) -> list[str]:
        """Choose quantities: ByteMicroPerf reports the time of kernels, and of communication consecutive calls."""
        on_device = find_backend(self.backend).device != "cpu"
        if kind == "ranks":
            return ["throughput", "latency"] if on_device else ["latency"]
        if self.options.disable_profiling and not on_device:
            self.talk.warning(f"--disable_profiling: nothing is profiled on {self.backend}; the host's clock is used")
        if not on_device:
            return ["latency"]
        return ["event_time"] if self.options.disable_profiling else ["device_time", "latency"]

    def _start(self, run: Run) -> None:
        self.reports.start(run)
        self.run_id = run.id

    def _record(self, record: Record) -> None:
        if not record.untried and self.run_id not in self.runs:
            self.runs.append(self.run_id)
        self.reports.add(record)
        self.records.append(record)
        line = _line(record, v1=self._v1)
        if record.status in MEASURED:
            self.talk.case(line)
        else:
            self.talk.warning(line)

    def _name_reports(self) -> None:
        if self.reports.written:
            files = count_noun(len(self.reports.written), "file")
            first = next(iter(self.reports.written.values()))
            self.talk.info(f"{files} in {self.options.report_dir}, as {first}")

    def _say_where_stored(self) -> None:
        if self.runs:
            where = storage_line(self.runs, None, tuple(self.journals))
            if self.journals:
                self.talk.warning(where)
            else:
                self.talk.info(f"{where}; `opmark show {self.runs[-1]}` shows details")


def _line(record: Record, *, v1: bool) -> str:
    case = record.task.case
    if v1:
        group = f" group {case.params['ranks']}" if "ranks" in case.params else ""
        what = f"{v1_name(case)} {case.params.get('dtype', '')} {tensor_shapes(case)}{group}"
    else:
        what = "; ".join(
            f"{op} {record.task.implementation} {json.dumps(arguments)}" for op, arguments in reported_cases(case)
        )
    (row,) = rows_of_records([record])
    found = figures_of(row)
    if found is None:
        return f"{what}: {record.status_text}: {record.reason}"
    speed = _speed(row, found)
    doubts = f" ({', '.join(found.warnings)})" if found.warnings else ""
    mean, median = round_figure(found.mean / MICRO), round_figure(found.summary.median / MICRO)
    return f"{what}: {mean} us (median {median}){speed}{doubts}"


def _speed(row: Row, found: ReportFigures) -> str:
    sent = transfer_of(row, found)
    if sent:
        algorithm, bus = sent.algorithm(sent.seconds), sent.bus(sent.seconds)
        if not algorithm or bus is None:
            return ""
        return f", {round_figure(algorithm)} GB/s, bus {round_figure(bus)} GB/s"
    bandwidth = rates_of(row, found).bytes_per_second
    return f", {round_figure(bandwidth / 1e9)} GB/s" if bandwidth else ""


def _show_tasks(offer: Offer, *, v1: bool) -> int:
    for name, cases in count_cases(offer, v1=v1):
        print(f"{name}\t{count_noun(cases, 'case')}")
    for problem in offer.problems:
        print(f"not imported: {problem}", file=sys.stderr)
    return 0


def _show_hardware() -> int:
    """Print ByteMicroPerf's names, then every backend, each with a summary and the reason for which metadata tells that
    it cannot run here."""
    known = {found.name: found for found in survey()}
    for name, ours in [*((name, ours()) for name, ours in HARDWARE.items()), *((name, name) for name in known)]:
        found = known[ours]
        print(f"{name}\t{found.summary}" + (f"\tnot here: {found.reason}" if found.reason else ""))
    return 0
