"""Task: case x implementation x backend x settings. One thing to run."""

from __future__ import annotations

import json
from typing import Literal

from msgspec import Struct, to_builtins
from msgspec.json import encode
from msgspec.structs import replace

from opmark.schema.case import Case, digest
from opmark.schema.quantity import Cache
from opmark.schema.sampling import Sampling

TimerName = Literal["", "cupti", "roctracer", "events", "graph"]
Mode = Literal["", "discrete", "continuous", "continuous_events"]
MODES: dict[str, str] = {
    "discrete": "latency",
    "continuous": "throughput",
    "continuous_events": "event_time",
}
"""PARAM's execution modes, and the quantity that each of them is."""


class Settings(Struct, frozen=True):
    threads: int
    effort: str
    sampling: Sampling
    seed: int = 0
    verify: bool = True
    quantities: tuple[str, ...] = ()
    """None: those that the backend has by default."""
    caches: tuple[Cache, ...] = ()
    """None: cold and warm for what a device did, warm for the rest."""
    mode: Mode = ""
    timer: TimerName = ""
    """For what a device did; none: the profiler, and another where it fails."""
    process: int = 0
    """Which of several fresh processes this is for."""


def alike(case: str, backend: str, implementation: str, settings: Settings) -> tuple[object, ...]:
    """Equal for tasks that are the same but for the process. `case`: its id."""
    same = replace(settings, process=0) if settings.process else settings
    return case, backend, implementation, same


_written: dict[bytes, str] = {}
"""Settings as ids have them, by what encodes them fastest: a run has few, and one id a record."""


class Task(Struct, frozen=True):
    case: Case
    backend: str
    implementation: str
    settings: Settings

    @property
    def id(self) -> str:
        known = encode(self.settings)
        if known not in _written:
            _written[known] = json.dumps(to_builtins(self.settings), sort_keys=True, separators=(",", ":"))
        who = ",".join(map(json.dumps, (self.case.id, self.backend, self.implementation)))
        return digest(f"[{who},{_written[known]}]".encode())

    @property
    def across_processes(self) -> Task:
        """The same for every process that it is measured in."""
        return replace(self, settings=replace(self.settings, process=0))
