"""Overlap: how much of a communication is hidden behind other work that runs at the same time."""

from __future__ import annotations

from msgspec import Struct


class Overlap(Struct, frozen=True):
    """All times are seconds of the slowest rank."""

    first: str
    """The communication: it is started first and waited for last."""
    first_alone: float
    second: str
    """The work that runs meanwhile."""
    second_alone: float
    together: float

    @property
    def share(self) -> float:
        """Hidden share of the shorter one: 1 if both together take no longer than the longer one, 0 if they take as
        long as one after the other."""
        shorter = min(self.first_alone, self.second_alone)
        saved = self.first_alone + self.second_alone - self.together
        return max(0.0, min(1.0, saved / shorter)) if shorter > 0 else 0.0
