"""Profile: what an external profiler said of a task, by kernel."""

from __future__ import annotations

from msgspec import Struct

NO_PROFILE, PARTLY = "no profile", "part of a profile"
"""So begins a note of a record that says why a profiler told nothing of it, or not all."""


class KernelMetrics(Struct, frozen=True):
    name: str
    metrics: dict[str, float | str]
    """As the profiler calls them, with its unit in brackets: `gpu__time_duration.sum [ns]`."""


class Profile(Struct, frozen=True):
    profiler: str
    file: str
    """Its own output, for its own viewer."""
    kernels: tuple[KernelMetrics, ...] = ()
    """In the order launched."""
    command: str = ""
