"""Interface of external profilers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from opmark.schema import KernelMetrics


class Watched(NamedTuple):
    """The program to profile, and where to write the output."""

    program: Sequence[str]
    """A command line; it opens a range around each task."""
    ranges: Sequence[str]
    """Names of the ranges: letters, digits and underscores, because filters interpret other characters."""
    stem: Path
    """Path without ending: the profiler adds its own endings."""
    bin: str = ""
    """Path of the profiler, if the user names one."""
    args: Sequence[str] = ()
    """Further arguments for the profiler."""
    template: str = ""
    """A command line of the user's own."""


class Profiler(Protocol):
    """A program that runs another one and records what it does. Entry-point group `opmark.profilers`."""

    name: str
    summary: str

    def command(self, watched: Watched) -> Sequence[str]:
        """Return the command line that runs the program under the profiler; FileNotFoundError if it is not
        installed."""

    def file(self, stem: Path) -> Path:
        """Return the files for the profiler's own viewer."""

    def read(self, stem: Path, ranges: Sequence[str]) -> Mapping[str, Sequence[KernelMetrics]] | None:
        """Return the metrics by range; None if the profiler writes nothing readable. ValueError if its output is not
        valid."""
