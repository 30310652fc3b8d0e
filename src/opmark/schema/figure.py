"""Numbers of measurements without their samples: as they are stored, and as comparisons and histories read them."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from opmark.schema.quantity import Cache
from opmark.schema.record import Status


class StoredFigure(Struct, frozen=True, array_like=True):
    """The numbers of one measurement that a store keeps beside its samples."""

    quantity: str
    cache: Cache
    timer: str
    calls: int
    samples: int
    median: float | None
    """Seconds or joules per call; None where there are no samples."""
    low: float | None
    high: float | None
    """Ends of the interval of the median."""
    cycles: float | None
    """The median in cycles of the clock at which each sample was taken, where the clock is known."""
    cautions: tuple[str, ...]
    """Codes, each once."""


class Series(NamedTuple):
    """Key under which figures of different runs are compared and followed over time."""

    case: str
    """Id of the case."""
    backend: str
    implementation: str
    threads: int
    quantity: str
    """Empty if nothing was measured."""
    cache: Cache | None


class Figure(Struct, frozen=True):
    """One measurement of a record. A record without measurements has one figure too, which carries its status."""

    run: str
    case: str
    op: str
    backend: str
    implementation: str
    threads: int
    process: int
    status: Status
    environment: str
    started: str
    quantity: str = ""
    """Empty if nothing was measured; the record says why."""
    cache: Cache | None = None
    median: float | None = None
    """Median of the samples of this process: seconds or joules per call."""
    cycles: float | None = None
    """The median in clock cycles, where the clock during each sample is known."""
    cautions: tuple[str, ...] = ()
    """Codes of the cautions."""

    @property
    def series(self) -> Series:
        return Series(self.case, self.backend, self.implementation, self.threads, self.quantity, self.cache)
