"""Backends side by side on a terminal: one line a case where there is room, blocks of columns where there is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.analysis.rows import Key, MachineFacts, Row, unit_of
from opmark.metrics.bus import bandwidths
from opmark.report.beside import Column, Line, Names, called, columns, heads, lines
from opmark.report.remarks import print_communication, print_doubts, reasons_of
from opmark.report.tables import DOUBTFUL, STYLES, gigabytes, print_lines
from opmark.schema import Record
from opmark.schema.measurement import PREEMPTED

FASTEST = "*"
SCALED = "~"
UNCHECKED = "?"
# Of the first column where space is short, and of a reason.
_NARROW = 30
_LONGEST = 200
_GAP = 2
_BUS = " GB/s"


class Cell(NamedTuple):
    number: str
    marks: str
    compiling: str
    """Seconds in brackets, where something was compiled; the bus bandwidth, where something crosses a link."""
    style: str = ""


def print_beside(
    records: Sequence[Record], console: Console, machines: Mapping[str, MachineFacts] | None = None
) -> None:
    """Print a line for each case, with a column for each way to compute it. `machines`: by the id of an environment."""
    found = lines(records, machines or {})
    listed = columns(found)
    names = heads(listed)
    cells = [{column: _cell(line, column) for column in line.cells} for line in found]
    who = _who(found)
    for block, narrow in _blocks(listed, names, cells, who, console):
        print_lines(_table(block, names, cells, who, narrow=narrow), console)
        console.print()
    _print_legend(found, names, cells, console)
    _print_reasons(found, names, console)
    shown = [row for line in found for row in line.cells.values()]
    heads_of = {id(row): names.of[column] for line in found for column, row in line.cells.items()}
    print_communication(shown, console)
    print_doubts(shown, console, lambda rows_: _named(rows_, heads_of))


def _who(found: Sequence[Line]) -> list[tuple[str, str]]:
    phases = any(line.row.phase != "forward" for line in found)
    quantities = len({line.key for line in found if line.key}) > 1
    return [called(line, phase=phases, quantity=quantities) for line in found]


def _cell(line: Line, column: Column) -> Cell:
    row, key = line.cells[column], line.shown(column)
    summary = row.summary(key) if key else None
    status = row.status
    compiling = _behind(row, key)
    if summary is None or key is None or status != "ok":
        return Cell(status, "", compiling if status == "ok" else "", STYLES[status])
    scale, name = units.small_unit(summary.median, unit_of(key[0]))
    best = column == line.best
    quantity = "" if line.key else f" {key[0]}"
    number = f"{units.significant(summary.median / scale)} {name}{quantity}"
    doubt = _doubt(row)
    style = "bold red" if "!!" in doubt else "bold green" if best else DOUBTFUL if "!" in doubt else ""
    return Cell(number, (FASTEST if best else "") + doubt, compiling, style)


def _behind(row: Row, key: Key | None) -> str:
    """What stands behind the number that is shown, which need not be the headline."""
    seconds, summary = row.compile_time, row.summary(key) if key and unit_of(key[0]) == "s" else None
    bus = bandwidths(row.record.cost, summary.median).bus if summary else None
    parts = ["" if bus is None else f"{gigabytes(bus)}{_BUS}", "" if seconds is None else f"({units.seconds(seconds)})"]
    return " ".join(filter(None, parts))


def _doubt(row: Row) -> str:
    sign = {"scaled": SCALED, "none": UNCHECKED, "": UNCHECKED}.get(row.verified, "")
    return sign + ("!!" if PREEMPTED in row.cautions else "!" if row.cautions else "")


class _Widths(NamedTuple):
    """Widths of the parts of a column's cells: what stands beneath each other is aligned."""

    number: int
    marks: int
    compiling: int
    head: int

    def total(self, *, narrow: bool) -> int:
        first = self.number + self.marks
        between = 1 if self.compiling else 0
        return max(self.head, first, self.compiling) if narrow else max(self.head, first + between + self.compiling)


def _widths(column: Column, names: Names, cells: Sequence[Mapping[Column, Cell]]) -> _Widths:
    own = [line[column] for line in cells if column in line]
    marks = max(len(cell.marks) for cell in own)
    return _Widths(
        max(len(cell.number) for cell in own), marks + 1 if marks else 0, max(len(cell.compiling) for cell in own),
        len(names.of[column]),
    )  # fmt: skip


Block = Sequence[Column]


def _blocks(
    listed: Sequence[Column],
    names: Names,
    cells: Sequence[Mapping[Column, Cell]],
    who: Sequence[tuple[str, str]],
    console: Console,
) -> Iterator[tuple[Block, bool]]:
    """(columns, whether a cell takes two lines): as many as there is room for."""
    widths = {column: _widths(column, names, cells) for column in listed}
    room = console.width if console.is_terminal else 1_000_000  # a file has room for any line
    first = 1 + sum(max((len(part) for part in parts), default=0) for parts in zip(*who, strict=True))
    if first + sum(_GAP + width.total(narrow=False) for width in widths.values()) <= room:
        console.width = max(console.width, room) if not console.is_terminal else console.width
        yield listed, False
        return
    block: list[Column] = []
    left = room - _first_width(who)
    for column in listed:
        needed = _GAP + widths[column].total(narrow=True)
        if block and needed > left:
            yield block, True
            block, left = [], room - _first_width(who)
        block.append(column)
        left -= needed
    yield block, True


def _first_width(who: Sequence[tuple[str, str]]) -> int:
    return min(_NARROW, max(len(part) for parts in who for part in parts))


def _table(
    block: Block,
    names: Names,
    cells: Sequence[Mapping[Column, Cell]],
    who: Sequence[tuple[str, str]],
    *,
    narrow: bool,
) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("case", overflow="fold", max_width=_first_width(who) if narrow else None, no_wrap=not narrow)
    widths = {column: _widths(column, names, cells) for column in block}
    longest = max(len(operator) for operator, _ in who)
    for column in block:
        table.add_column(names.of[column].rjust(widths[column].total(narrow=narrow)), no_wrap=narrow is False)
    for (operator, rest), line in zip(who, cells, strict=True):
        if any(column in line for column in block):
            drawn = [_drawn(line.get(column), widths[column], narrow=narrow) for column in block]
            table.add_row(Text(f"{operator}\n{rest}" if narrow else f"{operator.ljust(longest)} {rest}"), *drawn)
    return table


def _drawn(cell: Cell | None, widths: _Widths, *, narrow: bool) -> Text:
    """Numbers end where numbers end; marks stand behind them."""
    if cell is None:
        return Text()
    total = widths.total(narrow=narrow)
    number = cell.number.rjust(widths.number) + (f" {cell.marks}" if cell.marks else "").ljust(widths.marks)
    if narrow:
        second = f"\n{cell.compiling.rjust(total)}" if cell.compiling else ""
        return Text(number.rjust(total), style=cell.style) + Text(second)
    behind = (" " + cell.compiling.rjust(widths.compiling)) if widths.compiling else ""
    text = Text(number.rjust(total - len(behind)), style=cell.style)
    return text + Text(behind)


def _print_legend(
    found: Sequence[Line], names: Names, cells: Sequence[Mapping[Column, Cell]], console: Console
) -> None:
    for said in (_what(found, names), *_signs(found, cells)):
        console.print(Text(said), soft_wrap=True)


def _what(found: Sequence[Line], names: Names) -> str:
    keys = {line.key for line in found if line.key}
    quantity = f"median {' '.join(keys.pop())}" if len(keys) == 1 else "medians"
    counts = {row.processes for line in found for row in line.cells.values() if row.timings}
    parts = [quantity]
    if counts and max(counts) > 1:
        least, most = min(counts), max(counts)
        parts.append(f"over {most if least == most else f'{least} to {most}'} processes")
    if names.threads is not None:
        parts.append(units.counted(names.threads, "thread"))
    if names.device:
        parts.append(f"backends NAME-{names.device}")
    parts += [f"@{name} is {path}" for name, path in names.interpreters.items()]
    return ", ".join(parts)


def _signs(found: Sequence[Line], cells: Sequence[Mapping[Column, Cell]]) -> Iterator[str]:
    """What a sign means, where it is used."""
    drawn = [cell for line in cells for cell in line.values()]
    if any(_BUS in cell.compiling for cell in drawn):
        yield "GB/s: bus bandwidth, as of nccl-tests"
    if any("(" in cell.compiling for cell in drawn):
        yield "(...) compiling it, with empty caches: not part of the median"
    if any(line.best for line in found):
        yield f"{FASTEST} ahead of every other verified one by more than chance and noise"
    elif any(line.raced > 1 for line in found):
        yield f"no {FASTEST}: none is ahead of every other by more than chance and noise; more --processes tell more"
    if any(SCALED in cell.marks for cell in drawn):
        yield f"{SCALED} verified at a smaller size: too large in full"
    if any(UNCHECKED in cell.marks for cell in drawn):
        checks = [row.record.verification for line in found for row in line.cells.values() if row.status == "ok"]
        notes = dict.fromkeys(check.note for check in checks if check and check.checked == "none" and check.note)
        yield f"{UNCHECKED} not verified, and not in the race" + (f": {'; '.join(notes)}" if notes else "")
    if any("!!" in cell.marks for cell in drawn):
        yield "!! the number is the scheduler's and not the operator's: not in the race"


def _print_reasons(found: Sequence[Line], names: Names, console: Console) -> None:
    """What has no number, and why: one line a reason, with the columns and the cases that it is about."""
    reasons: dict[str, tuple[dict[str, None], dict[int, Row]]] = {}
    for line in found:
        for column, row in line.cells.items():
            for told in reasons_of(row):
                reason = told.replace(f"{row.status}: `{row.op}` ", f"{row.status}: ", 1)  # said once for several
                heads_, cases = reasons.setdefault(reason, ({}, {}))
                heads_[names.of[column]] = None
                cases.setdefault(id(line), row)
    if reasons:
        console.print()
    for reason, (heads_, cases) in reasons.items():
        short = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}... (all of it: `opmark show --long`)"
        said = f"{', '.join(heads_)}: {_operators(list(cases.values()))}: {short}"
        console.print(Text(said, style=STYLES.get(reason.partition(":")[0], "")), soft_wrap=True)


def _operators(found: Sequence[Row]) -> str:
    listed = list(dict.fromkeys(row.op for row in found))
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


def _named(found: Sequence[Row], heads_of: Mapping[int, str]) -> str:
    first = f"{found[0].op} on {heads_of[id(found[0])]}"
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
