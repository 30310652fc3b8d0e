"""Show the progress of a run: a bar with the time left, or JSON lines."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from opmark.api.progress import StepProgress
from opmark.cli.output import DEFAULT_STYLE, TableStyle, print_json_lines, print_records
from opmark.report.console.table import print_prose
from opmark.report.row_view import row_view

if TYPE_CHECKING:
    from opmark.api.run import Plan, Row
    from opmark.schema import Record, Run
    from opmark.schema.options import PathLike


class ProgressBar:
    def __init__(self, style: TableStyle = DEFAULT_STYLE, *, as_json: bool) -> None:
        self._style = style
        self._as_json = as_json
        self._records: list[Record] = []
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
            # Drawing takes time on the cores that are being measured.
            refresh_per_second=2,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._steps = StepProgress("run") if not sys.stderr.isatty() else None
        self._total = 0

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        if self._steps:
            self._steps.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()
        if self._steps:
            self._steps.__exit__(kind, error, tb)

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        self._run_id = run.id
        self._total = total = len(done) + len(plan.tasks) + len(plan.skipped)
        self._bar.update(self._task, total=total, description="measuring")
        for record in done:
            self.advance(record)
        if done:
            self.say(f"{len(done)} of {total} tasks were done already")

    def advance(self, record: Record) -> None:
        self._records.append(record)
        doing = f"{record.task.backend} {record.task.case.op}"
        self._bar.update(self._task, advance=1, description=doing)
        if self._steps:
            self._steps.step(len(self._records), self._total, doing)

    def print_row(self, row: Row) -> None:
        """Print a complete row, or a partial one if the run was interrupted."""
        print_json_lines([row_view(row)])

    def interrupted(self, db: PathLike | None) -> None:
        """After Ctrl-C or SIGTERM, print the records so far, where they are stored, and how to go on."""
        from opmark.api.result import interruption_line

        self._bar.stop()
        if self._records and not self._as_json:
            print_records(self._records, style=self._style)
        stored = any(not record.untried for record in self._records)
        advice = "the same command with --resume goes on"
        self.say(interruption_line([self._run_id] if stored else [], db, advice))

    def say(self, message: str) -> None:
        print_prose(message, self._console)
