"""Figure: one measurement of a record, made small: what comparisons and histories read instead of records."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from opmark.schema.quantity import Cache
from opmark.schema.record import Status


class Series(NamedTuple):
    """What is compared with what, and followed from run to run."""

    case: str
    """Its id."""
    backend: str
    implementation: str
    threads: int
    quantity: str
    """Empty: nothing was measured."""
    cache: Cache | None


class Figure(Struct, frozen=True):
    """Of a record without a measurement there is one all the same: it has a status."""

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
    """Empty: nothing was measured, and the record says why."""
    cache: Cache | None = None
    median: float | None = None
    """Of the samples of this process: seconds or joules a call."""
    cycles: float | None = None
    """The same in cycles of the clock at which each sample was taken, where the clock is known."""
    cautions: tuple[str, ...] = ()
    """Their codes."""

    @property
    def series(self) -> Series:
        return Series(self.case, self.backend, self.implementation, self.threads, self.quantity, self.cache)
