"""Record: what is stored of a task, whether it succeeded or failed."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct

from opmark.schema.case import content_id
from opmark.schema.cost import Cost
from opmark.schema.evaluation import Evaluation
from opmark.schema.measurement import Cache, Measurement
from opmark.schema.task import Task


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


# Compilation: how long compiling an operator took, and what it produced. Run time is stored elsewhere.


class GraphCoverage(Struct, frozen=True):
    """How much of the graph that it was given a backend has taken; the rest is computed by something else."""

    operators: int
    """Number of operators in the graph that was given."""
    taken: int
    """Number of these that the backend took."""
    flops: float | None = None
    """Share of the FLOPs that are in these; None if unknown."""
    fallback: dict[str, int] = {}
    """Number of the others by name."""
    note: str = ""
    """What a reader has to know: that the backend takes all of a graph or nothing."""


EXPORT_SECONDS = "opmark.export_seconds"
"""Key in the metadata of an ONNX graph: how many seconds exporting it took."""


class Compilation(Struct, frozen=True):
    cold: float
    """Seconds of compiling with empty caches."""
    cached: float | None = None
    """Seconds of compiling again in the same process, with the framework's caches filled; None if it has none."""
    graphs: int | None = None
    """Number of graphs that the function was compiled into: more than one after a graph break."""
    breaks: tuple[str, ...] = ()
    """The reason for each graph break."""
    operators: tuple[str, ...] = ()
    """Operators in the compiled graphs, in the framework's own names: proof that ours is among them."""
    kernels: tuple[str, ...] = ()
    """Kernels that the compiler generated, where it names them."""
    cache: str = ""
    """The cache that makes the second compilation fast: FX graph cache, in-memory cache, none."""
    coverage: GraphCoverage | None = None
    export: float | None = None
    """Seconds that exporting the graph took, which is not in `cold`; None where nothing was exported."""


# Environment: everything about a machine and its software that may explain a number.


class Environment(Struct, frozen=True):
    id: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Environment:
        return cls(content_id(facts), facts)


# Numerics: how far one output is from the float64 reference. It serves to compare frameworks and is no verdict.


HISTOGRAM_DECADES = (-12, 2)
"""Powers of ten between which a histogram of errors has one bin per decade."""


class Numerics(Struct, frozen=True):
    """Errors over the elements that are finite on both sides; other elements are only counted. None if unknown, not
    0."""

    elements: int
    compared: int
    """Number of elements that are finite in the output and in the reference."""
    nan: int
    """Number of NaN in the output."""
    inf: int
    """Number of infinite elements in the output."""
    nan_expected: int
    inf_expected: int
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    """Relative to the reference, over the elements whose reference is not 0."""
    mean_rel: float | None = None
    cosine: float | None = None
    """Cosine of the angle between output and reference as vectors; None if one of them is all zeros."""
    max_ulp: float | None = None
    """Error in units in the last place (ULP) of the output's type at the reference; None for integers."""
    mean_ulp: float | None = None
    rmse: float | None = None
    """Root mean square of the errors."""
    rms: float | None = None
    """Root mean square of the reference: bounds of models are relative to it."""
    histogram: tuple[int, ...] = ()
    """Number of elements by the size of their error, relative to `rms` (or absolute, where that is 0): below the first
    of HISTOGRAM_DECADES, one bin per decade, and from the last on."""


# Overlap: how much of a communication is hidden behind other work that runs at the same time.


class Overlap(Struct, frozen=True):
    """All times are seconds of the slowest rank."""

    first: str
    """The communication: it is started first and waited for last."""
    first_alone: float
    second: str
    """The work that runs meanwhile."""
    second_alone: float
    together: float

    @property
    def share(self) -> float:
        """Hidden share of the shorter one: 1 if both together take no longer than the longer one, 0 if they take as
        long as one after the other."""
        shorter = min(self.first_alone, self.second_alone)
        saved = self.first_alone + self.second_alone - self.together
        return max(0.0, min(1.0, saved / shorter)) if shorter > 0 else 0.0


# Profile: the metrics of a task by kernel, from an external profiler.

NO_PROFILE, PARTLY = "no profile", "part of a profile"
"""How a note of a record begins that says why its profile is missing or incomplete."""
IN_SEQUENCE = "in sequence"
"""How a note of a co-run begins that says on what an operator ran while it was alone."""


class KernelMetrics(Struct, frozen=True):
    name: str
    metrics: dict[str, float | str]
    """By the profiler's own names, with the unit in brackets: `gpu__time_duration.sum [ns]`."""


class Profile(Struct, frozen=True):
    profiler: str
    file: str
    """The profiler's own output, for its viewer."""
    kernels: tuple[KernelMetrics, ...] = ()
    """In the order launched."""
    command: str = ""


Status = Literal["ok", "unchecked", "disturbed", "wrong", "skipped", "error", "timeout", "oom", "killed"]
"""
ok         measured, and verified at the size that was measured
unchecked  measured, but nothing has verified the result: it has no place in a ranking
disturbed  measured, but other work on the machine spoilt every try: the number is shown in brackets and counts nowhere
wrong      computed a wrong result; not measured
skipped    cannot run here: nothing was tried, or the framework does not support it
error      raised, or took its process down
timeout    did not finish in time; its process was killed
oom        needed more memory than there was: its framework, or a counter of the kernel, says so
killed     its process was ended from outside, and nothing says why
"""

STATUSES: tuple[Status, ...] = get_args(Status)
FAILED: frozenset[Status] = frozenset({"wrong", "error", "timeout", "oom", "killed"})
NOT_TRIED = "not tried"
"""In place of the status of a record that is `untried`, where people read it."""
TaskStage = Literal["", "export", "compile", "run", "verify", "measure"]
"""Stages of a task, in their order."""
COUNTED: frozenset[Status] = frozenset({"ok", "unchecked"})
"""Statuses of numbers that count: in rates, comparisons, histories and key figures."""
MEASURED: frozenset[Status] = COUNTED | {"disturbed"}
"""Statuses of records with measurements."""


def severity(status: Status) -> int:
    """Return a sort key by which one status stands for several processes: failures and skips come first, `ok` last."""
    return {"disturbed": 1, "unchecked": 2, "ok": 3}.get(status, 0)


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
    checked: Literal["full", "sampled", "scaled", "none"]
    """
    full     every element was compared
    sampled  a part of the case was compared, at the size that was measured; `Numerics.elements` says how many elements
    scaled   only a smaller case of the same operator and dtype was compared: the case itself is unchecked
    none     nothing was compared
    """
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
    outputs: tuple[str, ...] = ()
    """Names of the outputs, where they have any."""
    bounds: tuple[float, ...] = ()
    """How far each output may be off, relative to the root mean square of its reference, where outputs differ in it."""


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
    """When the task was first tried, in UTC, ISO 8601. Rows have this order."""
    called: str = ""
    """Arguments of a foreign call, if the parameters of its case do not contain them; the mode of a module, `eval()` or
    `train()`."""
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
    """No worker was there to try the task: the record is shown but not stored, so that `--resume` runs the task."""
    overlap: Overlap | None = None
    """Only for communication that runs beside other work."""
    stage: TaskStage = ""
    """The stage in which the task ended, if it did not reach its end; empty also if it was never tried."""
    evaluation: Evaluation | None = None
    """Only where `Settings.data` names data."""

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    @property
    def status_text(self) -> str:
        """The status for people: what became of the worker says nothing about a task that it was never given."""
        return NOT_TRIED if self.untried else self.status

    def measurement(self, quantity: str | None = None, cache: Cache | None = None) -> Measurement | None:
        """Return the first measurement that matches; without arguments, the headline."""
        fitting = (m for m in self.measurements if quantity in (None, m.quantity) and cache in (None, m.cache))
        return next(fitting, None)


# Numbers of measurements without their samples: as they are stored, and as comparisons and histories read them.


class StoredFigure(Struct, frozen=True, array_like=True):
    """The numbers of one measurement that a store keeps beside its samples."""

    quantity: str
    cache: Cache
    timer: str
    """For quantities in NAMED_BY_TIMER, the load or the company."""
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


class SeriesKey(NamedTuple):
    """Key under which figures of different runs are compared and followed over time."""

    case: str
    """Id of the case."""
    backend: str
    implementation: str
    threads: int
    quantity: str
    """Empty if nothing was measured."""
    cache: Cache | None
    load: str = ""
    """The load, or the company, as `Settings.circumstances` has it. Figures of different ones are never compared."""


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
    load: str = ""
    """The load, or the company, as `Settings.circumstances` has it; empty without."""

    @property
    def series(self) -> SeriesKey:
        return SeriesKey(
            self.case, self.backend, self.implementation, self.threads, self.quantity, self.cache, self.load
        )
