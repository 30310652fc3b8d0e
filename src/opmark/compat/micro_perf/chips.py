"""The chip of `--vendor_path`: a file of vendor_zoo, or of opmark's own hardware format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import InvalidFile
from opmark.hardware.datasheets import datasheet, names
from opmark.hardware.sheet import is_sheet, sheet_of
from opmark.runner.intake import take_in
from opmark.schema.peaks import Peaks, chip
from opmark.workloads.load import read

Look = Callable[[Mapping[str, Any]], "Peaks | None"]
"""The datasheet that belongs to an environment."""


def chip_of(path: Path | None, say: Callable[[str], None]) -> Look:
    """Without a file, the datasheets that ship."""
    if path is None:
        return lambda facts: datasheet(chip(dict(facts)), facts.get("threads"))
    known = _read(path)
    if len(known) == 1:
        return lambda facts: known[0]
    return lambda facts: _fitting(known, chip(dict(facts)), path, say)


def _read(path: Path) -> Sequence[Peaks]:
    data = read(path)
    found: Sequence[Peaks] = sheet_of(data, str(path)).chips if is_sheet(data) else take_in(path).chips
    if not found:
        raise InvalidFile(
            f"{path}: describes no chip", "expected a file of vendor_zoo, or `chips` as in opmark's hardware files"
        )
    return found


def _fitting(known: Sequence[Peaks], name: str, path: Path, say: Callable[[str], None]) -> Peaks | None:
    found = next((peaks for peaks in known if name in names(peaks)), None)
    if found is None:
        say(f"--vendor_path {path}: none of its {len(known)} chips is `{name}`; Bandwidth Utilization stays empty")
    return found
