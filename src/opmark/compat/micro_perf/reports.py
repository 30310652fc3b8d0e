"""The report tree, written while the run goes on: a task's files when its last case is done, and every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.api import open_store
from opmark.compat.micro_perf.chips import Look
from opmark.errors import UserError
from opmark.exporters.bytemicroperf_names import v1_name, v3_words
from opmark.exporters.bytemicroperf_v1 import V1Report
from opmark.exporters.bytemicroperf_v3 import V3Report
from opmark.interfaces import Results
from opmark.schema import Record, Run
from opmark.schema.peaks import Peaks

_EVERY = 5.0


class Reports:
    """A file of this run goes in place of one of the same name; what else is in the folder stays."""

    def __init__(self, folder: Path, report: V1Report | V3Report, look: Look) -> None:
        self.written: dict[str, Path] = {}
        self._folder = folder
        self._report = report
        self._look = look
        self._title: Callable[[Record], str] = lambda r: v3_words(r.task.case)[0]
        if isinstance(report, V1Report):
            self._title = lambda r: v1_name(r.task.case)
        self._run: Run | None = None
        self._records: dict[str, list[Record]] = {}
        self._runs: dict[str, dict[str, Run]] = {}
        """Of each title; files that ask for other numbers of iterations are runs of their own."""
        self._unwritten: dict[str, None] = {}
        self._environments: dict[str, Mapping[str, Any]] = {}
        self._chips: dict[str, Peaks] = {}
        self._last = time.monotonic()
        _make(folder)

    def start(self, run: Run) -> None:
        """What is not written yet belongs to the run before."""
        self.write()
        self._run = run

    def add(self, record: Record) -> None:
        title = self._title(record)
        if title not in self._unwritten or time.monotonic() - self._last > _EVERY:
            self.write()
        assert self._run is not None
        self._runs.setdefault(title, {})[self._run.id] = self._run
        self._records.setdefault(title, []).append(record)
        self._unwritten[title] = None

    def write(self) -> None:
        self._last = time.monotonic()
        for title in self._unwritten:
            for path, text in self._report.files(self._results(title)).items():
                _put(self._folder / path, text)
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


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--report_dir {folder}: cannot be made: {error.strerror}", "name another folder") from None


def _put(path: Path, text: str) -> None:
    """Whole or not at all: somebody may be reading the file of an earlier run."""
    _make(path.parent)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
