"""Compared: two sides of the same cases, with a verdict each."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from msgspec import Struct

from opmark.schema.quantity import Cache
from opmark.schema.record import Status

Verdict = Literal["faster", "slower", "same", "undecided"]
"""Of B, as A has it."""


class Pairing(Struct, frozen=True):
    """One case on both sides."""

    case: str
    """Its id."""
    op: str
    params: str
    """As people read them."""
    phase: str
    where: tuple[str, str]
    """Backend, implementation and threads of each side, as tables name them."""
    quantity: str
    cache: Cache | None
    a: float | None
    b: float | None
    """Centres of the medians of their processes: seconds or joules a call."""
    processes: tuple[int, int]
    ratio: float | None
    """B over A; above 1 is slower."""
    low: float | None
    high: float | None
    """Ends of its interval."""
    p: float | None
    """Probability of such a difference by chance."""
    verdict: Verdict
    floor: float
    """Relative spread of processes that run the same code here, as far as it is known."""
    note: str = ""
    """Why there is no number, or what makes it doubtful."""
    statuses: tuple[Status, Status] = ("ok", "ok")
    """What became of each side."""


class Geomean(Struct, frozen=True):
    """Over all cases that have a ratio."""

    ratio: float
    low: float
    high: float
    cases: int


class Compared(Struct, frozen=True):
    a: str
    b: str
    """As they are called."""
    runs: tuple[str, str]
    paired: bool
    """Whether both were measured in turns, so that what drifts hits both alike."""
    margin: float
    """Differences up to this are the same."""
    drift: float
    """How far apart two sessions of the same code may be; 0 where both were one."""
    pairs: tuple[Pairing, ...]
    geomean: Geomean | None
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Cases of one side that the other does not have, as people read them."""
    differing: dict[str, tuple[Any, Any]] = {}
    """Facts of the two environments that differ."""
    resolution: float | None = None
    """The largest difference that may be called the same, where it is more than the margin: two sessions drift."""
    clocked: bool = False
    """Whether every case was judged by its cycles as well, so that no drift had to be allowed for."""

    def counts(self) -> Counter[Verdict]:
        return Counter(pair.verdict for pair in self.pairs)
