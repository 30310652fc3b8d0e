"""Progress of a long run: one line that is updated on a terminal, and elsewhere a new line every 30 seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from opmark.units import counted

if TYPE_CHECKING:
    from opmark.runner.plan import Plan
    from opmark.schema import Record, Run

_SECONDS = 30.0
_WIDTH = 79


class Progress:
    def __init__(self) -> None:
        self._total = self._done = self._before = 0
        self._run = ""
        self._began = self._printed = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        self._run = run.id
        self._total = len(done) + len(plan.tasks) + len(plan.skipped)
        self._done = self._before = len(done)
        self._began = time.monotonic()
        self.say(f"{counted(self._total - self._done, 'measurement')}; Ctrl-C stops, --resume continues")

    def advance(self, record: Record) -> None:
        self._done += 1
        if self._is_terminal:
            self._print("\r" + self._line(record).ljust(_WIDTH), end="")
        elif time.monotonic() - self._printed > _SECONDS:
            self._printed = time.monotonic()
            self._print(self._line(record))

    def say(self, message: str) -> None:
        self._print(("\r" + " " * _WIDTH + "\r" if self._is_terminal else "") + message)

    def end(self) -> None:
        if self._is_terminal:
            self._print("\r" + " " * _WIDTH + "\r", end="")

    def report_interruption(self) -> None:
        if self._done:
            self.say(
                f"interrupted: {self._done} of {self._total} are stored as run {self._run}; the same command with "
                f"--resume continues, `opmark export {self._run} -f opperf-json -o FILE` writes these results"
            )
        else:
            self.say("interrupted before the first record: nothing was stored")

    def _line(self, record: Record) -> str:
        spent, made = time.monotonic() - self._began, max(1, self._done - self._before)
        left = spent / made * (self._total - self._done)
        case = record.task.case
        return f"{self._done}/{self._total} {case.op} {case.phase}, about {left / 60:.0f} min left"[:_WIDTH]

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, file=sys.stderr, end=end, flush=True)
