"""Tuner: proposes configurations, and is told how long they take. opmark brings some, a backend may bring its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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


class Tuner(ABC):
    """Ask for configurations, measure them, tell their times; then ask again.

    A tuner never proposes a configuration twice. It is deterministic: the same problem and the same answers give the
    same questions, so that a tuning that was interrupted continues with what is stored.
    """

    def __init__(self, problem: TuningProblem) -> None:
        self.problem = problem

    @abstractmethod
    def ask(self, most: int) -> Sequence[Configuration]:
        """Return up to that many configurations to measure next; nothing if there are none left."""

    @abstractmethod
    def tell(self, configuration: Configuration, seconds: float | None) -> None:
        """Take the time of a configuration; None if it failed or computed something wrong. Configurations that nobody
        asked for are told too: the default, and what an earlier tuning has measured."""

    def close(self) -> None:  # noqa: B027 - most tuners have started nothing
        """End what the tuner has started."""
