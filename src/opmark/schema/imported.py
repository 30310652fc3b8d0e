"""The result of an importer. Parts of a foreign file that cannot be imported are reported, never dropped."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from opmark.schema.peaks import Peaks
from opmark.schema.workload import Entry


class Problem(Struct, frozen=True):
    """A part of a file that could not be imported, and why."""

    where: str
    """The file and the place in it: `gemm.json: $.cases[0].dtype[2]`."""
    message: str
    """What was expected and what was found."""
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"\n  hint: {self.hint}" if self.hint else "")


class Imported(Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    """One case per entry, in the order of the file; `source` is `FILE#NAME` with the foreign system's name of the
    case."""
    chips: tuple[Peaks, ...] = ()
    """Chips, if the file is a hardware file."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """Settings that were interpreted differently or are not part of a workload."""
    asked: dict[str, Any] = {}
    """Options of `opmark.run` that the file asks for: `samples`, `warmup`."""
