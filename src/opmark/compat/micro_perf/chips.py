"""The chip of `--vendor_path`: a file of vendor_zoo, or of opmark's own hardware format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import InvalidFile
from opmark.exporters.bytemicroperf_figures import other_chip
from opmark.hardware.datasheets import datasheet, names
from opmark.hardware.sheet import is_sheet, sheet_of
from opmark.runner.intake import take_in
from opmark.schema.peaks import Peaks, chip
from opmark.workloads.load import read

_FEW = 8
"""Names of chips that a message lists."""

ChipLookup = Callable[[Mapping[str, Any]], "Peaks | None"]
"""Finds the datasheet for the facts of an environment."""


def make_chip_lookup(path: Path | None, say: Callable[[str], None]) -> ChipLookup:
    """Return a lookup in a file, or without one in the datasheets that ship."""
    if path is None:
        return lambda facts: datasheet(chip(dict(facts)), facts.get("threads"))
    known = _read_chips(path)
    printed: set[str] = set()

    def once(line: str) -> None:
        if line not in printed:
            say(line)
        printed.add(line)

    return lambda facts: _find_chip(known, chip(dict(facts)), path, once)


def _read_chips(path: Path) -> Sequence[Peaks]:
    data = read(path)
    found: Sequence[Peaks] = sheet_of(data, str(path)).chips if is_sheet(data) else take_in(path).chips
    if not found:
        raise InvalidFile(
            f"{path}: the file describes no chip",
            "expected a file of vendor_zoo, or `chips` as in opmark's hardware files",
        )
    return found


def _find_chip(known: Sequence[Peaks], name: str, path: Path, say: Callable[[str], None]) -> Peaks | None:
    """Find a chip by name; the only chip of a file is used whatever its name, with a remark."""
    found = next((peaks for peaks in known if name in names(peaks)), None)
    if found is not None:
        return found
    if len(known) == 1:
        say(f"--vendor_path {path}: {other_chip(known[0], name)}")
        return known[0]
    listed = ", ".join(peaks.chip for peaks in known[:_FEW]) + (", ..." if len(known) > _FEW else "")
    say(f"--vendor_path {path}: none of its {len(known)} chips is `{name}`: it has {listed}; utilisation stays empty")
    return None
