"""Files of other systems: read, and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from opmark.schema import Case, Imported, Peaks, Record, Run


class Importer(Protocol):
    """One foreign format of files. Entry-point group `opmark.importers`."""

    name: str
    """`param`, `bytemicroperf`."""
    summary: str

    def recognises(self, path: Path, data: Any) -> bool:
        """Whether a file is of this format: by its content, and by its name where the format itself goes by that.

        `data` is what JSON or YAML held, or of CSV the rows as dictionaries; it may be anything at all.
        """

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        """One entry a point. What cannot be understood is a problem with its place; nothing is dropped silently.

        Where a format draws numbers, `seed` decides them, and the entry holds what was drawn.
        """


class Results(NamedTuple):
    """A run as an exporter gets it."""

    run: Run
    records: Sequence[Record]
    environments: Mapping[str, Mapping[str, Any]]
    """Facts by environment id."""
    chips: Mapping[str, Peaks]
    """The datasheet of the chip of an environment, by its id, where there is one."""
    peaks: Mapping[str, Peaks] = MappingProxyType({})
    """Measured peaks of the chip of an environment, by its id, where somebody has measured them."""


class Exporter(Protocol):
    """One format that a run is written in. Entry-point group `opmark.exporters`."""

    name: str
    summary: str

    def files(self, results: Results) -> Mapping[str, str] | Mapping[str, str | bytes]:
        """Texts, or bytes, by relative path: one where the format is a file, several where it is a tree."""


class WorkloadExporter(Protocol):
    """One foreign format that cases are written in. Entry-point group `opmark.workload_exporters`."""

    name: str
    summary: str

    def files(self, name: str, cases: Sequence[Case]) -> tuple[Mapping[str, str], Sequence[str]]:
        """(texts by relative path, what the format cannot say: a line each)."""
