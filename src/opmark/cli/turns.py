"""How far a comparison in turns is: a line that is written over where somebody is looking, a line a pair where not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from opmark.units import counted

if TYPE_CHECKING:
    from opmark.api.interleaving import Progress

_OVER = "\r\x1b[K"


class Turns:
    """To standard error. A line a turn is little enough not to disturb what is measured."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._pair = 0

    def turn(self, progress: Progress) -> None:
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


def line(progress: Progress) -> str:
    turn = progress.turn
    found = {word: count for word, count in progress.verdicts.items() if word != "undecided"}
    so_far = "; so far " + ", ".join(f"{count} {word}" for word, count in sorted(found.items())) if found else ""
    return (
        f"pair {turn.pair} of {turn.until}, {'AB'[turn.side]} {progress.side.name}: "
        f"{counted(turn.left, 'case')} left{so_far}"
    )
