"""What a datasheet says of a chip: a row of a list, or all of it."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.report.tables import plain_table
from opmark.schema.peaks import MEMORY, Interconnect, Peaks


def hardware_row(peaks: Peaks) -> dict[str, Any]:
    half = peaks.flops.get("float16") or peaks.flops.get("bfloat16")
    return {
        "chip": peaks.chip,
        "vendor": peaks.vendor,
        "memory": _rate(peaks.memory_bandwidth, "B/s"),
        "float32": _rate(peaks.flops.get("float32"), "FLOP/s"),
        "16 bits": _rate(half, "FLOP/s"),
        "source": peaks.source,
    }


def hardware_text(peaks: Peaks) -> Group:
    head = Text(peaks.chip, "bold") + Text(f" ({peaks.vendor})" if peaks.vendor else "")
    parts: list[RenderableType] = [head, Text(f"source: {peaks.source}")]
    parts += [Text(line) for line in _facts(peaks)]
    parts += [Text(), _flops(peaks), Text(), _levels(peaks)]
    if peaks.notes:
        parts += [Text(), *(Text(f"{figure}: {note}") for figure, note in peaks.notes.items())]
    return Group(*parts)


def _facts(peaks: Peaks) -> list[str]:
    facts = {
        "also known as": ", ".join(peaks.aliases),
        "cores": str(peaks.cores or ""),
        "designed for": f"{peaks.power:g} W" if peaks.power else "",
        "reaches others by": ", ".join(_link(link) for link in peaks.interconnect),
    }
    return [f"{name}: {value}" for name, value in facts.items() if value]


def _link(link: Interconnect) -> str:
    out = f"{units.rate(link.bandwidth, 'B/s')} each way" if link.bandwidth else ""
    links = units.counted(link.links, "link") if link.links else ""
    told = ", ".join(filter(None, (out, links)))
    return f"{link.name} ({told})" if told else link.name


def _flops(peaks: Peaks) -> Table:
    table = plain_table("matrix product", "at most, dense")
    for dtype, rate in peaks.flops.items():
        table.add_row(dtype, units.rate(rate, "FLOP/s"))
    return table


def _levels(peaks: Peaks) -> Table:
    table = plain_table("level", "holds", "bandwidth")
    for level in peaks.levels:
        cache = units.count_bytes(level.nbytes) if level.nbytes else ""
        holds = _rate(peaks.memory, "B") if level.name == MEMORY else cache
        table.add_row(level.name, holds, _rate(level.bandwidth, "B/s"))
    return table


def _rate(value: float | None, unit: str) -> str:
    return units.rate(value, unit) if value else ""
