"""Record: what is stored of a task, whatever became of it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from opmark.schema.compilation import Compilation
from opmark.schema.cost import Cost
from opmark.schema.measurement import Measurement
from opmark.schema.numerics import Numerics
from opmark.schema.overlap import Overlap
from opmark.schema.profile import Profile
from opmark.schema.quantity import Cache
from opmark.schema.task import Task

Status = Literal["ok", "wrong", "skipped", "error", "timeout", "oom"]
"""
ok       measured, and verified where verification was possible
wrong    computed a wrong result; not measured
skipped  cannot run here; nothing was tried, or the framework said that it lacks this
error    raised, or took its process down
timeout  did not finish in time; its process was killed
oom      needed more memory than there was
"""

FAILED: frozenset[Status] = frozenset({"wrong", "error", "timeout", "oom"})


class Memory(Struct, frozen=True):
    """Bytes of the device that the task needed, inputs included."""

    peak: int
    """Highest use during the first call, minus the use before the inputs were made."""
    baseline: int
    source: str
    """Who counted: the framework's allocator, or the kernel (resident pages)."""
    resolution: int = 1
    """Steps in which the counter counts; a smaller need reads as 0."""


class Verification(Struct, frozen=True):
    checked: Literal["full", "scaled", "none"]
    """`scaled`: the case was too large, the same operator and dtype was checked at smaller sizes."""
    note: str = ""
    params: dict[str, Any] | None = None
    """What was checked, where it was not the case itself."""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    tolerance: tuple[float, float] | None = None
    """(relative to the value, relative to the magnitude of all values)."""
    reference: str = ""
    """Who computed the reference, where it was not NumPy."""
    after: str = ""
    """Of the check after timing, with other data in the same tensors and poisoned outputs: `same`, or why not done."""
    numerics: tuple[Numerics, ...] = ()
    """How far each output (of a backward phase: each gradient that can be compared as it is) is from the reference,
    also where that is too far."""


class Record(Struct, frozen=True):
    task: Task
    status: Status
    reason: str = ""
    measurements: tuple[Measurement, ...] = ()
    cost: Cost | None = None
    memory: Memory | None = None
    verification: Verification | None = None
    environment: str = ""
    """Id of the environment it ran in; empty where nothing ran."""
    started: str = ""
    """UTC, ISO 8601."""
    called: str = ""
    """The arguments of a foreign call, where the parameters of its case do not say them."""
    view: bool = False
    """The result is another look at what went in: the data stayed where it was, so there is no bandwidth."""
    notes: tuple[str, ...] = ()
    """What was asked for and could not be had, and why."""
    duration: float = 0.0
    """Seconds from the order to the record, everything included."""
    profiles: tuple[Profile, ...] = ()
    """What external profilers said of it."""
    compilation: Compilation | None = None
    """Of a backend that compiles."""
    untried: bool = False
    """What it needs was gone before it was its turn: it is told and not stored, so that `--resume` takes it up."""
    overlap: Overlap | None = None
    """Of communication that runs beside something else."""

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    def measurement(self, quantity: str | None = None, cache: Cache | None = None) -> Measurement | None:
        """The first that fits; without a quantity, the one that stands for the record: the first of all."""
        fitting = (m for m in self.measurements if quantity in (None, m.quantity) and cache in (None, m.cache))
        return next(fitting, None)
