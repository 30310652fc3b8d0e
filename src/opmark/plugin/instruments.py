"""Instruments that a backend may have: clocks, sensors, and a counter of its memory."""

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
    """Resolution in seconds: the least difference between two readings."""

    def time(self, launch: Launch, calls: int) -> float:
        """Return the seconds of that many back-to-back calls, harness included."""

    def overhead(self, calls: int) -> float:
        """Return the seconds of such a measurement that the harness itself takes."""


class Activity(NamedTuple):
    """A kernel, copy or fill that ran on the device. Times count from the start of the trace: counted from 1970 they
    would be too coarse."""

    name: str
    start: float
    end: float


class Trace(NamedTuple):
    """The activities of the device during several calls."""

    calls: list[list[Activity]]
    """The activities of each call, in the order of the calls; a call with records missing is empty."""
    lost: int = 0
    """Number of calls with missing records."""
    stray: int = 0
    """Activities that were launched outside of any call."""
    queued: bool = True
    """Whether the device was still held when the last call had been launched."""


class DeviceClock(ABC):
    """The clock of a device. One method is required; the others are further ways to time, which a device may lack."""

    name: str
    replaceable = False
    """Whether CUPTI's records, which opmark reads by itself on an NVIDIA GPU, may take its place."""
    opens_gate = False
    """Whether `trace` lets the device go as soon as all calls are queued, so that `hold` is only a limit."""

    @abstractmethod
    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        """Return the activities of each launch, without those of `before`, which runs ahead of each.

        The device is kept busy for `hold` seconds first, so that all calls are queued when it begins with them.
        Raises TimerFailed if the clock cannot be read.
        """

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        """Return the seconds between two events around each launch; with `hold`, calls are queued first, so that the
        time of launching is not included."""
        raise TimerFailed(f"{self.name} has no events")

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        """Capture the launches as one graph, and return a function that replays it and returns seconds per launch.

        Raises WrongResult if the graph does not compute the same as the launches.
        """
        raise TimerFailed(f"{self.name} has no graphs")

    def find(self, timer: str) -> DeviceClock | None:
        """Return the clock with that name, which may be one that this clock has replaced; None if there is none."""
        return self if timer in ("", self.name) else None

    def detach(self) -> None:
        """Undo whatever makes calls slower after a trace. It is called before times of the host are taken."""
        return None


class Sensors(Protocol):
    def read(self) -> SensorReading: ...

    def energy(self) -> float | None:
        """Return the energy in joules since an arbitrary moment; None if it is not counted."""


class MemoryProbe(Protocol):
    source: str
    resolution: int

    def start(self) -> int:
        """Reset the peak, and return the bytes in use now."""

    def peak(self) -> int:
        """Return the highest number of bytes in use since `start`."""
