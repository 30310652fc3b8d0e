"""Writes the report tree while the run goes on: when a task's last case is done, and every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.api import open_store
from opmark.compat.micro_perf.chips import ChipLookup
from opmark.errors import UserError
from opmark.exporters.bytemicroperf_names import v1_name, v3_operator
from opmark.exporters.bytemicroperf_v1 import V1Report
from opmark.exporters.bytemicroperf_v3 import V3Report
from opmark.interfaces import Results
from opmark.schema import Record, Run
from opmark.schema.peaks import Peaks

_WRITE_INTERVAL = 5.0


class Reports:
    """Writes files of this run over files of the same name, and keeps all others in the folder."""

    def __init__(self, folder: Path, report: V1Report | V3Report, look: ChipLookup) -> None:
        self.written: dict[str, Path] = {}
        self._folder = folder
        self._report = report
        self._look = look
        self._title: Callable[[Record], str] = lambda r: v3_operator(r.task.case)[0]
        if isinstance(report, V1Report):
            self._title = lambda r: v1_name(r.task.case)
        self._run: Run | None = None
        self._records: dict[str, list[Record]] = {}
        self._runs: dict[str, dict[str, Run]] = {}
        """Runs of each title; files that set other numbers of iterations are runs of their own."""
        self._unwritten: dict[str, None] = {}
        self._environments: dict[str, Mapping[str, Any]] = {}
        self._chips: dict[str, Peaks] = {}
        self._last = time.monotonic()
        _make_folder(folder)

    def start(self, run: Run) -> None:
        """Begin a run; records that are not written yet belong to the run before."""
        self.write()
        self._run = run

    def add(self, record: Record) -> None:
        title = self._title(record)
        if title not in self._unwritten or time.monotonic() - self._last > _WRITE_INTERVAL:
            self.write()
        assert self._run is not None
        self._runs.setdefault(title, {})[self._run.id] = self._run
        self._records.setdefault(title, []).append(record)
        self._unwritten[title] = None

    def write(self) -> None:
        self._last = time.monotonic()
        for title in self._unwritten:
            for path, text in self._report.files(self._results(title)).items():
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
        return Results(run, records, self._environments, self._chips)


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
