"""Imported: what an importer makes of a foreign file. What it could not make anything of is named, never dropped."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from opmark.schema.peaks import Peaks
from opmark.schema.workload import Entry


class Problem(Struct, frozen=True):
    """One part of a file that is not imported, and why."""

    where: str
    """The file and the place in it: `gemm.json: $.cases[0].dtype[2]`."""
    message: str
    """Expected and got."""
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"\n  hint: {self.hint}" if self.hint else "")


class Imported(Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    """One point each, in the order of the file; `source` is `FILE#NAME`, the name that the foreign system gives it."""
    chips: tuple[Peaks, ...] = ()
    """Of a hardware file."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """What was understood in another way than it was written, or is not part of a workload."""
    asked: dict[str, Any] = {}
    """How the file wants to be measured, in the words of `opmark.run`: `samples`, `warmup`."""
