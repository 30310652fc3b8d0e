"""opmark micro-perf: ByteMicroPerf's launch.py, measured by opmark."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from opmark import api
from opmark.analysis.rows import Row, rows_of_records
from opmark.compat.micro_perf.chips import chip_of
from opmark.compat.micro_perf.options import HARDWARE, LEVELS, our_backend, parsed, remarks
from opmark.compat.micro_perf.place import placed
from opmark.compat.micro_perf.ranks import fitting, widest
from opmark.compat.micro_perf.reports import Reports
from opmark.compat.micro_perf.tasks import Choice, Kind, Offer, Part, chosen, in_turn, listing, offered
from opmark.errors import UserError
from opmark.exporters.bytemicroperf_figures import MICRO, Figures, figures, moved, rounded
from opmark.exporters.bytemicroperf_names import tensor_shapes, v1_name, v3_words
from opmark.exporters.bytemicroperf_traffic import moved_between
from opmark.exporters.bytemicroperf_v1 import V1Report
from opmark.exporters.bytemicroperf_v3 import V3Report
from opmark.metrics.throughput import rates
from opmark.registry import backend as find_backend
from opmark.runner.probe import probe
from opmark.schema import Record, Workload
from opmark.schema.workload import VERSION
from opmark.units import counted

V1_SAMPLING = {"samples": 100, "warmup": 10}
"""Of 2024, where its file says nothing else."""
_TIMEOUT = 600.0
"""Seconds a case: a fixed number of calls takes as long as it takes."""


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: all well. 1: a case failed or could not be taken. 130: interrupted."""
    given = parsed(arguments)
    talk = Talk(LEVELS.index(given.log_level))
    if given.show_hardware_list:
        return _show_hardware()
    v1 = given.hardware_type is not None
    offer = offered(given.workload, given.task_dir, v1=v1)
    if given.show_task_list:
        return _show_tasks(offer, v1=v1)
    hardware = given.hardware_type or given.backend or "GPU"
    backend = our_backend(hardware)
    choice = chosen(offer, given.task)
    items, beyond = fitting(choice.items, given.device, find_backend(backend).device, v1=v1)
    talk.info(f"workload: {offer.where}")
    for line in [*remarks(given), *choice.remarks, *beyond, *(f"not measured: {line}" for line in choice.missing)]:
        talk.warning(line)
    if given.compile_only:
        talk.always("--compile_only: operators run as their framework has them, so there is nothing to compile")
        return 0
    if not items:
        return 1
    look = chip_of(given.vendor_path, talk.warning)
    report = V1Report(hardware) if v1 else V3Report(hardware, widest(items))
    session = _Session(given, backend, Reports(given.report_dir, report, look), talk)
    with placed(given, backend) as said:
        for line in said:
            talk.warning(line)
        return session.run(choice._replace(items=items))


@dataclass
class Talk:
    """Lines about cases go to standard output, the rest to standard error; `--log_level` says how much of it."""

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
class _Session:
    given: argparse.Namespace
    backend: str
    reports: Reports
    talk: Talk
    runs: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    refused: dict[str, UserError] = field(default_factory=dict)
    """By the names of what cannot be measured."""

    def run(self, choice: Choice) -> int:
        try:
            for part in in_turn(choice.items, v1=self._v1):
                self._try(part)
        except KeyboardInterrupt:
            self.talk.always("interrupted: the reports hold what was measured until then")
            return 130
        finally:
            self.reports.write()
            self._conclude()
        if self.refused and not self.runs:
            raise next(iter(self.refused.values()))
        for names, error in self.refused.items():
            self.talk.warning(f"not measured: {names}: {error.message}")
        measured = any(record.status == "ok" for record in self.records)
        failed = any(record.failed for record in self.records)
        return 0 if measured and not (failed or choice.missing or self.refused) else 1

    def _try(self, part: Part) -> None:
        """What cannot be measured at all does not keep the rest from it: communication, where no ranks can be had."""
        try:
            self._measure(part)
        except UserError as error:
            self.refused[", ".join(dict.fromkeys(entry.op for entry in part.entries))] = error

    @property
    def _v1(self) -> bool:
        return self.given.hardware_type is not None

    def _measure(self, part: Part) -> None:
        how = {**(V1_SAMPLING if self._v1 else {}), **part.asked}
        if "samples" in how:
            how.setdefault("warmup", V1_SAMPLING["warmup"])
        result = api.run(
            workload=Workload(VERSION, "micro-perf", part.entries),
            backend=self.backend,
            quantity=self._quantities(part.kind),
            cache="cold" if part.kind == "compute" else "warm",
            processes=1,
            timeout=_TIMEOUT,
            threads=self.given.threads or (),
            on_start=lambda run, plan, done: self.reports.start(run),
            on_record=self._record,
            say=self.talk.info,
            **how,
        )
        self.runs.append(result.run.id)

    def _quantities(self, kind: Kind) -> list[str]:
        """The device's own time where it tells it, as ByteMicroPerf reports kernels; else the host's.

        Communication it times in calls that follow each other, all with one buffer, as a device takes them."""
        on_device = find_backend(self.backend).device != "cpu"
        if kind == "ranks":
            return ["throughput", "latency"] if on_device else ["latency"]
        if self.given.disable_profiling and not on_device:
            self.talk.warning(f"--disable_profiling: nothing is profiled on {self.backend}; the host's clock is read")
        if not on_device:
            return ["latency"]
        return ["event_time"] if self.given.disable_profiling else ["device_time", "latency"]

    def _record(self, record: Record) -> None:
        self.reports.add(record)
        self.records.append(record)
        line = _line(record, v1=self._v1)
        if record.status == "ok":
            self.talk.case(line)
        else:
            self.talk.warning(line)

    def _conclude(self) -> None:
        if self.reports.written:
            files = counted(len(self.reports.written), "file")
            first = next(iter(self.reports.written.values()))
            self.talk.info(f"{files} in {self.given.report_dir}, as {first}")
        if self.runs:
            self.talk.info(f"stored as run {', '.join(self.runs)}; `opmark show {self.runs[-1]}` says more")


def _line(record: Record, *, v1: bool) -> str:
    case = record.task.case
    if v1:
        group = f" group {case.params['ranks']}" if "ranks" in case.params else ""
        what = f"{v1_name(case)} {case.params.get('dtype', '')} {tensor_shapes(case)}{group}"
    else:
        op, arguments = v3_words(case)
        what = f"{op} {record.task.implementation} {json.dumps(arguments)}"
    (row,) = rows_of_records([record])
    found = figures(row)
    if found is None:
        return f"{what}: {record.status}: {record.reason}"
    speed = _speed(row, found)
    doubts = f" ({', '.join(found.warnings)})" if found.warnings else ""
    mean, median = rounded(found.mean / MICRO), rounded(found.summary.median / MICRO)
    return f"{what}: {mean} us (median {median}){speed}{doubts}"


def _speed(row: Row, found: Figures) -> str:
    sent = moved_between(row, found)
    if sent:
        algorithm, bus = sent.algorithm(sent.seconds), sent.bus(sent.seconds)
        return f", {rounded(algorithm)} GB/s, bus {rounded(bus)} GB/s" if algorithm and bus is not None else ""
    bandwidth = rates(moved(row), found.mean).bytes_per_second
    return f", {rounded(bandwidth / 1e9)} GB/s" if bandwidth else ""


def _show_tasks(offer: Offer, *, v1: bool) -> int:
    for name, cases in listing(offer, v1=v1):
        print(f"{name}\t{counted(cases, 'case')}")
    for problem in offer.problems:
        print(f"not taken: {problem}", file=sys.stderr)
    return 0


def _show_hardware() -> int:
    """Theirs first, then every backend; each with what it is, or why it cannot run here."""
    known = {found.name: found for found in probe()}
    for name, ours in [*((name, ours()) for name, ours in HARDWARE.items()), *((name, name) for name in known)]:
        found = known[ours]
        print(f"{name}\t{found.summary}" + (f"\tnot here: {found.reason}" if found.reason else ""))
    return 0
