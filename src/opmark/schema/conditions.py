"""Conditions: what the machine did while samples were taken."""

from __future__ import annotations

from msgspec import Struct


class Reading(Struct, frozen=True):
    """One look at the sensors; None where there is no such sensor."""

    at: int = 0
    """Samples taken before it."""
    clock: float | None = None
    """Hertz, of what computes: the multiprocessors of a GPU, the cores of a CPU."""
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    throttle: tuple[str, ...] = ()
    """Why the clock is held down: `power`, `temperature`, `hardware`."""


class Conditions(Struct, frozen=True):
    readings: tuple[Reading, ...] = ()
    highest_clock: float | None = None
    """That this device was seen at, in this process."""
    elapsed: float = 0.0
    """Seconds of wall time that the host's counters below were watched."""
    switches: int = 0
    """Times another process took the core away."""
    load: float = 0.0
    """Processes that wanted to run, over the minute before."""
    others: float | None = None
    """Cores that other processes kept busy."""
    steal: float | None = None
    """Share of the time that the hypervisor gave to somebody else."""

    @property
    def clocks(self) -> list[float]:
        return [reading.clock for reading in self.readings if reading.clock]

    def at(self, sample: int) -> tuple[Reading, ...]:
        """The readings before and after a sample."""
        before = [reading for reading in self.readings if reading.at <= sample][-1:]
        after = [reading for reading in self.readings if reading.at > sample][:1]
        return (*before, *after)
