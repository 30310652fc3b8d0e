"""Figures of a file from elsewhere against the datasheet of the same chip: what no chip can do is not believed."""

from __future__ import annotations

from msgspec.structs import replace

from opmark.hardware.datasheets import names, shipped_datasheet
from opmark.schema.peaks import Peaks
from opmark.units import rate, significant

_SAME = 0.05
"""Figures that are that near are the same, rounded by others."""


def reconciled(chip: Peaks) -> tuple[Peaks, list[str]]:
    """The chip with dense peaks and the names that drivers tell, and what was changed.

    A figure far above the datasheet that ships is replaced by it: most are twice the dense one, with sparsity.
    """
    sheet = shipped_datasheet(chip.chip)
    if sheet is None:
        return chip, []
    flops, notes = dict(chip.flops), dict(chip.notes)
    said: dict[str, list[str]] = {}
    for dtype, told in chip.flops.items():
        known = sheet.flops.get(dtype)
        if known is None or abs(told - known) <= _SAME * known:
            continue
        flops[dtype] = min(told, known)
        used = "the datasheet's is used" if told > known else "the file's is used"
        both = f"{rate(told, 'FLOP/s')} in the file, {rate(known, 'FLOP/s')} in the datasheet of {sheet.chip}"
        key = f"flops.{dtype}"
        notes[key] = "; ".join(filter(None, (notes.get(key), f"{both}: {used}")))
        said.setdefault(f"{_times(told / known)}: {used}", []).append(dtype)
    aliases = [name for name in dict.fromkeys((*chip.aliases, *names(sheet))) if name != chip.chip]
    lines = [f"{chip.chip}: {', '.join(types)} {text}" for text, types in said.items()]
    return replace(chip, flops=flops, notes=notes, aliases=aliases), lines


def _times(times: float) -> str:
    """What a figure of the file is to that of the datasheet."""
    twice = abs(times - 2) <= 2 * _SAME
    return "twice the datasheet's, as with sparsity" if twice else f"{significant(times, 2)} times the datasheet's"
