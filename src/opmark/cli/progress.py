"""How far a run is: a bar with the time left where somebody is looking, JSON lines as they come where asked for."""

from __future__ import annotations

import sys
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from opmark.cli.output import USUAL, Looks, print_json_lines, print_records
from opmark.report.rows import Row
from opmark.report.view import view

if TYPE_CHECKING:
    from opmark.api.measuring import Plan
    from opmark.schema import Record, Run


class Progress:
    def __init__(self, looks: Looks = USUAL, *, as_json: bool) -> None:
        self._looks = looks
        self._as_json = as_json
        self._records: list[Record] = []
        self._waiting: dict[str, list[Record]] = {}
        """Of cases that are measured in several processes: what there is until the last of them."""
        self._due: Counter[str] = Counter()
        self._run_id = ""
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
            # Drawing costs time on the cores that are being measured: seldom is enough.
            refresh_per_second=2,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        self._run_id = run.id
        total = len(done) + len(plan.tasks) + len(plan.skipped)
        self._bar.update(self._task, total=total, description="measuring")
        everything = [*done, *plan.skipped]
        self._due = Counter(task.across_processes.id for task in [*plan.tasks, *(r.task for r in everything)])
        for record in done:
            self.advance(record)
        if done:
            self.say(f"{len(done)} of {total} tasks were done already")

    def advance(self, record: Record) -> None:
        self._records.append(record)
        self._bar.update(self._task, advance=1, description=f"{record.task.backend} {record.task.case.op}")
        key = record.task.across_processes.id
        group = self._waiting.setdefault(key, [])
        group.append(record)
        if len(group) == self._due[key]:
            del self._waiting[key]
            if self._as_json:
                print_json_lines([view(Row(tuple(group)), self._run_id)])

    def interrupted(self) -> None:
        """Ctrl-C: what there is so far, and how to go on."""
        self._bar.stop()
        if self._as_json:
            print_json_lines(view(Row(tuple(group)), self._run_id) for group in self._waiting.values())
        elif self._records:
            print_records(self._records, looks=self._looks)
        self.say(
            f"interrupted: what was measured is stored as run {self._run_id}; the same command with --resume goes on"
            if self._records
            else "interrupted before the first record: nothing was stored"
        )

    def say(self, message: str) -> None:
        self._console.print(message, soft_wrap=True, markup=False, highlight=False)
