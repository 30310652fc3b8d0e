"""Check the figures of a foreign hardware file against the datasheet that ships for the same chip."""

from __future__ import annotations

from msgspec.structs import replace

from opmark.hardware.datasheets import names, shipped_datasheet
from opmark.schema.peaks import Peaks
from opmark.units import rate, significant

_SAME = 0.05
"""Figures within this relative distance are the same, only rounded differently."""


def reconciled(chip: Peaks) -> tuple[Peaks, list[str]]:
    """Return the chip with dense peaks and the names that drivers report, and a line for each change.

    Of two different figures the lower one is used: most files that state more give the peak with sparsity, twice the
    dense one.
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
        said.setdefault(f"{_describe_factor(told / known)}: {used}", []).append(dtype)
    aliases = [name for name in dict.fromkeys((*chip.aliases, *names(sheet))) if name != chip.chip]
    lines = [f"{chip.chip}: {', '.join(types)} {text}" for text, types in said.items()]
    return replace(chip, flops=flops, notes=notes, aliases=aliases), lines


def _describe_factor(times: float) -> str:
    """Describe a figure of the file as a multiple of the datasheet's."""
    twice = abs(times - 2) <= 2 * _SAME
    return "twice the datasheet's, as with sparsity" if twice else f"{significant(times, 2)} times the datasheet's"
