"""Tuner: proposes configurations, and is told how long they take. opmark brings some, a backend may bring its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from opmark.plugin.param import Params
from opmark.plugin.space import Configuration, Space


@dataclass(frozen=True)
class TuningProblem:
    """What is tuned: one implementation of one case on one backend."""

    op: str
    params: Params
    backend: str
    implementation: str
    space: Space
    seed: int = 0
    starts: tuple[Configuration, ...] = ()
    """Configurations that are worth trying first: those of similar cases."""
    threads: int = 0
    """Threads of the worker that measures; 0 where that does not matter."""
    folder: Path | None = None
    """Folder for files of the tuner, which makes it if it needs one. A tuning that is resumed finds what it had kept;
    the folder is removed when the tuning is done. Every search gives one."""


class Tuner(ABC):
    """Ask for configurations, measure them, tell their times; then ask again.

    A tuner never proposes a configuration twice. It is deterministic: the same problem and the same answers give the
    same questions, so that a tuning that was interrupted continues with what is stored.
    """

    batch = 0
    """Configurations to be asked for at once; 0 leaves that to the search."""
    own_trials = 0
    """Candidates that the tuner has measured by itself so far: they count as trials of the search."""
    seconds_left = inf
    """What is left of the budget when the tuner is asked; a tuner that measures by itself has to keep to it."""

    def __init__(self, problem: TuningProblem) -> None:
        self.problem = problem

    @abstractmethod
    def ask(self, most: int) -> Sequence[Configuration]:
        """Return up to that many configurations to measure next; nothing if there are none left."""

    @abstractmethod
    def tell(self, configuration: Configuration, seconds: float | None) -> None:
        """Take the time of a configuration; None if it failed or computed something wrong. Configurations that nobody
        asked for are told too: the default, and what an earlier tuning has measured."""
