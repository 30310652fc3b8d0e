"""History: one series of numbers over many runs of one machine, and where its level changed."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from opmark.schema.measurement import Cache, clock_moved
from opmark.schema.record import Status

Direction = Literal["faster", "slower"]


class RunAt(Struct, frozen=True):
    """The facts of a run that a history shows."""

    id: str
    started: str
    label: str = ""
    revision: str = ""


class HistoryPoint(Struct, frozen=True):
    """The value of a series in one run, over all its processes."""

    run: RunAt
    value: float
    """Geometric mean of the processes' medians: seconds or joules per call."""
    processes: int
    environment: str
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval of the value; None if there was only one process."""
    clock: float | None = None
    """Mean clock in hertz; None if a process does not know it, or the value is not a time of what the clock drives."""


class Outage(Struct, frozen=True):
    """A run without a usable value of the series."""

    run: RunAt
    status: Status | Literal["preempted"]


class LevelChange(Struct, frozen=True):
    """A change of level between two successive runs."""

    before: RunAt
    """The last run of the old level."""
    after: RunAt
    """The first run of the new level."""
    level_before: float
    level_after: float
    ratio: float
    """The new level over the old one: above 1 is slower."""
    low: float
    high: float
    """Ends of the ratio's confidence interval."""
    p: float
    """Probability that chance alone makes such a change at any run of the series."""
    differing: dict[str, tuple[Any, Any]] = {}
    """Facts of the environment that changed with the level: a version, a driver, a variable."""
    sure: bool = True
    """False if it is not settled, or if chance alone may have made it, given the number of series that were
    examined."""
    settled: bool = True
    """False if it may be a state of the machine that lasts for some runs, or wandering."""
    clocks: tuple[float, float] | None = None
    """Median clock of the runs of each level in hertz, where all of them know it."""

    @property
    def cycles_ratio(self) -> float | None:
        """The ratio in cycles, if the clock moved with the level."""
        if self.clocks is None or not clock_moved(*self.clocks):
            return None
        return self.ratio * self.clocks[1] / self.clocks[0]

    @property
    def direction(self) -> Direction:
        return "slower" if self.ratio > 1 else "faster"


class History(Struct, frozen=True):
    case: str
    """Id of the case."""
    op: str
    params: str
    """The parameters as people read them."""
    phase: str
    backend: str
    implementation: str
    threads: int
    quantity: str
    cache: Cache | None
    chip: str
    """The chip that computed; runs on another chip are another series."""
    points: tuple[HistoryPoint, ...]
    """Oldest first; never empty."""
    level: float
    """Level since the last change. The newest run is left out of it if there are others."""
    changes: tuple[LevelChange, ...] = ()
    """Oldest first."""
    outages: tuple[Outage, ...] = ()
    floor: float = 0.0
    """Relative spread between processes that run the same code on this machine; 0 where it is not known."""
    warning: bool = False
    """The newest runs stand out, but are too few to call it a change yet."""
    states: tuple[float, float] | None = None
    """The two levels between which it goes to and fro; then it has no changes."""
    drift: float | None = None
    """The last value over the first, along the line by which it slowly drifts; then it has no changes."""
    load: str = ""
    """The load as `Load.text` writes it; empty without load."""

    @property
    def where(self) -> str:
        """Threads and load, as tables name them."""
        return ", ".join(filter(None, (f"×{self.threads}", self.load)))

    @property
    def last(self) -> float:
        """The newest value over the level."""
        return self.points[-1].value / self.level

    @property
    def slower(self) -> bool:
        """Whether the newest change made it slower, beyond chance, or its newest runs stand out as slower."""
        change = self.newest_change
        return (change is not None and change.sure and change.ratio > 1) or (self.warning and self.last > 1)

    @property
    def newest_change(self) -> LevelChange | None:
        return self.changes[-1] if self.changes else None


class Histories(Struct, frozen=True):
    """All series that were examined together."""

    series: list[History]
    looked: int
    """Number of series with enough runs to find a change."""
    short: int = 0
    """Number of series with too few runs."""
    unsure: int = 0
    """Number of changes that chance alone may have made, given the number of series."""
    by_chance: float = 0.0
    """Expected number of series that are listed although nothing changed."""
    unsettled: int = 0
    """Number of changes that may be states of the machine."""
    drifting: int = 0
    """Number of series that slowly drift."""
    alternating: int = 0
    """Number of series that go to and fro between two states."""
