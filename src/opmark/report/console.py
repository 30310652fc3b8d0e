"""Records as a table on a terminal: wide where there is room, two lines a record where there is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.metrics.latency import summarize
from opmark.metrics.throughput import rates
from opmark.registry import catalogue
from opmark.schema import Memory, Record
from opmark.schema.measurement import PREEMPTED
from opmark.units import counted

_STYLES = {"ok": "green", "wrong": "bold red", "error": "red", "timeout": "red", "oom": "red", "skipped": "yellow"}
_RIGHT = {"median", "interval", "noise", "GB/s", "GFLOP/s", "memory"}
_COLUMNS = (
    "operator", "parameters", "backend", "phase", "median", "interval", "noise", "GB/s", "GFLOP/s", "memory", "status",
)  # fmt: skip


def print_records(records: Sequence[Record], console: Console) -> None:
    rows = [_cells(record) for record in records]
    table = _wide(rows)
    width = _natural_width(table, console)
    if not console.is_terminal:
        console.width = max(console.width, width)  # a file has room for any line
    _print_lines(table if width <= console.width else _narrow(rows), console)
    _print_checks(records, console)
    _print_reasons(records, console)
    _print_cautions(records, console)


def _print_lines(table: Table, console: Console) -> None:
    """Without the blanks that fill up the last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _print_checks(records: Sequence[Record], console: Console) -> None:
    scaled = sum(r.verification is not None and r.verification.checked == "scaled" for r in records)
    if scaled:
        console.print(
            Text(f"{counted(scaled, 'case')} of {len(records)} verified at a smaller size: too large in full")
        )


def _natural_width(table: Table, console: Console) -> int:
    """How wide it would be where there was room enough."""
    return Measurement.get(console, console.options.update(width=1_000_000), table).maximum


def parameters(record: Record) -> str:
    """Short: sizes as `M=256`, shapes as `32x64`, element types bare, defaults left out."""
    operator = catalogue().get(record.task.case.op)
    known = operator.by_name if operator else {}
    parts = []
    for name, value in record.task.case.params.items():
        param = known.get(name)
        if param and param.kind == "dtype":
            parts.append(str(value) if name == "dtype" else f"{name}={value}")
        elif param is None or param.required or value != param.default:
            parts.append(f"{name}={_short(value)}" if name != "shape" else _short(value))
    return " ".join(parts)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(str(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cells(record: Record) -> dict[str, Text | str]:
    task = record.task
    cells: dict[str, Text | str] = dict.fromkeys(_COLUMNS, "")
    cells |= {
        "operator": Text(task.case.op),
        "parameters": Text(parameters(record)),
        "backend": Text(f"{task.backend} ×{task.settings.threads}"),
        "phase": task.case.phase,
        "memory": _memory(record.memory),
        "status": _status(record),
    }
    measurement = record.measurement()
    if measurement:
        summary = summarize(measurement)
        scale, unit = units.seconds_unit(summary.median)
        found = rates(record.cost, summary.median)
        cells |= {
            "median": f"{units.significant(summary.median / scale)} {unit}",
            "interval": "–".join(units.significant(end / scale) for end in (summary.low, summary.high)),
            "noise": units.percent(summary.noise),
            "GB/s": _giga(found.bytes_per_second),
            "GFLOP/s": _giga(found.flops_per_second),
        }
    return cells


def _giga(rate: float | None) -> str:
    return "" if rate is None else units.significant(rate / 1e9)


def _memory(memory: Memory | None) -> str:
    if memory is None:
        return ""
    if memory.peak < memory.resolution:
        return f"<{units.count_bytes(memory.resolution)}"
    return units.count_bytes(memory.peak)


def _status(record: Record) -> Text:
    codes = {caution.code for measurement in record.measurements for caution in measurement.cautions}
    mark = " !!" if PREEMPTED in codes else " !" if codes else ""
    return Text(record.status + mark, style=_STYLES[record.status] if mark != " !!" else "bold red")


def _wide(rows: Sequence[dict[str, Text | str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
    for cells in rows:
        table.add_row(*(cells[name] for name in _COLUMNS))
    return table


def _narrow(rows: Sequence[dict[str, Text | str]]) -> Table:
    """Who on the first line, how fast on the second."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    for cells in rows:
        table.add_row(_joined(cells, "operator", "parameters", "backend", "phase"))
        figures = _joined(cells, "status", "median", "interval", "noise", "GB/s", "GFLOP/s", "memory", named=True)
        table.add_row(Padding(figures, (0, 0, 0, 2)))
    return table


def _joined(cells: dict[str, Text | str], *names: str, named: bool = False) -> Text:
    parts = []
    for name in names:
        cell = cells[name]
        text = cell if isinstance(cell, Text) else Text(cell)
        if named and name not in ("status", "median") and text.plain:
            text = Text(f"{name} ") + text
        if text.plain:
            parts.append(text)
    return Text("  ").join(parts)


def _print_reasons(records: Sequence[Record], console: Console) -> None:
    """Why something has no number; the same reason is given once."""
    reasons: dict[str, list[Record]] = {}
    for record in records:
        if record.reason:
            reasons.setdefault(f"{record.status}: {record.reason}", []).append(record)
    if reasons:
        console.print()
    for reason, affected in reasons.items():
        console.print(Text(f"{_named(affected)}: {reason}"), soft_wrap=True)


def _print_cautions(records: Sequence[Record], console: Console) -> None:
    """One line a kind of doubt, with its first example and what to do."""
    found: dict[str, list[tuple[Record, str, str]]] = {}
    for record in records:
        for measurement in record.measurements:
            for caution in measurement.cautions:
                found.setdefault(caution.code, []).append((record, caution.message, caution.hint))
    if found:
        console.print()
    for code, cases in found.items():
        record, message, hint = cases[0]
        console.print(Text(f"! {code}: {_named([c[0] for c in cases])}: {message}"), soft_wrap=True)
        if hint:
            console.print(Text(f"  hint: {hint}"), soft_wrap=True)


def _named(records: Sequence[Record]) -> str:
    first = f"{records[0].task.case.op} {parameters(records[0])}".strip()
    return first if len(records) == 1 else f"{first} and {len(records) - 1} more"
