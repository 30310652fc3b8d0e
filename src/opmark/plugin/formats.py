"""Interfaces for files of other systems: importers and exporters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from opmark.schema import Case, Imported, ImportProblem, Peaks, Record, Run
from opmark.schema.tuned import TunedEntry


class Importer(Protocol):
    """Reads one foreign file format. Entry-point group `opmark.importers`."""

    name: str
    """`param`, `bytemicroperf`."""
    summary: str

    def recognises(self, path: Path, data: Any) -> bool:
        """Return whether a file is of this format, by its content, or by its name if the format prescribes it.

        `data` is the content of JSON or YAML, or the rows of CSV as dictionaries; it may be anything.
        """

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        """Return one entry per point. Parts that cannot be understood become problems with their place; nothing is
        dropped silently.

        If the format draws random numbers, `seed` determines them, and the entry holds the results.
        """


@runtime_checkable
class FileImporter(Importer, Protocol):
    """Reads a format that is neither JSON nor YAML nor CSV, or too large to be parsed before it is recognised: its
    `read` gets None as `data`, and opens the file by itself."""

    def takes_file(self, path: Path, head: bytes) -> bool:
        """Return whether a file is of this format, by its first bytes or its name."""

    def release(self) -> None:
        """Let go of what was kept from file to file, as a process. It is called when all files of a source are read."""


HEAD = 1 << 16
"""Bytes of a file that `takes_file` gets."""


class Results(NamedTuple):
    """A run in the form that exporters take."""

    run: Run
    records: Sequence[Record]
    environments: Mapping[str, Mapping[str, Any]]
    """Facts by environment id."""
    chips: Mapping[str, Peaks]
    """Datasheets of chips by environment id, as far as known."""
    peaks: Mapping[str, Peaks] = MappingProxyType({})
    """Measured peaks of chips by environment id, as far as measured."""


class Exporter(Protocol):
    """Writes runs in one format. Entry-point group `opmark.exporters`."""

    name: str
    summary: str

    def files(self, results: Results) -> Mapping[str, str] | Mapping[str, str | bytes]:
        """Return the content of each file by its relative path: text, or bytes."""


class WorkloadExporter(Protocol):
    """Writes cases in one foreign format. Entry-point group `opmark.workload_exporters`."""

    name: str
    summary: str

    def files(self, name: str, cases: Sequence[Case]) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the text of each file by its relative path, and one line for each thing that the format cannot
        express."""


class TuningLog(NamedTuple):
    """What was read from a tuning log of another system."""

    entries: Sequence[TunedEntry]
    problems: Sequence[ImportProblem] = ()
    """Lines that could not be understood."""
    notes: Sequence[str] = ()
    """What was interpreted, or is not part of an entry."""


class TuningFormat(Protocol):
    """Reads and writes tuning logs of another system. Entry-point group `opmark.tuning_formats`."""

    name: str
    summary: str

    def recognises(self, path: Path, head: bytes) -> bool:
        """Return whether a file or a folder is of this format, by its name or its first bytes (none of a folder)."""

    def read(self, path: Path) -> TuningLog:
        """Return one entry per case and target: the fastest configuration that was right, and how many were tried.
        Lines that cannot be understood become problems with their number; nothing is dropped silently."""

    def files(self, entries: Sequence[TunedEntry]) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the text of each file by its relative path, and one line for each entry that the format cannot
        express."""
