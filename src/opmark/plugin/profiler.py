"""Programs that look at what another one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from opmark.schema import KernelMetrics


class Watched(NamedTuple):
    """What a profiler is to watch, and where it is to write."""

    program: Sequence[str]
    """A command line; it opens a range around each task."""
    ranges: Sequence[str]
    """Their names: letters, digits and underscores, because filters give a meaning to almost everything else."""
    stem: Path
    """The path that its files begin with: it adds its own endings."""
    bin: str = ""
    """The profiler's own program, where the user names one."""
    args: Sequence[str] = ()
    """More arguments for it."""
    template: str = ""
    """A command line of the user's own."""


class Profiler(Protocol):
    """A program that runs another one and looks at what it does. Entry-point group `opmark.profilers`."""

    name: str
    summary: str

    def command(self, watched: Watched) -> Sequence[str]:
        """The command line that runs the program under the profiler. FileNotFoundError where that is not installed."""

    def file(self, stem: Path) -> Path:
        """Its own output, for its own viewer."""

    def read(self, stem: Path, ranges: Sequence[str]) -> Mapping[str, Sequence[KernelMetrics]] | None:
        """The metrics that it found, by range; None where it writes nothing that could be read. ValueError where its
        output is not what it should be."""
