"""opmark micro-perf: ByteMicroPerf's launch.py, measured by opmark."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opmark import api
from opmark.compat.micro_perf.chips import chip_of
from opmark.compat.micro_perf.options import HARDWARE, LEVELS, our_backend, parsed, remarks
from opmark.compat.micro_perf.place import placed
from opmark.compat.micro_perf.reports import Reports
from opmark.compat.micro_perf.tasks import Choice, Offer, chosen, in_turn, listing, offered
from opmark.exporters.bytemicroperf_figures import MICRO, figures, moved, rounded
from opmark.exporters.bytemicroperf_names import tensor_shapes, v1_name, v3_words
from opmark.exporters.bytemicroperf_v1 import V1Report
from opmark.exporters.bytemicroperf_v3 import V3Report
from opmark.metrics.throughput import rates
from opmark.registry import backend as find_backend
from opmark.report.rows import Row
from opmark.runner.probe import probe
from opmark.schema import Entry, Record, Workload
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
    talk.info(f"workload: {offer.where}")
    for line in [*remarks(given), *choice.remarks, *(f"not measured: {line}" for line in choice.missing)]:
        talk.warning(line)
    if given.compile_only:
        talk.always("--compile_only: operators run as their framework has them, so there is nothing to compile")
        return 0
    if not choice.items:
        return 1
    look = chip_of(given.vendor_path, talk.warning)
    report = V1Report(hardware) if v1 else V3Report(hardware)
    session = _Session(given, backend, Reports(given.report_dir, report, look), talk)
    with placed(given, backend) as said:
        for line in said:
            talk.warning(line)
        return session.run(choice)


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

    def run(self, choice: Choice) -> int:
        try:
            for asked, entries in in_turn(choice.items, v1=self._v1):
                self._measure(asked, entries)
        except KeyboardInterrupt:
            self.talk.always("interrupted: the reports hold what was measured until then")
            return 130
        finally:
            self.reports.write()
            self._conclude()
        measured = any(record.status == "ok" for record in self.records)
        failed = any(record.failed for record in self.records)
        return 0 if measured and not failed and not choice.missing else 1

    @property
    def _v1(self) -> bool:
        return self.given.hardware_type is not None

    def _measure(self, asked: Mapping[str, Any], entries: list[Entry]) -> None:
        how = {**(V1_SAMPLING if self._v1 else {}), **asked}
        if "samples" in how:
            how.setdefault("warmup", V1_SAMPLING["warmup"])
        result = api.run(
            workload=Workload(VERSION, "micro-perf", entries),
            backend=self.backend,
            quantity=self._quantities(),
            cache="cold",
            processes=1,
            timeout=_TIMEOUT,
            threads=self.given.threads or (),
            on_start=lambda run, plan, done: self.reports.start(run),
            on_record=self._record,
            say=self.talk.info,
            **how,
        )
        self.runs.append(result.run.id)

    def _quantities(self) -> list[str]:
        """The device's own time where it tells it, as ByteMicroPerf reports kernels; else the host's."""
        on_device = find_backend(self.backend).device != "cpu"
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
        what = f"{v1_name(case)} {case.params.get('dtype', '')} {tensor_shapes(case)}"
    else:
        op, arguments = v3_words(case)
        what = f"{op} {record.task.implementation} {json.dumps(arguments)}"
    row = Row((record,))
    found = figures(row)
    if found is None:
        return f"{what}: {record.status}: {record.reason}"
    bandwidth = rates(moved(row), found.mean).bytes_per_second
    speed = f", {rounded(bandwidth / 1e9)} GB/s" if bandwidth else ""
    doubts = f" ({', '.join(found.warnings)})" if found.warnings else ""
    mean, median = rounded(found.mean / MICRO), rounded(found.summary.median / MICRO)
    return f"{what}: {mean} us (median {median}){speed}{doubts}"


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
