"""Overlap: how much of one thing hides behind another when both are started at once."""

from __future__ import annotations

from msgspec import Struct


class Overlap(Struct, frozen=True):
    """Seconds, of the slowest rank."""

    first: str
    """What is started and waited for last: the communication."""
    first_alone: float
    second: str
    """What runs meanwhile."""
    second_alone: float
    together: float

    @property
    def share(self) -> float:
        """Of the shorter one, how much is hidden: 1 where both take no longer than the longer one, 0 where they take as
        long as one after the other."""
        shorter = min(self.first_alone, self.second_alone)
        saved = self.first_alone + self.second_alone - self.together
        return max(0.0, min(1.0, saved / shorter)) if shorter > 0 else 0.0
