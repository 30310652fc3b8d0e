"""Record: what is stored of a task, whether it succeeded or failed."""

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
skipped  cannot run here: nothing was tried, or the framework does not support it
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
    """The counter: the framework's allocator, or the kernel (resident pages)."""
    resolution: int = 1
    """Step of the counter in bytes; a smaller use reads as 0."""


class Verification(Struct, frozen=True):
    checked: Literal["full", "scaled", "none"]
    """`scaled`: the case was too large, so the same operator and dtype were checked at smaller sizes."""
    note: str = ""
    params: dict[str, Any] | None = None
    """Parameters that were checked, if not those of the case."""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    tolerance: tuple[float, float] | None = None
    """(relative to the value, relative to the magnitude of all values)."""
    reference: str = ""
    """The library that computed the reference, if not NumPy."""
    after: str = ""
    """Result of the check after timing (other data in the same tensors, poisoned outputs): `same`, or why not done."""
    numerics: tuple[Numerics, ...] = ()
    """Distance of each output from the reference, also of a wrong one. In a backward phase: of each gradient that can
    be compared directly."""


class Record(Struct, frozen=True):
    task: Task
    status: Status
    reason: str = ""
    measurements: tuple[Measurement, ...] = ()
    cost: Cost | None = None
    memory: Memory | None = None
    verification: Verification | None = None
    environment: str = ""
    """Id of the environment; empty if nothing ran."""
    started: str = ""
    """UTC, ISO 8601."""
    called: str = ""
    """Arguments of a foreign call, if the parameters of its case do not contain them."""
    view: bool = False
    """The result is a view of an input: no data moved, so there is no bandwidth."""
    notes: tuple[str, ...] = ()
    """What was asked for but could not be done, and why."""
    duration: float = 0.0
    """Seconds from sending the task to receiving the record."""
    profiles: tuple[Profile, ...] = ()
    compilation: Compilation | None = None
    """Only from a backend that compiles."""
    untried: bool = False
    """Something that the task needs was gone before its turn: the record is shown but not stored, so that `--resume`
    runs the task."""
    overlap: Overlap | None = None
    """Only for communication that runs beside other work."""

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    def measurement(self, quantity: str | None = None, cache: Cache | None = None) -> Measurement | None:
        """Return the first measurement that matches; without arguments, the headline."""
        fitting = (m for m in self.measurements if quantity in (None, m.quantity) and cache in (None, m.cache))
        return next(fitting, None)
