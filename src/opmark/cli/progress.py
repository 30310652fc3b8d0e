"""A bar with the time left on stderr, where somebody is looking; nothing where nobody is."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from opmark.runner.plan import Plan
    from opmark.schema import Record


class Progress:
    def __init__(self) -> None:
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

    def start(self, plan: Plan, done: int) -> None:
        total = done + len(plan.tasks) + len(plan.skipped)
        self._bar.update(self._task, total=total, completed=done, description="measuring")

    def advance(self, record: Record) -> None:
        self._bar.update(self._task, advance=1, description=f"{record.task.backend} {record.task.case.op}")

    def say(self, message: str) -> None:
        self._console.print(message, soft_wrap=True, markup=False, highlight=False)
