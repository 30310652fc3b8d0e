"""Records as a table on a terminal: wide where there is room, two lines a record where there is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.metrics.summary import Summary
from opmark.metrics.throughput import rates
from opmark.report.aligned import aligned
from opmark.report.communication import COLUMNS, communication_cells, traffic
from opmark.report.gain import gains
from opmark.report.names import parameters, where
from opmark.report.plain import printable
from opmark.report.remarks import print_remarks
from opmark.report.rows import Key, Row, others, rows, unit
from opmark.report.samples_column import SAMPLES, SAMPLES_WIDTH, with_samples
from opmark.report.tables import DOUBTFUL, MANY, STYLES, natural_width, painted, print_lines
from opmark.report.view import Known, of_peak
from opmark.schema import Memory, Record
from opmark.schema.measurement import PREEMPTED

_LEFT = {"operator", "parameters", "backend", "phase", "quantity", SAMPLES, "status"}
_WHO = ("operator", "parameters", "backend", "phase")
_RATES = ("GB/s", "GFLOP/s")

Cells = dict[str, Text | str]


def print_records(
    records: Sequence[Record], console: Console, peaks: Mapping[str, Known] | None = None, *, wide: bool = False
) -> None:
    """Samples are drawn where somebody looks at a screen that has room for them; `wide`: in any case, and how many."""
    found = rows(records)
    columns, cells = cells_of(found, peaks)
    if wide:
        columns = with_samples(columns, cells, found, console.encoding, count=True)
    if not console.is_terminal or len(cells) > MANY:
        _print_by_hand(found, columns, cells, console)
    else:
        _print_table(found, columns, cells, console)
    print_remarks(found, console, peaks or {})


def _print_table(found: Sequence[Row], columns: Sequence[str], cells: Sequence[Cells], console: Console) -> None:
    table = _wide(columns, cells)
    needed = natural_width(table, console)
    if needed > console.width:  # the second line of each has room
        table = _narrow(_drawn(columns, cells, found, console), cells)
    elif needed + SAMPLES_WIDTH <= console.width:
        table = _wide(_drawn(columns, cells, found, console), cells)
    print_lines(table, console)


def _drawn(columns: Sequence[str], cells: Sequence[Cells], found: Sequence[Row], console: Console) -> Sequence[str]:
    """With the samples, unless they are there already."""
    return columns if SAMPLES in columns else with_samples(columns, cells, found, console.encoding)


def _print_by_hand(found: Sequence[Row], columns: Sequence[str], cells: Sequence[Cells], console: Console) -> None:
    """The same look, and a hundred times as fast: Rich would measure every cell. A file has room for any line."""
    text = _aligned(columns, cells)
    needed = max(map(cell_len, text.splitlines())) if console.is_terminal else 0
    if needed > console.width:
        figures = _figures_of(_drawn(columns, cells, found, console))
        pairs = [(_joined(row, *_WHO).plain, _joined(row, *figures, named=True).plain) for row in cells]
        text = "".join(f"{printable(who)}\n  {printable(what)}\n" for who, what in pairs)
    elif console.is_terminal:
        if needed + SAMPLES_WIDTH <= console.width:
            text = _aligned(_drawn(columns, cells, found, console), cells)
        text = _coloured(text, cells, console)
    console.file.write(text)


def _aligned(columns: Sequence[str], cells: Sequence[Cells]) -> str:
    lines = [[printable(str(row.get(name, ""))) for name in columns] for row in cells]
    return aligned([columns, *lines], [name not in _LEFT for name in columns])


def _coloured(text: str, cells: Sequence[Cells], console: Console) -> str:
    """A bold head, and the status at the end of a line: one that many rows share is painted once."""
    head, *lines = text.splitlines()
    paints: dict[tuple[str, str], str] = {}
    painted_lines = [painted(Text(head, style="bold"), console)]
    for line, row in zip(lines, cells, strict=True):
        status = _text(row["status"])
        key = (status.plain, str(status.style))
        if key not in paints:
            paints[key] = painted(status, console)
        painted_lines.append(line.removesuffix(status.plain) + paints[key])
    return "".join(f"{line}\n" for line in painted_lines)


def cells_of(found: Sequence[Row], peaks: Mapping[str, Known] | None = None) -> tuple[list[str], list[Cells]]:
    """(the columns that these rows need, what stands in them)."""
    shares = [_shares(row, _known(row, peaks)) for row in found]
    factors: list[Cells] = [{} if gain is None else {"gain": f"{units.significant(gain)}x"} for gain in gains(found)]
    more = [share | factor for share, factor in zip(shares, factors, strict=True)]
    moved: list[Cells] = [{**communication_cells(row, _known(row, peaks))} for row in found]
    cells = [_cells(row) | part | link for row, part, link in zip(found, more, moved, strict=True)]
    return _columns(found, _rates(cells), list(dict.fromkeys(name for part in more for name in part))), cells


def _known(row: Row, peaks: Mapping[str, Known] | None) -> Known:
    return (peaks or {}).get(row.record.environment, Known())


def _shares(row: Row, known: Known) -> Cells:
    """Of what the machine was measured to do, and of what its datasheet says, where these are known."""
    found = {"of peak": of_peak(row, known.measured), "of datasheet": of_peak(row, known.datasheet)}
    return {name: units.percent(part.share) for name, part in found.items() if part}


def _rates(cells: Sequence[Cells]) -> list[str]:
    """Those of links where something crosses one; those of chips where anything has them, or nothing crosses."""
    of_links = [name for name in COLUMNS if any(name in row for row in cells)]
    of_chips = not of_links or any(row.get(name) for row in cells for name in _RATES)
    return [*(_RATES if of_chips else ()), *of_links]


def _columns(found: Sequence[Row], rates_: Sequence[str], shares: Sequence[str]) -> list[str]:
    """What the headline is goes without saying where it is the latency of all; other quantities get a column each."""
    plain = all(row.measured()[:1] in ([], [("latency", "warm")]) for row in found)
    quantity = [] if plain else ["quantity"]
    more = [_heading(key) for key in others(found)]
    compiled = ["compile"] if any(row.compile_time() is not None for row in found) else []
    return [*_WHO, *quantity, "median", "interval", "noise", *compiled, *more, *rates_, *shares, "memory", "status"]


def _heading(key: Key) -> str:
    return " ".join(key)


def _cells(row: Row) -> Cells:
    record, task = row.record, row.record.task
    cells: Cells = {
        "operator": task.case.op,
        "parameters": parameters(record),
        "backend": where(row),
        "phase": " d".join((task.case.phase, *task.case.wrt)),
        "memory": _memory(record.memory),
        "status": _status(row),
    }
    compiling = row.compile_time()
    if compiling is not None:
        cells["compile"] = units.seconds(compiling)
    summary = row.summary()
    if summary:
        headline, *more = row.measured()
        cells |= {"quantity": _heading(headline), **_figures(summary, headline)}
        cells |= {_heading(key): _value(row.summary(key), key) for key in more}
        found = rates(None if traffic(row) else record.cost, row.seconds() or 0.0)
        moved = "view" if record.view else _giga(found.bytes_per_second)
        cells |= {"GB/s": moved, "GFLOP/s": _giga(found.flops_per_second)}
    return cells


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
    style = {" !!": "bold red", " !": DOUBTFUL if status == "ok" else STYLES[status]}.get(mark, STYLES[status])
    return Text(status + mark, style=style)


def _wide(columns: Sequence[str], rows_: Sequence[Cells]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    for cells in rows_:
        table.add_row(*(_text(cells.get(name, "")) for name in columns))
    return table


def _narrow(columns: Sequence[str], rows_: Sequence[Cells]) -> Table:
    """Who on the first line, how fast on the second."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    figures = _figures_of(columns)
    for cells in rows_:
        table.add_row(_joined(cells, *_WHO))
        table.add_row(Padding(_joined(cells, *figures, named=True), (0, 0, 0, 2)))
    return table


def _figures_of(columns: Sequence[str]) -> list[str]:
    return ["status", *(name for name in columns if name not in (*_WHO, "status"))]


def _text(cell: Text | str) -> Text:
    """As it stands: what looks like Rich's markup is a name."""
    return cell if isinstance(cell, Text) else Text(cell)


def _joined(cells: Cells, *names: str, named: bool = False) -> Text:
    parts = []
    for name in names:
        text = _text(cells.get(name, ""))
        if named and name not in ("status", "quantity", "median") and text.plain:
            text = Text(f"{name} ") + text
        if text.plain:
            parts.append(text)
    return Text("  ").join(parts)
