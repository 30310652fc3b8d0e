"""Task: one thing to run, a case x implementation x backend x settings."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.json import encode
from msgspec.structs import fields, replace

from opmark.schema.case import Case, digest
from opmark.schema.company import Company
from opmark.schema.evaluation import DataChoice
from opmark.schema.load import Load
from opmark.schema.measurement import Cache

# Sampling: how long to warm up, how finely to sample, when to stop.


class Sampling(Struct, frozen=True):
    """Times are seconds of measured time; fractions are relative to the median."""

    warmup_min: float
    warmup_max: float
    warmup_agreement: float
    """Warm-up ends when the medians of two successive windows differ by no more than this fraction."""
    sample_time: float
    """A sample lasts at least this long: short calls are batched until it does."""
    min_samples: int
    min_time: float
    max_time: float
    rel_ci: float
    """Stop when the half-width of the median's 95 % interval is no more than this fraction."""
    warmup: int | None = None
    """Exact number of warm-up calls, which replaces the rules above."""
    samples: int | None = None
    """Exact number of samples of one call each, which replaces the rules above."""


EFFORTS: dict[str, Sampling] = {
    "quick": Sampling(
        warmup_min=0.005, warmup_max=0.1, warmup_agreement=0.03,
        sample_time=1e-4, min_samples=20, min_time=0.015, max_time=0.2, rel_ci=0.02,
    ),
    "standard": Sampling(
        warmup_min=0.05, warmup_max=0.5, warmup_agreement=0.02,
        sample_time=5e-4, min_samples=30, min_time=0.15, max_time=0.4, rel_ci=0.005,
    ),
    "thorough": Sampling(
        warmup_min=0.2, warmup_max=2.0, warmup_agreement=0.01,
        sample_time=1e-3, min_samples=100, min_time=0.5, max_time=2.0, rel_ci=0.002,
    ),
}  # fmt: skip

PROCESSES: dict[str, int] = {"quick": 1, "standard": 5, "thorough": 10}
"""Number of fresh processes per case on a CPU: placement of threads and pages and the state of the machine differ
between processes by more than the samples of one process can show."""

DEVICE_PROCESSES: dict[str, int] = {"quick": 1, "standard": 1, "thorough": 5}
"""Number of fresh processes per case on a device: device time hardly depends on the process, and frameworks start
slowly there."""

TimerName = Literal["", "cupti", "torch-profiler", "roctracer", "events", "graph"]
Mode = Literal["", "discrete", "continuous", "continuous_events"]
MODES: dict[str, str] = {
    "discrete": "latency",
    "continuous": "throughput",
    "continuous_events": "event_time",
}
"""PARAM's execution modes, and the quantity that each of them measures."""


class Resources(Struct, frozen=True):
    """What a worker may use of the machine, beside its number of threads. A default stands for all that there is."""

    placement: str = ""
    """How the cores were chosen, as people read it: `scatter`, `compact`, `node 1`."""
    cores: tuple[int, ...] = ()
    """Logical cores that it may run on."""
    memory_node: int | None = None
    """NUMA node that its memory comes from."""
    cache_ways: int | None = None
    """Ways of the last-level cache that it may fill (resctrl)."""
    sm_percent: int | None = None
    """Share of the multiprocessors of a GPU that it may use (MPS)."""
    sms: int | None = None
    """Number of multiprocessors of a GPU that its calls run on (a green context)."""
    clock: int | None = None
    """MHz that the clock of the GPU is locked at."""

    @property
    def text(self) -> str:
        """The resources as tables name them."""
        parts = [
            self.placement or (f"cores {','.join(map(str, self.cores))}" if self.cores else ""),
            "" if self.cache_ways is None else f"{self.cache_ways} L3 ways",
            "" if self.sm_percent is None else f"{self.sm_percent} % of SMs",
            "" if self.sms is None else f"{self.sms} SMs",
            "" if self.clock is None else f"{self.clock} MHz",
        ]
        return ", ".join(filter(None, parts))


class Settings(Struct, frozen=True):
    threads: int
    effort: str
    sampling: Sampling
    seed: int = 0
    verify: bool = True
    quantities: tuple[str, ...] = ()
    """Empty: the backend's default quantities."""
    caches: tuple[Cache, ...] = ()
    """Empty: cold and warm for device quantities, warm for the others."""
    mode: Mode = ""
    timer: TimerName = ""
    """Timer of device quantities. Empty: the profiler, and another timer if that fails."""
    process: int = 0
    """Index among the fresh processes that measure the case."""
    compile_only: bool = False
    """Compile and verify, and measure nothing."""
    load: Load | None = None
    """Measure `request_latency` under this load, in place of other quantities."""
    data: DataChoice | None = None
    """Evaluate the accuracy on this data after verification."""
    artifact: str = ""
    """Folder that what was compiled is written to; empty: nowhere."""
    configuration: tuple[tuple[str, bool | int | float | str | tuple[int, ...]], ...] = ()
    """Values of knobs, by name, of the implementation and of the backend. Empty: every knob has its default."""
    company: Company | None = None
    """What runs at the same time, while the task is measured."""
    resources: Resources | None = None
    """What its worker may use of the machine; None: all that there is."""

    @property
    def circumstances(self) -> str:
        """The load, or the company, as tables name it; empty without. Figures are compared only where this is the
        same."""
        found = self.load or self.company
        return found.text if found else ""

    @property
    def conditions(self) -> str:
        """Everything beside backend and threads that the task was measured under, as tables name it: the load or the
        company, and the resources; empty without."""
        return ", ".join(filter(None, (self.circumstances, self.resources.text if self.resources else "")))


def key_across_processes(case: str, backend: str, implementation: str, settings: Settings) -> tuple[object, ...]:
    """Return a key that is equal for tasks that differ only in the process. `case` is the id of the case."""
    same = replace(settings, process=0) if settings.process else settings
    return case, backend, implementation, same


_settings_json: dict[bytes, str] = {}
"""Cache of settings as JSON with sorted keys, by their fast encoding: a run has few settings, but an id per record."""


_IN_EVERY_ID: dict[type[Struct], frozenset[str]] = {
    Settings: frozenset(
        {"threads", "effort", "sampling", "seed", "verify", "quantities", "caches", "mode", "timer", "process"}
    ),
    Sampling: frozenset(
        {"warmup_min", "warmup_max", "warmup_agreement", "sample_time", "min_samples", "min_time", "max_time",
         "rel_ci", "warmup", "samples"}
    ),
    Resources: frozenset({"placement", "cores", "memory_node", "cache_ways", "sm_percent", "clock"}),
}  # fmt: skip
"""Fields that task ids have contained from the start. A field that is added later is in an id only where it is not the
default, so that old runs can still be resumed, joined and looked up."""


def _in_every_id(kind: type) -> frozenset[str] | None:
    """Return the fields of a struct, or of one derived from it, that every id contains; None for anything else."""
    return next((names for base, names in _IN_EVERY_ID.items() if issubclass(kind, base)), None)


def _fields_in_id(struct: Struct) -> dict[str, Any]:
    """Return the part of settings, or of a struct inside of them, that a task id contains."""
    always = _in_every_id(type(struct))
    assert always is not None
    values = {one.name: getattr(struct, one.name) for one in fields(struct)
              if one.name in always or getattr(struct, one.name) != one.default}  # fmt: skip
    return {
        name: to_builtins(value) if _in_every_id(type(value)) is None else _fields_in_id(value)
        for name, value in values.items()
    }


def written_identity(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the part of settings that a task id contains, of settings as somebody has written them: without fields
    that were added later and have their default."""
    found = _without_later(settings, Settings)
    for name, kind in (("sampling", Sampling), ("resources", Resources)):
        if isinstance(value := found.get(name), dict):
            found[name] = _without_later(value, kind)
    return found


def _without_later(written: dict[str, Any], kind: type[Struct]) -> dict[str, Any]:
    later = _later_defaults(kind)
    return {name: value for name, value in written.items() if name not in later or value != later[name]}


@cache  # an upload has many records
def _later_defaults(kind: type[Struct]) -> dict[str, Any]:
    """Return the defaults of the fields that were added later, as they are written: JSON has lists and no tuples."""
    return {one.name: json.loads(encode(one.default)) for one in fields(kind) if one.name not in _IN_EVERY_ID[kind]}


class Task(Struct, frozen=True):
    case: Case
    backend: str
    implementation: str
    settings: Settings

    @property
    def id(self) -> str:
        known = encode(self.settings)
        if known not in _settings_json:
            identity = _fields_in_id(self.settings)
            _settings_json[known] = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        who = ",".join(map(json.dumps, (self.case.id, self.backend, self.implementation)))
        return digest(f"[{who},{_settings_json[known]}]".encode())

    @property
    def artifact_path(self) -> Path | None:
        """The file that what was compiled is written to; None where that is not asked for."""
        if not self.settings.artifact:
            return None
        model = PurePath(self.case.op.rpartition(":")[2]).stem
        return Path(self.settings.artifact) / f"{model}.{re.sub(r'[/@]', '-', self.backend)}.{self.case.id[:8]}.xla"

    @property
    def across_processes(self) -> Task:
        """The task of process 0, which is the same for all processes of the task."""
        return replace(self, settings=replace(self.settings, process=0))
