"""Show on standard error how far a command is: its steps, a comparison in turns, a tuning."""

from __future__ import annotations

import sys
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console

from opmark.api.requests import talk
from opmark.report.text import format_duration
from opmark.units import count_noun, seconds

if TYPE_CHECKING:
    from opmark.api.ab import TurnProgress
    from opmark.tuning.search import Trial

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

    def line(self, width: int | None = None) -> str:
        """Return where the command is; what it does is shortened to fit `width`, so that the time left is seen."""
        elapsed = monotonic() - self._started
        left = (monotonic() - self._stage) / self._done * (self._total - self._done) if self._done else None
        if left is not None and self._at_most is not None:
            left = min(left, self._at_most)
        before = f"{self._command}: " + (f"{self._done} of {self._total}, " if self._total else "")
        after = f", {format_duration(elapsed)} so far" + (f", about {format_duration(left)} left" if left else "")
        room = len(self._doing) if width is None else max(1, width - len(before + after))
        doing = self._doing if len(self._doing) <= room else f"{self._doing[: room - 1]}…"
        return f"{before}{doing}{after}"[:width]

    def _tick(self) -> None:
        while not self._ended.wait(self._every):
            self._show()

    def _show(self) -> None:
        if self._live:
            sys.stderr.write(_OVER + self.line(Console(stderr=True).width - 1))
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


class TuneProgress(StepProgress):
    """Shows how far a tuning is: the candidates of all its cases, and then the verdicts in turns."""

    def __init__(self, command: str, trials: int, budget: float) -> None:
        """`trials`: candidates of each case at most. `budget`: seconds that the search may take."""
        super().__init__(command)
        self._trials, self.budget = trials, budget
        self._case, self._before, self._all = "", 0, trials
        """The case, and candidates of the cases before it and of all."""
        self._turns = Turns()

    def case(self, name: str, place: int, count: int) -> None:
        self._case = f"{name} ({place + 1} of {count})" if count > 1 else name
        self._before, self._all = place * self._trials, count * self._trials
        self._search(0, "the default and the first candidates")

    def trial(self, trial: Trial) -> None:
        best = f"best {seconds(trial.best.seconds)}" if trial.best and trial.best.seconds else "none measured"
        self._search(trial.number, best)

    def _search(self, done: int, what: str) -> None:
        left = max(0.0, self.budget - (monotonic() - self._started))
        self.step(self._before + done, self._all, f"{self._case}: {what}", left)

    def turn(self, progress: TurnProgress) -> None:
        turn = progress.turn
        doing = f"the verdicts, in turns: {progress.side.name}, pair {turn.pair} of {turn.until}"
        self.step(2 * turn.pair - 2 + turn.side, 2 * turn.until, doing)
        if self._live:
            self._turns.turn(progress)
