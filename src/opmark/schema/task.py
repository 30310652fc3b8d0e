"""Task: one thing to run, a case x implementation x backend x settings."""

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
"""PARAM's execution modes, and the quantity that each of them measures."""


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


def alike(case: str, backend: str, implementation: str, settings: Settings) -> tuple[object, ...]:
    """Return a key that is equal for tasks that differ only in the process. `case` is the id of the case."""
    same = replace(settings, process=0) if settings.process else settings
    return case, backend, implementation, same


_settings_json: dict[bytes, str] = {}
"""Cache of settings as JSON with sorted keys, by their fast encoding: a run has few settings, but an id per record."""


class Task(Struct, frozen=True):
    case: Case
    backend: str
    implementation: str
    settings: Settings

    @property
    def id(self) -> str:
        known = encode(self.settings)
        if known not in _settings_json:
            _settings_json[known] = json.dumps(to_builtins(self.settings), sort_keys=True, separators=(",", ":"))
        who = ",".join(map(json.dumps, (self.case.id, self.backend, self.implementation)))
        return digest(f"[{who},{_settings_json[known]}]".encode())

    @property
    def across_processes(self) -> Task:
        """The task of process 0, which is the same for all processes of the task."""
        return replace(self, settings=replace(self.settings, process=0))
