"""Conditions: what the machine did while samples were taken."""

from __future__ import annotations

from msgspec import Struct


class Reading(Struct, frozen=True):
    """One reading of the sensors; a field is None if there is no such sensor."""

    at: int = 0
    """Number of samples taken before this reading."""
    clock: float | None = None
    """Clock in hertz of the unit that computes: the multiprocessors of a GPU, the cores of a CPU."""
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    throttle: tuple[str, ...] = ()
    """Why the clock is held down: `power`, `temperature`, `hardware`."""


class Conditions(Struct, frozen=True):
    readings: tuple[Reading, ...] = ()
    highest_clock: float | None = None
    """Highest clock that this process has seen on this device, in hertz."""
    elapsed: float = 0.0
    """Seconds of wall time over which the host's counters below were watched."""
    switches: int = 0
    """Number of involuntary context switches."""
    load: float = 0.0
    """Load average of the minute before."""
    others: float | None = None
    """Number of cores that other processes kept busy."""
    steal: float | None = None
    """Share of the time that the hypervisor gave to other virtual machines."""

    @property
    def clocks(self) -> list[float]:
        return [reading.clock for reading in self.readings if reading.clock]

    def at(self, sample: int) -> tuple[Reading, ...]:
        """Return the readings before and after a sample."""
        before = [reading for reading in self.readings if reading.at <= sample][-1:]
        after = [reading for reading in self.readings if reading.at > sample][:1]
        return (*before, *after)
