"""Prints backends side by side: a row for each case, a column for each backend and implementation.

Where the terminal has not enough room, the columns are printed in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.analysis.bandwidth import bandwidths
from opmark.analysis.ranking import Contender, Key, ordered, shared_key, winner
from opmark.analysis.rows import MachineFacts, Row, rows_of_records, unit_of
from opmark.plugin.registry import backend_or_none, way_of
from opmark.report.console.records import print_communication, print_doubts, print_models, reasons_of
from opmark.report.console.table import DOUBTFUL, STYLES, gigabytes, print_lines, print_prose
from opmark.schema import Record
from opmark.schema.case import content_id
from opmark.schema.measurement import PREEMPTED
from opmark.schema.record import MEASURED


class WayColumn(NamedTuple):
    """One way to compute a case: backend, implementation and number of threads."""

    backend: str
    way: str
    """`/IMPLEMENTATION` if the framework has several, else empty."""
    threads: int


@dataclass(frozen=True)
class CaseLine:
    """The rows of one case, in all ways in which it was computed."""

    cells: Mapping[WayColumn, Row]
    key: Key | None
    """The quantity that is shown: one that all ways with a number have; None if there is none."""
    best: WayColumn | None
    """The way that is ahead of all others by more than chance and noise."""
    raced: int
    """Number of ways that are compared: verified, and measured in the same way."""

    @property
    def row(self) -> Row:
        return next(iter(self.cells.values()))

    def quantity_of(self, column: WayColumn) -> Key | None:
        """Return the quantity that is shown in a column; without a common one, each column shows its own headline."""
        measured = self.cells[column].keys
        return self.key if self.key in measured else measured[0] if measured and self.key is None else None


def several_backends(records: Iterable[Record]) -> bool:
    """Whether the records have a case of more than one backend. Under load there is more to see of each than fits
    into a column."""
    records = list(records)
    if any(record.task.settings.load for record in records):
        return False
    backends: dict[str, str] = {}
    return any(backends.setdefault(r.task.case.id, r.task.backend) != r.task.backend for r in records)


def lines(records: Sequence[Record], machines: Mapping[str, MachineFacts]) -> list[CaseLine]:
    """Return the lines of a run in the order of the way that ran most cases, because skipped cases are recorded out of
    order."""
    grouped: dict[str, dict[WayColumn, Row]] = {}
    ran: dict[WayColumn, list[str]] = {}
    for row in rows_of_records(records, machines=machines):
        alike = content_id([row.case, row.mode, row.seed, row.effort])
        column = WayColumn(row.backend, way_of(row.backend, row.implementation), row.threads)
        grouped.setdefault(alike, {})[column] = row
        if row.status != "skipped":
            ran.setdefault(column, []).append(alike)
    planned = max(ran.values(), key=len, default=[])
    return [_line(grouped[alike]) for alike in dict.fromkeys((*planned, *grouped))]


def _line(cells: Mapping[WayColumn, Row]) -> CaseLine:
    key = shared_key(row.records for row in cells.values())
    if key is None:
        return CaseLine(cells, None, None, 0)
    contenders = [Contender(row.records, "", row.machine.noise) for row in cells.values()]
    place = winner(contenders, key)
    return CaseLine(cells, key, None if place is None else list(cells)[place], len(ordered(contenders, key)))


def columns(found: Sequence[CaseLine]) -> list[WayColumn]:
    """Return the columns in order of appearance; implementations that only some cases have come last, so that they
    share a block."""
    listed = list(dict.fromkeys(column for line in found for column in line.cells))
    everywhere = {column for column in listed if not column.way or all(column in line.cells for line in found)}
    return sorted(listed, key=lambda column: column not in everywhere)


class ColumnHeads(NamedTuple):
    """Short heads of the columns, and the facts that all columns share and that were left out of the heads."""

    of: Mapping[WayColumn, str]
    device: str
    """The device of all backends; empty if it differs."""
    threads: int | None
    """The number of threads of all; None if it differs and is part of the heads."""
    interpreters: Mapping[str, str]
    """Paths by the names that stand for them."""


def heads(listed: Sequence[WayColumn]) -> ColumnHeads:
    devices = {_device(column.backend) for column in listed}
    device = devices.pop() if len(devices) == 1 else ""
    numbers = {column.threads for column in listed}
    interpreters = _interpreters(column.backend.partition("@")[2] for column in listed)
    short = {path: name for name, path in interpreters.items()}
    of = {}
    for column in listed:
        rest, at, python = column.backend.partition("@")
        plain, slash, variant = rest.partition("/")
        plain = plain.removesuffix(f"-{device}") if device else plain
        threads = f" ×{column.threads}" if len(numbers) > 1 else ""
        of[column] = f"{plain}{slash}{variant}{at}{short.get(python, python)}{column.way}{threads}"
    shared = next(iter(numbers)) if len(numbers) == 1 else None
    return ColumnHeads(of, device, shared, interpreters)


def _device(backend: str) -> str:
    """Return the device at the end of a backend's name; empty if there is none."""
    info, plain = backend_or_none(backend), backend.partition("@")[0].partition("/")[0]
    device = info.device if info else plain.rpartition("-")[2]
    return device if plain.endswith(f"-{device}") else ""


def _interpreters(paths: Iterable[str]) -> dict[str, str]:
    """Return paths of interpreters by the folders of their environments, as far as these are unique."""
    found = [path for path in dict.fromkeys(paths) if "/" in path]
    folders = {path: _environment(PurePath(path)) or path for path in found}
    alone = [path for path in found if list(folders.values()).count(folders[path]) == 1]
    return {folders[path]: path for path in alone if folders[path] != path}


def _environment(path: PurePath) -> str:
    """Return the name of the folder of an environment; the path may be that folder itself."""
    return path.parent.parent.name if path.parent.name in ("bin", "Scripts") else path.name


def line_name(line: CaseLine, *, phase: bool, quantity: bool) -> tuple[str, str]:
    """Return the operator, and the parameters with phase and quantity if lines differ in them."""
    parts = [line.row.parameters]
    if phase:
        parts.append(line.row.phase_text)
    if quantity and line.key:
        parts.append(" ".join(line.key))
    return line.row.op, " ".join(filter(None, parts))


FASTEST = "*"
SCALED = "~"
UNCHECKED = "?"
_NARROW = 30
"""Width of the first column of a narrow terminal."""
_LONGEST = 200
"""Characters of a reason that are printed."""
_GAP = 2
_BUS = " GB/s"


class TableCell(NamedTuple):
    number: str
    marks: str
    compiling: str
    """The compile time in brackets, or the bus bandwidth of communication; empty for other cases."""
    style: str = ""


def print_side_by_side(
    records: Sequence[Record], console: Console, machines: Mapping[str, MachineFacts] | None = None
) -> None:
    """Print a line for each case, with a column for each way to compute it. `machines` has facts by environment id."""
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
    every_row = [row for line in found for row in line.cells.values()]
    heads_of = {id(row): names.of[column] for line in found for column, row in line.cells.items()}
    print_communication(every_row, console)
    print_models(every_row, console)
    print_doubts(every_row, console, lambda rows: _name_rows(rows, heads_of))


def _who(found: Sequence[CaseLine]) -> list[tuple[str, str]]:
    phases = any(line.row.phase != "forward" for line in found)
    quantities = len({line.key for line in found if line.key}) > 1
    return [line_name(line, phase=phases, quantity=quantities) for line in found]


def _cell(line: CaseLine, column: WayColumn) -> TableCell:
    row, key = line.cells[column], line.quantity_of(column)
    summary = row.summary(key) if key else None
    status = row.status
    compiling = _compiling_text(row, key)
    if summary is None or key is None or status not in MEASURED:
        return TableCell(row.status_text, "", compiling if status in MEASURED else "", STYLES[row.status_text])
    scale, name = units.small_unit(summary.median, unit_of(key[0]))
    best = column == line.best
    quantity = "" if line.key else f" {key[0]}"
    number = f"{units.significant(summary.median / scale)} {name}{quantity}"
    timing = next(timing for timing in row.timings if timing.key == key)
    number = f"({number})" if timing.disturbed else number
    doubt = _doubt_marks(row)
    style = "bold red" if "!!" in doubt else "bold green" if best else DOUBTFUL if "!" in doubt else ""
    return TableCell(number, (FASTEST if best else "") + doubt, compiling, style)


def _compiling_text(row: Row, key: Key | None) -> str:
    """Return the text behind the number, for the quantity that is shown, which need not be the headline."""
    seconds, summary = row.compile_time, row.summary(key) if key and unit_of(key[0]) == "s" else None
    bus = bandwidths(row.record.cost, summary.median).bus if summary else None
    parts = ["" if bus is None else f"{gigabytes(bus)}{_BUS}", "" if seconds is None else f"({units.seconds(seconds)})"]
    return " ".join(filter(None, parts))


def _doubt_marks(row: Row) -> str:
    unchecked = row.status == "unchecked" or row.verified in ("none", "")
    sign = UNCHECKED if unchecked else SCALED if row.verified == "scaled" else ""
    return sign + ("!!" if PREEMPTED in row.cautions else "!" if row.cautions else "")


class _Widths(NamedTuple):
    """Widths of the parts of a column's cells, by which they are aligned."""

    number: int
    marks: int
    compiling: int
    head: int

    def total(self, *, narrow: bool) -> int:
        first = self.number + self.marks
        between = 1 if self.compiling else 0
        return max(self.head, first, self.compiling) if narrow else max(self.head, first + between + self.compiling)


def _widths(column: WayColumn, names: ColumnHeads, cells: Sequence[Mapping[WayColumn, TableCell]]) -> _Widths:
    own = [line[column] for line in cells if column in line]
    marks = max(len(cell.marks) for cell in own)
    return _Widths(
        max(len(cell.number) for cell in own), marks + 1 if marks else 0, max(len(cell.compiling) for cell in own),
        len(names.of[column]),
    )  # fmt: skip


Block = Sequence[WayColumn]


def _blocks(
    listed: Sequence[WayColumn],
    names: ColumnHeads,
    cells: Sequence[Mapping[WayColumn, TableCell]],
    who: Sequence[tuple[str, str]],
    console: Console,
) -> Iterator[tuple[Block, bool]]:
    """Yield blocks of columns that fit the width, and whether their cells take two lines."""
    widths = {column: _widths(column, names, cells) for column in listed}
    room = console.width if console.is_terminal else 1_000_000  # a file has room for any line
    first = 1 + sum(max((len(part) for part in parts), default=0) for parts in zip(*who, strict=True))
    if first + sum(_GAP + width.total(narrow=False) for width in widths.values()) <= room:
        console.width = max(console.width, room) if not console.is_terminal else console.width
        yield listed, False
        return
    block: list[WayColumn] = []
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
    names: ColumnHeads,
    cells: Sequence[Mapping[WayColumn, TableCell]],
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
            texts = [_cell_text(line.get(column), widths[column], narrow=narrow) for column in block]
            table.add_row(Text(f"{operator}\n{rest}" if narrow else f"{operator.ljust(longest)} {rest}"), *texts)
    return table


def _cell_text(cell: TableCell | None, widths: _Widths, *, narrow: bool) -> Text:
    """Return a cell with its number aligned to the right, and its marks behind."""
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
    found: Sequence[CaseLine], names: ColumnHeads, cells: Sequence[Mapping[WayColumn, TableCell]], console: Console
) -> None:
    for line in (_describe_numbers(found, names), *_explain_signs(found, cells)):
        print_prose(line, console)


def _describe_numbers(found: Sequence[CaseLine], names: ColumnHeads) -> str:
    keys = {line.key for line in found if line.key}
    quantity = f"median {' '.join(keys.pop())}" if len(keys) == 1 else "medians"
    counts = {row.processes for line in found for row in line.cells.values() if row.timings}
    parts = [quantity]
    if counts and max(counts) > 1:
        least, most = min(counts), max(counts)
        parts.append(f"over {most if least == most else f'{least} to {most}'} processes")
    if names.threads is not None:
        parts.append(units.count_noun(names.threads, "thread"))
    if names.device:
        parts.append(f"backends NAME-{names.device}")
    parts += [f"@{name} is {path}" for name, path in names.interpreters.items()]
    return ", ".join(parts)


def _explain_signs(found: Sequence[CaseLine], cells: Sequence[Mapping[WayColumn, TableCell]]) -> Iterator[str]:
    """Yield the meaning of each sign that is used."""
    used = [cell for line in cells for cell in line.values()]
    if any(_BUS in cell.compiling for cell in used):
        yield "GB/s: bus bandwidth, as of nccl-tests"
    if any("(" in cell.compiling for cell in used):
        yield "(...) compiling it, with empty caches: not part of the median"
    if any(line.best for line in found):
        yield f"{FASTEST} ahead of every other verified one by more than chance and noise"
    elif any(line.raced > 1 for line in found):
        yield f"no {FASTEST}: none is ahead of every other by more than chance and noise; more --processes tell more"
    if any(SCALED in cell.marks for cell in used):
        yield f"{SCALED} verified at a smaller size: too large in full"
    if any(UNCHECKED in cell.marks for cell in used):
        checks = [row.record.verification for line in found for row in line.cells.values() if row.timings]
        notes = dict.fromkeys(check.note for check in checks if check and check.checked == "none" and check.note)
        yield f"{UNCHECKED} unchecked: not verified, and not in the race" + (f": {'; '.join(notes)}" if notes else "")
    if any("!!" in cell.marks for cell in used):
        yield "(...) !! disturbed: the number is the scheduler's and not the operator's, and not in the race"


def _print_reasons(found: Sequence[CaseLine], names: ColumnHeads, console: Console) -> None:
    """Print one line for each reason of a missing number, with its columns and operators."""
    reasons: dict[str, tuple[dict[str, None], dict[int, Row]]] = {}
    for line in found:
        for column, row in line.cells.items():
            for whole in reasons_of(row):
                # Without the operator the same reason of several operators is printed once.
                reason = whole.replace(f"{row.status_text}: `{row.op}` ", f"{row.status_text}: ", 1)
                heads_, cases = reasons.setdefault(reason, ({}, {}))
                heads_[names.of[column]] = None
                cases.setdefault(id(line), row)
    if reasons:
        console.print()
    for reason, (heads_, cases) in reasons.items():
        short = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}... (all of it: `opmark show --long`)"
        text = f"{', '.join(heads_)}: {_operators(list(cases.values()))}: {short}"
        print_prose(text, console, STYLES.get(reason.partition(":")[0], ""))


def _operators(found: Sequence[Row]) -> str:
    listed = list(dict.fromkeys(row.op for row in found))
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


def _name_rows(found: Sequence[Row], heads_of: Mapping[int, str]) -> str:
    first = f"{found[0].op} on {heads_of[id(found[0])]}"
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
