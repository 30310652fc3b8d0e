"""Profile: the metrics of a task by kernel, from an external profiler."""

from __future__ import annotations

from msgspec import Struct

NO_PROFILE, PARTLY = "no profile", "part of a profile"
"""How a note of a record begins that says why its profile is missing or incomplete."""


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
