"""Item: what pages show of a task, over all its processes. Derived numbers are computed when the store is read."""

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
    """The number of one quantity in one state of the caches."""

    quantity: str
    cache: Cache
    unit: str
    median: float | None
    """Seconds or joules per call; over several processes, the median of their medians. None if there is no number."""
    low: float | None
    high: float | None
    """Ends of the median's interval."""
    samples: int
    processes: int
    cautions: tuple[str, ...] = ()
    """Codes of the cautions."""

    @property
    def usable(self) -> bool:
        """Whether the number says anything about the operator."""
        positive = self.median is not None and math.isfinite(self.median) and self.median > 0
        return positive and PREEMPTED not in self.cautions


class Share(Struct, frozen=True):
    """Share of the hardware's peak."""

    share: float
    bound: str
    """The limit that applies: `compute`, or the name of a level of memory."""


class Item(Struct, frozen=True):
    key: str
    """Id of the first task: identifies the item within a run."""
    run: str
    case: str
    """Id of the case."""
    op: str
    phase: str
    params: dict[str, Any]
    parameters: str
    """The parameters as people read them."""
    backend: str
    implementation: str
    where: str
    """Backend, implementation (if there are several), threads and processes, as tables name them."""
    threads: int
    processes: int
    effort: str
    mode: str
    status: Status
    reason: str
    timings: tuple[Timing, ...]
    """The first one is the headline."""
    environment: str
    started: str
    duration: float
    """Seconds from sending the task to receiving the record, over all processes."""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int | None = None
    """Bytes that have to be moved at least; for communication operators, the size of the buffers."""
    flops: int | None = None
    bytes_per_second: float | None = None
    flops_per_second: float | None = None
    """Both rates are those of the headline, if that is a time."""
    of_peak: Share | None = None
    of_datasheet: Share | None = None
    traffic: int | None = None
    """For communication operators: bytes of the whole buffer."""
    link: Link | None = None
    ranks: int | None = None
    algorithm_bandwidth: float | None = None
    bus_bandwidth: float | None = None
    memory: int | None = None
    """Peak memory in bytes, inputs included."""
    compile_time: float | None = None
    verified: str = ""
    """`full`, `scaled` or `none`; empty if nothing ran."""
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed; empty: all inputs that have a gradient."""
    memory_source: str = ""
    """The counter of `memory`: the framework's allocator or the kernel; empty if nothing counted it."""
    memory_resolution: int = 1
    """Step of the memory counter in bytes; a smaller use cannot be told from 0."""
    seed: int = 0

    @property
    def headline(self) -> Timing | None:
        return self.timings[0] if self.timings else None

    @property
    def seconds(self) -> float | None:
        """Median of the headline, if that is a time above 0."""
        first = self.headline
        return first.median if first and first.unit == "s" and first.median and first.median > 0 else None

    @property
    def name(self) -> str:
        """Operator, parameters, and the phase unless it is `forward`."""
        backward = "" if self.phase == "forward" else self.phase_text
        return " ".join(filter(None, (self.op, self.parameters, backward)))

    @property
    def phase_text(self) -> str:
        """The phase, with the inputs whose gradients are computed if they were chosen: `backward dx`."""
        return " d".join((self.phase, *self.wrt)) if self.wrt else self.phase

    @property
    def dtype(self) -> str:
        return str(self.params.get("dtype", ""))

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    @property
    def usable(self) -> bool:
        """Whether the task succeeded and its headline says anything about the operator."""
        return self.status == "ok" and self.headline is not None and self.headline.usable

    @property
    def headline_cautions(self) -> tuple[str, ...]:
        """Cautions of the headline alone."""
        return self.headline.cautions if self.headline else ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """Cautions of all numbers."""
        return tuple(dict.fromkeys(code for timing in self.timings for code in timing.cautions))

    def timing(self, quantity: str, cache: Cache | None = None) -> Timing | None:
        """Return the first timing that matches and has a number."""
        fitting = (t for t in self.timings if t.quantity == quantity and cache in (None, t.cache))
        return next((t for t in fitting if t.median is not None), None)


class Ceilings(Struct, frozen=True):
    """The known peaks of a chip; None if they were not measured, or if there is no datasheet."""

    measured: Peaks | None = None
    datasheet: Peaks | None = None


class Looked(Struct, frozen=True):
    """A run with its items, as pages and tables show it."""

    run: Run
    items: tuple[Item, ...]
    """In the order in which their first records were written."""
    environments: dict[str, dict[str, Any]] = {}
    """Facts of each environment, by its id."""
    ceilings: dict[str, Ceilings] = {}
    """By the id of an environment."""
    records: int = 0
    """Number of stored records; compared with `run.tasks`, the progress of the run."""
    newest: str = ""
    """When the newest record was started."""
