"""Records as a table on a terminal: wide where there is room, two lines a record where there is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.errors import UserError
from opmark.metrics.summary import Summary
from opmark.metrics.throughput import rates
from opmark.registry import backend_or_none
from opmark.registry import operator as find_operator
from opmark.report.gain import gains
from opmark.report.rows import Key, Row, others, rows, unit
from opmark.report.view import Known, of_peak
from opmark.schema import Memory, Param, Record, Task
from opmark.schema.measurement import PREEMPTED
from opmark.schema.profile import NO_PROFILE, PARTLY
from opmark.schema.shown import shown
from opmark.units import counted

_STYLES = {"ok": "green", "wrong": "bold red", "error": "red", "timeout": "red", "oom": "red", "skipped": "yellow"}
_LEFT = {"operator", "parameters", "backend", "phase", "quantity", "status"}
_WHO = ("operator", "parameters", "backend", "phase")
_RATES = ("GB/s", "GFLOP/s")

ABOVE_PEAK = 1.05

Cells = dict[str, Text | str]


def print_records(records: Sequence[Record], console: Console, peaks: Mapping[str, Known] | None = None) -> None:
    found = rows(records)
    shares = [_shares(row, (peaks or {}).get(row.record.environment, Known())) for row in found]
    factors: list[Cells] = [{} if gain is None else {"gain": f"{units.significant(gain)}x"} for gain in gains(found)]
    more = [share | factor for share, factor in zip(shares, factors, strict=True)]
    cells = [_cells(row) | part for row, part in zip(found, more, strict=True)]
    columns = _columns(found, list(dict.fromkeys(name for part in more for name in part)))
    table = _wide(columns, cells)
    width = _natural_width(table, console)
    if not console.is_terminal:
        console.width = max(console.width, width)  # a file has room for any line
    _print_lines(table if width <= console.width else _narrow(columns, cells), console)
    _print_checks(found, console)
    _print_reasons(found, console)
    _print_profiles(found, console)
    _print_cautions(found, console)
    _print_above_peak(found, peaks or {}, console)


def _print_above_peak(found: Sequence[Row], peaks: Mapping[str, Known], console: Console) -> None:
    """No chip does more than it can: then the peak is not one."""
    above = []
    for row in found:
        part = of_peak(row, peaks.get(row.record.environment, Known()).measured)
        if part and part.share > ABOVE_PEAK:
            above.append((row, part))
    if above:
        (_, part), rows_ = above[0], [row for row, _ in above]
        said = f"{units.percent(part.share)} of the measured peak ({part.bound}); at most 100 % is possible"
        console.print(Text(f"! above-peak: {_named(rows_)}: {said}"), soft_wrap=True)
        console.print(Text("  hint: `opmark calibrate` again, on a quiet machine"), soft_wrap=True)


def _shares(row: Row, known: Known) -> Cells:
    """Of what the machine was measured to do, and of what its datasheet says, where these are known."""
    found = {"of peak": of_peak(row, known.measured), "of datasheet": of_peak(row, known.datasheet)}
    return {name: units.percent(part.share) for name, part in found.items() if part}


def _columns(found: Sequence[Row], shares: Sequence[str]) -> list[str]:
    """What the headline is goes without saying where it is the latency of all; other quantities get a column each."""
    plain = all(row.measured()[:1] in ([], [("latency", "warm")]) for row in found)
    quantity = [] if plain else ["quantity"]
    more = [_heading(key) for key in others(found)]
    return [*_WHO, *quantity, "median", "interval", "noise", *more, *_RATES, *shares, "memory", "status"]


def _heading(key: Key) -> str:
    return " ".join(key)


def _print_lines(table: Table, console: Console) -> None:
    """Without the blanks that fill up the last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _print_checks(found: Sequence[Row], console: Console) -> None:
    checks = [row.record.verification for row in found]
    scaled = sum(check is not None and check.checked == "scaled" for check in checks)
    if scaled:
        console.print(Text(f"{counted(scaled, 'case')} of {len(found)} verified at a smaller size: too large in full"))
    for why, count in Counter(check.note for check in checks if check is not None and check.checked == "none").items():
        console.print(Text(f"{counted(count, 'case')} of {len(found)} not verified: {why}"))


def _natural_width(table: Table, console: Console) -> int:
    """How wide it would be where there was room enough."""
    return Measurement.get(console, console.options.update(width=1_000_000), table).maximum


def parameters(record: Record) -> str:
    return shown(record.task.case, _params(record.task.case.op), record.called)


def _params(name: str) -> dict[str, Param]:
    """Those of an operator, if it is installed; a stored run may tell of one that is not."""
    try:
        return find_operator(name).by_name
    except UserError:
        return {}


def _cells(row: Row) -> Cells:
    record, task = row.record, row.record.task
    cells: Cells = {
        "operator": Text(task.case.op),
        "parameters": Text(parameters(record)),
        "backend": Text(where(row)),
        "phase": " d".join((task.case.phase, *task.case.wrt)),
        "memory": _memory(record.memory),
        "status": _status(row),
    }
    summary = row.summary()
    if summary:
        headline, *more = row.measured()
        cells |= {"quantity": _heading(headline), **_figures(summary, headline)}
        cells |= {_heading(key): _value(row.summary(key), key) for key in more}
        found = rates(record.cost, summary.median) if unit(headline) == "s" else rates(None, 0.0)
        moved = "view" if record.view else _giga(found.bytes_per_second)
        cells |= {"GB/s": moved, "GFLOP/s": _giga(found.flops_per_second)}
    return cells


def where(row: Row) -> str:
    """Backend, implementation if there are several, threads, processes if there are several."""
    task = row.record.task
    processes = f" in {len(row.records)} processes" if len(row.records) > 1 else ""
    return f"{task.backend}{_way(task)} ×{task.settings.threads}{processes}"


def _way(task: Task) -> str:
    """The implementation, where the framework has several."""
    own = backend_or_none(task.backend)
    plain = not task.implementation or (own is not None and task.implementation in (*own.frameworks, own.name))
    return "" if plain else f"/{task.implementation}"


def _figures(summary: Summary, key: Key) -> Cells:
    scale, name = units.small_unit(summary.median, unit(key))
    value = f"{units.significant(summary.median / scale)} {name}"
    if summary.samples == 1:  # nothing is known of its spread
        return {"median": value, "interval": "", "noise": ""}
    return {
        "median": value,
        "interval": "–".join(units.significant(end / scale) for end in (summary.low, summary.high)),
        "noise": units.percent(summary.noise),
    }


def _value(summary: Summary | None, key: Key) -> str:
    return str(_figures(summary, key)["median"]) if summary else ""


def _giga(rate: float | None) -> str:
    return "" if rate is None else units.significant(rate / 1e9)


def _memory(memory: Memory | None) -> str:
    if memory is None:
        return ""
    if memory.peak < memory.resolution:
        return f"<{units.count_bytes(memory.resolution)}"
    return units.count_bytes(memory.peak)


def _status(row: Row) -> Text:
    codes = {caution.code for _, caution in row.cautions()}
    mark = " !!" if PREEMPTED in codes else " !" if codes else ""
    status = row.record.status
    return Text(status + mark, style=_STYLES[status] if mark != " !!" else "bold red")


def _wide(columns: Sequence[str], rows_: Sequence[Cells]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    for cells in rows_:
        table.add_row(*(cells.get(name, "") for name in columns))
    return table


def _narrow(columns: Sequence[str], rows_: Sequence[Cells]) -> Table:
    """Who on the first line, how fast on the second."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    figures = ["status", *(name for name in columns if name not in (*_WHO, "status"))]
    for cells in rows_:
        table.add_row(_joined(cells, *_WHO))
        table.add_row(Padding(_joined(cells, *figures, named=True), (0, 0, 0, 2)))
    return table


def _joined(cells: Cells, *names: str, named: bool = False) -> Text:
    parts = []
    for name in names:
        cell = cells.get(name, "")
        text = cell if isinstance(cell, Text) else Text(cell)
        if named and name not in ("status", "quantity", "median") and text.plain:
            text = Text(f"{name} ") + text
        if text.plain:
            parts.append(text)
    return Text("  ").join(parts)


def _print_reasons(found: Sequence[Row], console: Console) -> None:
    """Why something has no number, or not every number that was asked for; the same reason is given once."""
    reasons: dict[str, list[Row]] = {}
    for row in found:
        if row.record.reason:
            reasons.setdefault(f"{row.record.status}: {row.record.reason}", []).append(row)
        for note in dict.fromkeys(note for record in row.records for note in record.notes):
            told = note if note.startswith((NO_PROFILE, PARTLY)) else f"not measured: {note}"
            reasons.setdefault(told, []).append(row)
    if reasons:
        console.print()
    for reason, affected in reasons.items():
        console.print(Text(f"{_named(affected)}: {reason}"), soft_wrap=True)


def _print_profiles(found: Sequence[Row], console: Console) -> None:
    """Where the files are; what they say is in the JSON."""
    taken = [profile for row in found for record in row.records for profile in record.profiles]
    for name in dict.fromkeys(profile.profiler for profile in taken):
        files = list(dict.fromkeys(profile.file for profile in taken if profile.profiler == name))
        more = f" and {counted(len(files) - 1, 'more file')}" if len(files) > 1 else ""
        cases = sum(any(p.profiler == name for record in row.records for p in record.profiles) for row in found)
        console.print(Text(f"{name} profile of {counted(cases, 'case')}: {files[0]}{more}"), soft_wrap=True)


def _print_cautions(found: Sequence[Row], console: Console) -> None:
    """One line a kind of doubt, with its first example and what to do."""
    doubts: dict[str, list[tuple[Row, str, str]]] = {}
    for row in found:
        for measurement, caution in row.cautions():
            cases = doubts.setdefault(caution.code, [])
            if not cases or cases[-1][0] is not row:
                what = "" if len(row.measured()) == 1 else f"{measurement.quantity} {measurement.cache}: "
                cases.append((row, what + caution.message, caution.hint))
    if doubts:
        console.print()
    for code, cases in doubts.items():
        _, message, hint = cases[0]
        console.print(Text(f"! {code}: {_named([case[0] for case in cases])}: {message}"), soft_wrap=True)
        if hint:
            console.print(Text(f"  hint: {hint}"), soft_wrap=True)


def _named(found: Sequence[Row]) -> str:
    record = found[0].record
    first = f"{record.task.case.op} {parameters(record)}".strip()
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
