"""The result of a comparison: two sides of the same cases, with a verdict for each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from opmark.schema.measurement import Cache, clock_moved
from opmark.schema.record import Status
from opmark.units import count_bytes

Verdict = Literal["faster", "slower", "same", "undecided"]
"""How B is, compared with A."""


class PairCycles(Struct, frozen=True):
    """The two sides of a case in cycles of the clock that they were measured at."""

    a: float
    b: float
    """Geometric means of the processes' medians."""
    ratio: float
    """B over A in cycles: a clock that moved is no part of it."""
    clocks: tuple[float, float]
    """Mean clock of each side in hertz."""

    @property
    def moved(self) -> bool:
        """Whether the clocks of the sides differ, so that seconds alone mislead."""
        return clock_moved(*self.clocks)


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
    in_turns: str = ""
    """Command that measures an undecided case of two sessions in turns."""
    cycles: PairCycles | None = None
    """The same in clock cycles, where every process knows its clock and the quantity is the time of what it clocks."""


class Geomean(Struct, frozen=True):
    """Geometric mean over the cases that have a ratio of one quantity: of several, the one that most cases have. If it
    has no interval, that is from 0 to infinity."""

    ratio: float
    low: float
    high: float
    cases: int
    quantity: str = ""
    cache: Cache | None = None


class StepChange(Struct, frozen=True):
    """The time of a step of a program on both sides: of each case that both have, its count times its median."""

    where: tuple[str, str]
    """Backend, implementation and threads of each side, as tables name them."""
    quantity: str
    cache: Cache
    cases: int
    a: float
    b: float
    """Seconds."""

    @property
    def ratio(self) -> float:
        """B over A; above 1 is slower."""
        return self.b / self.a


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
    """How far apart two sessions of the same code may be, if that was given; else the standard deviation of sessions,
    which is a part of the intervals: the largest of any case. 0 if both sides are of one session."""
    pairs: tuple[Pairing, ...]
    geomean: Geomean | None
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Cases that only A has, and cases that only B has, as people read them."""
    differing: dict[str, tuple[Any, Any]] = {}
    """Facts of the two environments that differ."""
    resolution: float | None = None
    """Largest difference that may be called the same, where it is more than the margin because sessions drift."""
    clocked: bool = False
    """Whether every case was judged in clock cycles too, so that the clock is no part of what sessions differ by."""
    sessions: int | None = None
    """Number of stored runs that `drift` was estimated from; 0: it is assumed. None if it was given, or if both sides
    are of one session."""

    steps: tuple[StepChange, ...] = ()
    """Change of the whole step, where the cases say how often a program runs them."""

    def counts(self) -> Counter[Verdict]:
        return Counter(pair.verdict for pair in self.pairs)


# The result of `opmark bisect`: the commit or version that made a case slower, and how it was found.

Word = Literal["good", "bad", "skip"]
"""The verdict on a commit that is passed to git."""


class Candidate(Struct, frozen=True):
    """A commit that was measured, or that may be the first bad one."""

    commit: str
    """Hash of the commit, or the version of a package."""
    author: str
    date: str
    subject: str
    word: Word
    ratio: float | None = None
    """Time of the followed case at this commit over its time at the good commit."""
    low: float | None = None
    high: float | None = None
    why: str = ""
    """Why the commit was skipped."""
    runs: tuple[str, str] | None = None


class BisectResult(Struct, frozen=True):
    good: str
    bad: str
    compared: Compared
    """Comparison of the good and the bad commit."""
    case: str = ""
    """Id of the case that is followed; empty if no case is slower."""
    op: str = ""
    params: str = ""
    margin: float = 0.0
    """A commit is bad if it is slower than the good one by more than this fraction."""
    steps: tuple[Candidate, ...] = ()
    first: tuple[Candidate, ...] = ()
    """The first bad commit; several if commits in between were skipped; none if nothing is slower."""
    log: str = ""
    """Output of `git bisect log`, or the verdicts on versions in the same order."""
    package: str = ""
    """Package whose versions were searched; empty for commits."""


# The result of `opmark check`: a run against a baseline, with each slowdown measured a second time.

Outcome = Literal[
    "slower", "failed", "unconfirmed", "missing", "undecided", "cleared", "faster", "same", "mended", "broken"
]
"""
slower       slower by more than the margin, also when measured again in turns with the baseline
failed       failed now and when measured again, but not in the baseline
unconfirmed  slower than the stored numbers twice, but the baseline itself could not be measured again: the machine
             may have become slower
missing      in the baseline, but now skipped or not asked for
undecided    no verdict after all measurements
cleared      slower or failed at first, but not when measured again
mended       failed in the baseline, but not now
broken       failed in the baseline and now
"""

FAIL_ON = ("slower", "failed", "unconfirmed", "missing", "undecided")
"""Outcomes that may fail a build; an improvement never does."""


class CheckedCase(Struct, frozen=True):
    """One case of both sides, and its outcome."""

    pair: Pairing
    """The first comparison."""
    outcome: Outcome
    again: Pairing | None = None
    """The comparison of the second measurement, if there was one."""
    why: str = ""
    """How the case was measured again, or why it was not."""


class CheckResult(Struct, frozen=True):
    compared: Compared
    """The first comparison: A is the baseline."""
    findings: tuple[CheckedCase, ...]
    missing: tuple[str, ...]
    """Cases of the baseline that were not asked for."""
    fail_on: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """How cases were measured again."""
    again: tuple[tuple[str, str], ...] = ()
    """Runs of the second measurement: (baseline, now)."""

    def counts(self) -> Counter[Outcome]:
        found: Counter[Outcome] = Counter(finding.outcome for finding in self.findings)
        if self.missing:
            found["missing"] += len(self.missing)
        return found

    @property
    def failing(self) -> int:
        """Number of cases whose outcome fails the build."""
        counts = self.counts()
        return sum(count for outcome, count in counts.items() if outcome in self.fail_on)

    @property
    def exit_code(self) -> int:
        return 1 if self.failing else 0


# Format the facts in which two environments differ.

_BYTES = ("memory", "gpu_memory", "gpu_l2")
_LONGEST = 60


def difference_lines(found: Mapping[str, tuple[Any, Any]], facts: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Return (fact, `a -> b`) for the given facts, or for all of them."""
    return [
        (fact, " -> ".join(_format_fact(fact, value) for value in found[fact]))
        for fact in (found if facts is None else facts)
    ]


def _format_fact(fact: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if fact in _BYTES and isinstance(value, int):
        return count_bytes(value)
    if isinstance(value, list):
        text = ", ".join(map(str, value)) or "none"
    elif isinstance(value, dict):
        text = " ".join(f"{name}={item}" for name, item in value.items()) or "none"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
