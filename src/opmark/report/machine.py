"""What was found out about a machine, as tables: its peaks, its noise."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.report.tables import plain_table
from opmark.schema.noise import NoiseFloor
from opmark.schema.peaks import MEMORY, Level, Peaks


def peaks_text(peaks: Peaks, sheet: Peaks | None) -> Group:
    threads = f", {peaks.threads} threads" if peaks.threads else ""
    tables = (_levels(peaks, sheet), _flops(peaks, sheet))
    parts: list[RenderableType] = [Text(f"{peaks.chip}{threads}"), Text(), tables[0], Text(), tables[1]]
    if peaks.launch:
        listed = ", ".join(f"{name} {units.seconds(value)}" for name, value in peaks.launch.items())
        parts += [Text(), Text(f"smallest call: {listed}")]
    return Group(*parts)


def _levels(peaks: Peaks, sheet: Peaks | None) -> Table:
    table = plain_table("level", "holds", "copy", "triad", *(["of the datasheet"] if sheet else []))
    for level in peaks.levels:
        by = [units.rate(level.by[op], "B/s") if op in level.by else "" for op in ("copy", "triad")]
        share = [_share(level, sheet)] if sheet else []
        holds = units.count_bytes(level.nbytes) if level.nbytes else ""
        table.add_row(level.name, holds, *by, *share)
    if all(level.name != MEMORY for level in peaks.levels):
        table.add_row(MEMORY, "", "not measured")
    return table


def _share(level: Level, sheet: Peaks) -> str:
    """Nothing where the datasheet has no such level, or not its speed."""
    same = next((known for known in sheet.levels if known.name == level.name), None)
    return units.percent(level.bandwidth / same.bandwidth) if same and same.bandwidth and level.bandwidth else ""


def _flops(peaks: Peaks, sheet: Peaks | None) -> Table:
    table = plain_table("matrix product", "at best", *(["of the datasheet"] if sheet else []))
    for dtype, rate in peaks.flops.items():
        known = sheet.flops.get(dtype) if sheet else None
        share = [units.percent(rate / known) if known else ""] if sheet else []
        table.add_row(dtype, units.rate(rate, "FLOP/s"), *share)
    return table


def noise_text(noise: NoiseFloor) -> Group:
    table = plain_table("case", "median", "between processes", "within a process", "false verdicts", "naive test")
    for floor in noise.floors:
        table.add_row(
            Text(f"{floor.op} {floor.params}"),
            units.seconds(floor.seconds),
            units.percent(floor.between),
            units.percent(floor.within),
            f"{floor.verdicts} of {noise.labelings}",
            f"{floor.naive} of {noise.labelings}",
        )
    said = (
        f"identical code in {noise.processes} processes of {noise.backend} ×{noise.threads}, named A and B in "
        f"{noise.labelings} ways: opmark's verdict calls a difference in {units.percent(noise.false_verdicts)} of "
        f"{noise.labelings * len(noise.floors)} (not independent of each other), "
        f"a rank test on pooled samples in {units.percent(noise.naive_verdicts)}"
    )
    worst = max(noise.floors, key=lambda floor: floor.between)
    news = (
        f"a difference below twice the spread between processes is no news: here up to "
        f"{units.percent(2 * worst.between)} ({worst.op} {worst.params})"
    )
    return Group(table, Text(), Text(said), Text(news))
