"""Item: what pages show of a task, its processes together. Numbers are computed from what is stored when it is read."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from opmark.schema.measurement import PREEMPTED
from opmark.schema.peaks import Peaks
from opmark.schema.quantity import Cache
from opmark.schema.record import FAILED, Status
from opmark.schema.run import Run
from opmark.schema.traffic import Link


class Timing(Struct, frozen=True):
    """One quantity in one state of the caches."""

    quantity: str
    cache: Cache
    unit: str
    median: float | None
    """Seconds or joules a call; of several processes the median of theirs. None where there is no number."""
    low: float | None
    high: float | None
    """Ends of its interval."""
    samples: int
    processes: int
    cautions: tuple[str, ...] = ()
    """Codes."""

    @property
    def usable(self) -> bool:
        """Whether its number says something of the operator."""
        positive = self.median is not None and math.isfinite(self.median) and self.median > 0
        return positive and PREEMPTED not in self.cautions


class Share(Struct, frozen=True):
    """Of what the hardware can do at most."""

    share: float
    bound: str
    """`compute`, or the name of a level of memory."""


class Item(Struct, frozen=True):
    key: str
    """The id of its first task: where it is found within a run."""
    run: str
    case: str
    """Its id."""
    op: str
    phase: str
    params: dict[str, Any]
    parameters: str
    """The same as people read them."""
    backend: str
    implementation: str
    where: str
    """Backend, implementation if there are several, threads, processes: as tables name them."""
    threads: int
    processes: int
    effort: str
    mode: str
    status: Status
    reason: str
    timings: tuple[Timing, ...]
    """The first is the headline."""
    environment: str
    started: str
    duration: float
    """Seconds from the order to the record, over all processes."""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int | None = None
    """That it has to move at least; of communication what its buffers take."""
    flops: int | None = None
    bytes_per_second: float | None = None
    flops_per_second: float | None = None
    """Of the headline, where that is a time."""
    of_peak: Share | None = None
    of_datasheet: Share | None = None
    traffic: int | None = None
    """Of communication: bytes of the whole buffer."""
    link: Link | None = None
    ranks: int | None = None
    algorithm_bandwidth: float | None = None
    bus_bandwidth: float | None = None
    memory: int | None = None
    """Bytes at the peak, inputs included."""
    compile_time: float | None = None
    verified: str = ""
    """`full`, `scaled`, `none`; empty where nothing ran."""
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed, where not those of all that have one."""
    memory_source: str = ""
    """Who counted: the framework's allocator, or the kernel; empty where nobody did."""
    memory_resolution: int = 1
    """Steps in which it was counted; a smaller need is known to be smaller and no more."""
    seed: int = 0

    @property
    def headline(self) -> Timing | None:
        return self.timings[0] if self.timings else None

    @property
    def seconds(self) -> float | None:
        """Median of the headline, where that is a time above 0."""
        first = self.headline
        return first.median if first and first.unit == "s" and first.median and first.median > 0 else None

    @property
    def name(self) -> str:
        """Operator, parameters, and the phase where it is not the usual one."""
        backward = "" if self.phase == "forward" else self.phase_text
        return " ".join(filter(None, (self.op, self.parameters, backward)))

    @property
    def phase_text(self) -> str:
        """With the inputs whose gradients are computed, where these are chosen: `backward dx`."""
        return " d".join((self.phase, *self.wrt)) if self.wrt else self.phase

    @property
    def dtype(self) -> str:
        return str(self.params.get("dtype", ""))

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    @property
    def usable(self) -> bool:
        """Whether it went well and its headline says something of the operator."""
        return self.status == "ok" and self.headline is not None and self.headline.usable

    @property
    def headline_cautions(self) -> tuple[str, ...]:
        """Of the number that stands for it, and of no other."""
        return self.headline.cautions if self.headline else ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """Of all its numbers."""
        return tuple(dict.fromkeys(code for timing in self.timings for code in timing.cautions))

    def timing(self, quantity: str, cache: Cache | None = None) -> Timing | None:
        """The first that fits and has a number."""
        fitting = (t for t in self.timings if t.quantity == quantity and cache in (None, t.cache))
        return next((t for t in fitting if t.median is not None), None)


class Ceilings(Struct, frozen=True):
    """What is known of a chip's limits; None for what nobody has measured or written down."""

    measured: Peaks | None = None
    datasheet: Peaks | None = None


class Looked(Struct, frozen=True):
    """A run as it is looked at."""

    run: Run
    items: tuple[Item, ...]
    """In the order in which they were first written."""
    environments: dict[str, dict[str, Any]] = {}
    """Facts by id."""
    ceilings: dict[str, Ceilings] = {}
    """By the id of an environment."""
    records: int = 0
    """That are stored: against `run.tasks` how far it is."""
    newest: str = ""
    """When the last of them was begun."""
