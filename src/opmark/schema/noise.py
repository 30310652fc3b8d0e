"""NoiseFloor: how much identical code differs from itself on a machine."""

from __future__ import annotations

from math import inf, log

from msgspec import Struct


class Floor(Struct, frozen=True):
    """The noise of one case."""

    op: str
    params: str
    seconds: float
    """Median of the processes' medians."""
    between: float
    """Relative spread of the processes' medians: a difference below about twice this means nothing."""
    within: float
    """Relative spread of the samples within one process."""
    verdicts: int = 0
    """Number of labelings (see NoiseFloor) in which a difference was called."""
    naive: int = 0
    """The same number for a naive test that takes samples, not processes, as independent."""


class NoiseFloor(Struct, frozen=True):
    chip: str
    backend: str
    threads: int
    started: str
    processes: int
    """Number of fresh processes, all of the same code."""
    labelings: int
    """Number of ways to label the processes of each pair A and B."""
    floors: list[Floor]

    @property
    def false_verdicts(self) -> float:
        """Share of all labelings of all cases in which identical code was called faster or slower."""
        return sum(floor.verdicts for floor in self.floors) / max(1, self.labelings * len(self.floors))

    @property
    def naive_verdicts(self) -> float:
        return sum(floor.naive for floor in self.floors) / max(1, self.labelings * len(self.floors))

    @property
    def largest(self) -> float:
        """The largest floor, for a case of which nothing else is known."""
        return max((floor.between for floor in self.floors), default=0.0)

    def floor_for(self, seconds: float) -> float:
        """Return the floor of the case whose time is nearest by factor; 0 if no case has a time."""
        timed = [floor for floor in self.floors if 0 < floor.seconds < inf]
        nearest = min(timed, key=lambda floor: abs(log(floor.seconds) - log(seconds)), default=None)
        return nearest.between if nearest else 0.0
