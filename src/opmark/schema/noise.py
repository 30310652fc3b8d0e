"""NoiseFloor: how much identical code differs from itself on a machine."""

from __future__ import annotations

from math import inf, log

from msgspec import Struct


class Floor(Struct, frozen=True):
    op: str
    params: str
    seconds: float
    """Median of its process medians."""
    between: float
    """Relative spread of the process medians: differences below about twice this are no news."""
    within: float
    """Relative spread of the samples of a process."""
    verdicts: int = 0
    """Of the labelings below, those that called a difference."""
    naive: int = 0
    """The same for a test that takes samples, and not processes, for independent."""


class NoiseFloor(Struct, frozen=True):
    chip: str
    backend: str
    threads: int
    started: str
    processes: int
    """Fresh ones, of the same code each."""
    labelings: int
    """Ways to call half of them A and half B, an A and a B in each pair."""
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
        """For who knows nothing else of a case."""
        return max((floor.between for floor in self.floors), default=0.0)

    def floor_for(self, seconds: float) -> float:
        """That of the case whose time is nearest, by factor; 0, as without a floor, where no time is known."""
        timed = [floor for floor in self.floors if 0 < floor.seconds < inf]
        nearest = min(timed, key=lambda floor: abs(log(floor.seconds) - log(seconds)), default=None)
        return nearest.between if nearest else 0.0
