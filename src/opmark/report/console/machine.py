"""Tables about a machine: measured peaks and noise, the diagnosis of the doctor, and datasheets."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.report.console.table import plain_table
from opmark.schema import Availability, Diagnosis, DiagnosisItem
from opmark.schema.machine import MEMORY, Interconnect, Level, NextStep, NoiseFloor, Peaks
from opmark.units import count_bytes


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
    """Return the share of the datasheet, or nothing if it has no such level or no bandwidth for it."""
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
    named = len({(floor.quantity, floor.cache) for floor in noise.floors}) > 1
    heads = ("median", "between processes", "within a process", "false verdicts", "naive test")
    table = plain_table("case", *(["quantity"] if named else []), *heads)
    for floor in noise.floors:
        table.add_row(
            Text(f"{floor.op} {floor.params}"),
            *([f"{floor.quantity} {floor.cache}"] if named else []),
            units.seconds(floor.seconds),
            units.percent(floor.between),
            units.percent(floor.within),
            f"{floor.verdicts} of {noise.labelings}",
            f"{floor.naive} of {noise.labelings}",
        )
    verdicts = (
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
    return Group(table, Text(), Text(verdicts), Text(news))


# The diagnosis of the doctor.


def diagnosis_text(diagnosis: Diagnosis) -> Group:
    parts: list[RenderableType] = [
        _host(diagnosis.host),
        Text(),
        _backends(diagnosis.backends),
        Text(),
        _findings(diagnosis.findings),
    ]
    if diagnosis.next_steps:
        parts += [Text(), *_next_steps(diagnosis.next_steps)]
    return Group(*parts)


def _next_steps(steps: list[NextStep]) -> list[Text]:
    """Return the commands in lines of their own, which can be copied, each below its reason."""
    lines = [line for step in steps for line in (f"  # {step.why}", f"  {step.command}")]
    return [Text("What to do next on this machine:", "bold"), *(Text(line, overflow="fold") for line in lines)]


def _host(facts: dict[str, Any]) -> Text:
    return Text(
        f"{facts['cpu']}, {facts['cores']} cores, {count_bytes(facts['memory'])}; {facts['system']}, "
        f"Python {facts['python']}"
    )


def _backends(backends: list[Availability]) -> Table:
    table = plain_table("backend", "runs here")
    for backend in backends:
        keys = ("numpy", "torch", "cuda", "gpu", "chip")
        versions = [f"{key} {backend.facts[key]}" for key in keys if key in backend.facts]
        state = Text("yes" + (f", {', '.join(versions)}" if versions else ""), style="green")
        table.add_row(Text(backend.name), Text(f"no: {backend.reason}", style="yellow") if backend.reason else state)
    return table


def _findings(findings: list[DiagnosisItem]) -> Table:
    table = plain_table("", "check", "found")
    for finding in findings:
        mark = Text("ok", style="green") if finding.ok else Text("!", style="bold yellow")
        text = finding.found if finding.ok or not finding.hint else f"{finding.found}\nhint: {finding.hint}"
        table.add_row(mark, Text(finding.name), Text(text))
    return table


# The datasheet of a chip, in a row of a list or in full.


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
    parts += [Text(), _datasheet_flops(peaks), Text(), _datasheet_levels(peaks)]
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
    links = units.count_noun(link.links, "link") if link.links else ""
    facts = ", ".join(filter(None, (out, links)))
    return f"{link.name} ({facts})" if facts else link.name


def _datasheet_flops(peaks: Peaks) -> Table:
    table = plain_table("matrix product", "at most, dense")
    for dtype, rate in peaks.flops.items():
        table.add_row(dtype, units.rate(rate, "FLOP/s"))
    return table


def _datasheet_levels(peaks: Peaks) -> Table:
    table = plain_table("level", "holds", "bandwidth")
    for level in peaks.levels:
        cache = units.count_bytes(level.nbytes) if level.nbytes else ""
        holds = _rate(peaks.memory, "B") if level.name == MEMORY else cache
        table.add_row(level.name, holds, _rate(level.bandwidth, "B/s"))
    return table


def _rate(value: float | None, unit: str) -> str:
    return units.rate(value, unit) if value else ""
