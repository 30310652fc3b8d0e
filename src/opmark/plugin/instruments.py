"""Instruments that a backend may have: clocks, sensors, a counter of its memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from opmark.errors import TimerFailed
from opmark.plugin.operator import Launch
from opmark.schema import SensorReading


class Timer(Protocol):
    name: str
    resolution: float
    """Seconds between two readings that differ."""

    def time(self, launch: Launch, calls: int) -> float:
        """Seconds for that many back-to-back calls, harness included."""

    def overhead(self, calls: int) -> float:
        """Seconds of such a measurement that are the harness's own."""


class Activity(NamedTuple):
    """Something that ran on the device. Seconds from the start of its trace: since 1970 they would be too coarse."""

    name: str
    start: float
    end: float


class Trace(NamedTuple):
    """What the device did for each of several calls."""

    calls: list[list[Activity]]
    """The activities of each call, in the order of the calls; a call with records missing is empty."""
    lost: int = 0
    """Calls of which records are missing."""
    stray: int = 0
    """Activities that no call launched while it was running."""


class DeviceClock(ABC):
    """A device's own clock. One method is needed; the others are further ways to time, which a device may lack."""

    name: str

    @abstractmethod
    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        """The activities of each launch, those of `before` (run ahead of each) left out.

        The device is kept busy for `hold` seconds first, so that the calls are queued when it begins with them.
        TimerFailed where the clock cannot be read.
        """

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        """Seconds between two events around each launch; with `hold`, behind a queue, so that no launch is seen."""
        raise TimerFailed(f"{self.name} has no events")

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        """The launches as one graph: each call of the result replays it and gives seconds per launch.

        WrongResult where the graph does not compute what the launches do.
        """
        raise TimerFailed(f"{self.name} has no graphs")


class Sensors(Protocol):
    def read(self) -> SensorReading: ...

    def energy(self) -> float | None:
        """Joules since some moment; None where they are not counted."""


class MemoryProbe(Protocol):
    source: str
    resolution: int

    def start(self) -> int:
        """Forget the peak so far; bytes in use now."""

    def peak(self) -> int:
        """Highest number of bytes in use since `start`."""
