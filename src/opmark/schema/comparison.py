"""The result of a comparison: two sides of the same cases, with a verdict for each case."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from msgspec import Struct

from opmark.schema.quantity import Cache
from opmark.schema.record import Status

Verdict = Literal["faster", "slower", "same", "undecided"]
"""How B is, compared with A."""


class Pairing(Struct, frozen=True):
    """The comparison of one case on both sides."""

    case: str
    """Id of the case."""
    op: str
    params: str
    """The parameters as people read them."""
    phase: str
    where: tuple[str, str]
    """Backend, implementation and threads of each side, as tables name them."""
    quantity: str
    cache: Cache | None
    a: float | None
    b: float | None
    """Geometric means of the processes' medians: seconds or joules per call."""
    processes: tuple[int, int]
    ratio: float | None
    """B over A; above 1 is slower."""
    low: float | None
    high: float | None
    """Ends of the ratio's confidence interval."""
    p: float | None
    """Probability of such a difference by chance."""
    verdict: Verdict
    floor: float
    """Relative spread between processes that run the same code on this machine; 0 where it is not known."""
    note: str = ""
    """Why there is no ratio, or what makes it doubtful."""
    statuses: tuple[Status, Status] = ("ok", "ok")


class Geomean(Struct, frozen=True):
    """Geometric mean over all cases that have a ratio."""

    ratio: float
    low: float
    high: float
    cases: int


class Compared(Struct, frozen=True):
    a: str
    b: str
    """Names of the two sides."""
    runs: tuple[str, str]
    paired: bool
    """Whether both sides were measured in turns, so that drift affects both alike."""
    margin: float
    """Differences up to this fraction count as the same."""
    drift: float
    """How far apart two sessions of the same code may be; 0 if both sides are of one session."""
    pairs: tuple[Pairing, ...]
    geomean: Geomean | None
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Cases that only A has, and cases that only B has, as people read them."""
    differing: dict[str, tuple[Any, Any]] = {}
    """Facts of the two environments that differ."""
    resolution: float | None = None
    """Largest difference that may be called the same, where it is more than the margin because sessions drift."""
    clocked: bool = False
    """Whether every case was judged in clock cycles, so that no drift had to be allowed for."""

    def counts(self) -> Counter[Verdict]:
        return Counter(pair.verdict for pair in self.pairs)
