"""Show the progress of a run (a bar with the time left, or JSON lines) and of a comparison in turns."""

from __future__ import annotations

import sys
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from opmark.api.requests import talk
from opmark.cli.output import DEFAULT_STYLE, TableStyle, print_json_lines, print_records
from opmark.report.console.table import print_prose
from opmark.report.row_view import row_view
from opmark.report.text import format_duration
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.api.ab import TurnProgress
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


_OVER = "\r\x1b[K"
"""Moves to the start of the line and clears it."""
_MINUTE = 60.0
_SOON = 1.0
"""Seconds within which a command may end without having shown any progress."""


class StepProgress:
    """Shows on standard error how far a command is and how long it may still take: on a terminal one line that is
    rewritten, else one line per minute, also where a step takes longer than that."""

    def __init__(self, command: str, *, measures: bool = True, every: float = _MINUTE) -> None:
        """While a command `measures`, the line on a terminal is only rewritten at the end of a step, because drawing
        takes time on the cores that are being measured. `every`: seconds between the lines elsewhere."""
        self._command = command
        self._live = sys.stderr.isatty()
        self._ticks = not self._live or not measures
        self._every = _SOON if self._live else every
        self._started = self._stage = monotonic()
        self._done, self._total, self._doing = 0, 0, "starting"
        self._at_most: float | None = None
        self._ended = Event()
        self._ticker = Thread(target=self._tick, daemon=True)

    def __enter__(self) -> StepProgress:
        if self._ticks:
            self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        if self._ticks:
            self._ticker.join()
        self._clear()

    def step(self, done: int, total: int, doing: str, at_most: float | None = None) -> None:
        """Note that `done` of `total` steps are done, and what is done now; 0 of them is known where nothing is. With
        fewer steps done than before, another stage has begun, whose steps take other times. `at_most`: seconds that
        may be left, however many steps are."""
        if done < self._done:
            self._stage = monotonic()
        self._done, self._total, self._doing, self._at_most = done, total, doing, at_most
        if self._live and monotonic() - self._started > _SOON:
            self._show()

    def say(self, message: str) -> None:
        self._clear()
        talk(message)

    def line(self) -> str:
        elapsed = monotonic() - self._started
        left = (monotonic() - self._stage) / self._done * (self._total - self._done) if self._done else None
        if left is not None and self._at_most is not None:
            left = min(left, self._at_most)
        parts = [f"{self._done} of {self._total}"] if self._total else []
        parts += [self._doing, f"{format_duration(elapsed)} so far"]
        parts += [f"about {format_duration(left)} left"] if left else []
        return f"{self._command}: {', '.join(parts)}"

    def _tick(self) -> None:
        while not self._ended.wait(self._every):
            self._show()

    def _show(self) -> None:
        if self._live:
            sys.stderr.write(_OVER + self.line()[: Console(stderr=True).width - 1])
            sys.stderr.flush()
        else:
            print(self.line(), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write(_OVER)
            sys.stderr.flush()


class Turns:
    """Shows the progress of a comparison on standard error: on a terminal one line that is rewritten, else one line per
    pair. That is too little to disturb the measurement."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._pair = 0

    def turn(self, progress: TurnProgress) -> None:
        if self._live:
            sys.stderr.write(_OVER + line(progress))
            sys.stderr.flush()
        elif progress.turn.pair != self._pair:
            print(line(progress), file=sys.stderr)
        self._pair = progress.turn.pair

    def say(self, message: str) -> None:
        self.end()
        print(message, file=sys.stderr)

    def end(self) -> None:
        if self._live:
            sys.stderr.write(_OVER)
            sys.stderr.flush()


def line(progress: TurnProgress) -> str:
    turn = progress.turn
    found = {word: count for word, count in progress.verdicts.items() if word != "undecided"}
    so_far = "; so far " + ", ".join(f"{count} {word}" for word, count in sorted(found.items())) if found else ""
    return (
        f"pair {turn.pair} of {turn.until}, {'AB'[turn.side]} {progress.side.name}: "
        f"{count_noun(turn.left, 'case')} left{so_far}"
    )
