"""History: one series of numbers over many runs of one machine, and where its level changed."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from opmark.schema.quantity import Cache
from opmark.schema.record import Status

Direction = Literal["faster", "slower"]


class RunAt(Struct, frozen=True):
    """A run, as far as a history tells of it."""

    id: str
    started: str
    label: str = ""
    revision: str = ""


class Point(Struct, frozen=True):
    """What a run says of a series: its processes are one value."""

    run: RunAt
    value: float
    """Geometric mean of the medians of its processes: seconds or joules a call."""
    processes: int
    environment: str
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval of the value; None where there was one process."""


class Outage(Struct, frozen=True):
    """A run that has no value to give."""

    run: RunAt
    status: Status | Literal["preempted"]


class ChangeSeen(Struct, frozen=True):
    """The level is another from one run to the next."""

    before: RunAt
    """The last run of the old level."""
    after: RunAt
    """The first of the new one."""
    level_before: float
    level_after: float
    ratio: float
    """Of the levels, the new one over the old one: above 1 is slower."""
    low: float
    high: float
    """Ends of its interval."""
    p: float
    """Probability of such a change by chance, at any of the runs of the series."""
    differing: dict[str, tuple[Any, Any]] = {}
    """Facts of the environment that are new with the new level: a version, a driver, a variable."""
    sure: bool = True
    """False: among as many series as were looked at, chance alone may have made it."""

    @property
    def direction(self) -> Direction:
        return "slower" if self.ratio > 1 else "faster"


class History(Struct, frozen=True):
    case: str
    """Its id."""
    op: str
    params: str
    """As people read them."""
    phase: str
    backend: str
    implementation: str
    threads: int
    quantity: str
    cache: Cache | None
    chip: str
    """What computed; runs of another chip are another series."""
    points: tuple[Point, ...]
    """Oldest first; at least one."""
    level: float
    """Since the last change, the newest run left out where there are others."""
    changes: tuple[ChangeSeen, ...] = ()
    """Oldest first."""
    outages: tuple[Outage, ...] = ()
    floor: float = 0.0
    """Relative spread of processes that run the same code here, as far as it is known."""
    warning: bool = False
    """The newest runs are out of line, and too few for a change yet."""

    @property
    def last(self) -> float:
        """The newest value over the level."""
        return self.points[-1].value / self.level

    @property
    def newest_change(self) -> ChangeSeen | None:
        return self.changes[-1] if self.changes else None


class Histories(Struct, frozen=True):
    """All that were looked at together."""

    series: list[History]
    looked: int
    """How many had runs enough to tell a change."""
    short: int = 0
    """How many had not."""
    unsure: int = 0
    """Changes that chance alone may have made among so many."""
    by_chance: float = 0.0
    """So many series may be listed although nothing changed."""
