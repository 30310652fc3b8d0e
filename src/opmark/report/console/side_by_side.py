"""Prints backends side by side: a row for each case, a column for each backend and implementation.

Where there are several quantities, as on a device, each has such a group of columns below its own head, with its own
winner: no column holds two quantities. Where the terminal has not enough room, the columns are printed in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.analysis.bandwidth import bandwidths
from opmark.analysis.ranking import Contender, Key, ordered, winner
from opmark.analysis.rows import MachineFacts, Row, Timing, rows_of_records, unit_of
from opmark.plugin.registry import backend_or_none, way_of
from opmark.report.console.records import print_communication, print_doubts, print_models, reasons_of
from opmark.report.console.table import DOUBTFUL, STYLES, gigabytes, print_lines, print_prose
from opmark.schema import CACHES, QUANTITIES, Record
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
    best: Mapping[Key, WayColumn]
    """By quantity, the way that is ahead of all others by more than chance and noise."""
    raced: int
    """Largest number of ways that are compared in one quantity: verified, and measured in the same way."""

    @property
    def row(self) -> Row:
        return next(iter(self.cells.values()))


def several_backends(records: Iterable[Record]) -> bool:
    """Whether the records have a case of more than one backend. Under load, in company or on a part of the machine
    there is more to see of each than fits into a column."""
    records = list(records)
    if any(record.task.settings.conditions for record in records):
        return False
    backends: dict[str, str] = {}
    return any(backends.setdefault(r.task.case.id, r.task.backend) != r.task.backend for r in records)


def shown_keys(rows: Sequence[Row]) -> list[Key]:
    """Return the quantities that a table of these rows shows, each with every state of the caches that was measured.
    These are the quantities that were asked for. If none was, they are the time of a device and the latency; without a
    device, whatever was measured."""
    order = [*QUANTITIES]
    measured = sorted(
        {key for row in rows for key in row.keys},
        key=lambda key: (order.index(key[0]) if key[0] in order else len(order), CACHES.index(key[1])),
    )
    settings = [row.record.task.settings for row in rows]
    on_device = [name for name, _ in measured if name in QUANTITIES and QUANTITIES[name].on == "device"]
    if on_device and not any(own.quantities or own.mode for own in settings):
        measured = [key for key in measured if key[0] in (on_device[0], "latency")]
    return measured or [("latency", "warm")]


def lines(records: Sequence[Record], machines: Mapping[str, MachineFacts]) -> tuple[list[CaseLine], list[Key]]:
    """Return the lines of a run, and the quantities that they show. The lines are in the order of the way that ran most
    cases, because skipped cases are recorded out of order."""
    grouped: dict[str, dict[WayColumn, Row]] = {}
    ran: dict[WayColumn, list[str]] = {}
    rows = rows_of_records(records, machines=machines)
    for row in rows:
        alike = content_id([row.case, row.mode, row.seed, row.effort])
        column = WayColumn(row.backend, way_of(row.backend, row.implementation), row.threads)
        grouped.setdefault(alike, {})[column] = row
        if row.status != "skipped":
            ran.setdefault(column, []).append(alike)
    planned = max(ran.values(), key=len, default=[])
    keys = shown_keys(rows)
    return [_line(grouped[alike], keys) for alike in dict.fromkeys((*planned, *grouped))], keys


def _line(cells: Mapping[WayColumn, Row], keys: Sequence[Key]) -> CaseLine:
    contenders = [Contender(row.records, "", row.machine.noise) for row in cells.values()]
    places = {key: winner(contenders, key) for key in keys}
    best = {key: list(cells)[place] for key, place in places.items() if place is not None}
    return CaseLine(cells, best, max(len(ordered(contenders, key)) for key in keys))


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


FASTEST = "*"
SCALED = "~"
UNCHECKED = "?"
NOT_MEASURED = "-"
_NARROW = 30
"""Width of the first column of a narrow terminal."""
_LONGEST = 200
"""Characters of a reason that are printed."""
_GAP = 2
_BUS = " GB/s"


class TableColumn(NamedTuple):
    """One quantity of one way to compute a case: all numbers of a column are of it."""

    key: Key
    way: WayColumn


class TableCell(NamedTuple):
    number: str
    marks: str
    compiling: str
    """The compile time in brackets, or the bus bandwidth of communication; empty for other cases."""
    style: str = ""


Cells = Mapping[TableColumn, TableCell]


def print_side_by_side(
    records: Sequence[Record], console: Console, machines: Mapping[str, MachineFacts] | None = None
) -> None:
    """Print a line for each case, with a column for each way to compute it and each quantity. `machines` has facts by
    environment id."""
    found, keys = lines(records, machines or {})
    ways = columns(found)
    names = heads(ways)
    cells = [
        {TableColumn(key, way): _cell(line, way, key, first=key == keys[0]) for key in keys for way in line.cells}
        for line in found
    ]
    layout = _Layout(names, cells, _who(found), titled=len(keys) > 1)
    for block, narrow in layout.blocks([[TableColumn(key, way) for way in ways] for key in keys], console):
        layout.print_block(block, console, narrow=narrow)
        console.print()
    _print_legend(found, names, keys, cells, console)
    _print_reasons(found, names, keys, console)
    every_row = [row for line in found for row in line.cells.values()]
    heads_of = {id(row): names.of[way] for line in found for way, row in line.cells.items()}
    print_communication(every_row, console)
    print_models(every_row, console)
    print_doubts(every_row, console, lambda rows: _name_rows(rows, heads_of), keys)


def _who(found: Sequence[CaseLine]) -> list[tuple[str, str]]:
    """Return the operator of each line, and its parameters, with the phase if lines differ in it."""
    phases = any(line.row.phase != "forward" for line in found)
    return [(line.row.op, f"{line.row.parameters} {line.row.phase_text if phases else ''}".strip()) for line in found]


def _cell(line: CaseLine, way: WayColumn, key: Key, *, first: bool) -> TableCell:
    """Return the cell of a quantity. Compiling belongs to no quantity, and stands beside the `first` one."""
    row = line.cells[way]
    if row.status not in MEASURED:
        return TableCell(row.status_text, "", "", STYLES[row.status_text])
    timing = next((timing for timing in row.timings if timing.key == key), None)
    compiling = _compiling_text(row, key, first=first)
    summary = row.summary(key)
    if timing is None or summary is None:
        text, style = (NOT_MEASURED, "") if row.timings else (row.status_text, STYLES[row.status_text])
        return TableCell(text, "", compiling, style)
    scale, name = units.small_unit(summary.median, unit_of(key[0]))
    best = way == line.best.get(key)
    number = f"{units.significant(summary.median / scale)} {name}"
    number = f"({number})" if timing.disturbed else number
    doubt = _doubt_marks(row, timing)
    style = "bold red" if "!!" in doubt else "bold green" if best else DOUBTFUL if "!" in doubt else ""
    return TableCell(number, (FASTEST if best else "") + doubt, compiling, style)


def _compiling_text(row: Row, key: Key, *, first: bool) -> str:
    """Return the text behind the number, for the quantity that is shown, which need not be the headline."""
    seconds, summary = row.compile_time if first else None, row.summary(key) if unit_of(key[0]) == "s" else None
    bus = bandwidths(row.record.cost, summary.median).bus if summary else None
    parts = ["" if bus is None else f"{gigabytes(bus)}{_BUS}", "" if seconds is None else f"({units.seconds(seconds)})"]
    return " ".join(filter(None, parts))


def _doubt_marks(row: Row, timing: Timing) -> str:
    unchecked = row.status == "unchecked" or row.verified in ("none", "")
    sign = UNCHECKED if unchecked else SCALED if row.verified == "scaled" else ""
    return sign + ("!!" if PREEMPTED in timing.cautions else "!" if timing.cautions else "")


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


Block = Sequence[TableColumn]


class _Layout:
    """Puts columns into tables that fit the terminal."""

    def __init__(
        self, names: ColumnHeads, cells: Sequence[Cells], who: Sequence[tuple[str, str]], *, titled: bool
    ) -> None:
        """`who`: the two parts of the name of each line. `titled`: quantities are named above their columns."""
        self._names, self._cells, self._who, self._titled = names, cells, who, titled
        longest = [max(map(len, parts)) for parts in zip(*who, strict=True)]
        self._first = {
            narrow: max(len("case"), min(_NARROW, max(longest)) if narrow else 1 + sum(longest))
            for narrow in (True, False)
        }
        """Width of the column of the names, by whether it is narrow."""
        self._own: dict[TableColumn, _Widths] = {}
        for column in dict.fromkeys(column for line in cells for column in line):
            own = [line[column] for line in cells if column in line]
            marks = max(len(cell.marks) for cell in own)
            self._own[column] = _Widths(
                max(len(cell.number) for cell in own), marks + 1 if marks else 0,
                max(len(cell.compiling) for cell in own), len(names.of[column.way]),
            )  # fmt: skip

    def blocks(self, groups: Sequence[Block], console: Console) -> Iterator[tuple[Block, bool]]:
        """Yield blocks of columns that fit the width, and whether their cells take two lines. Columns of one quantity,
        a group, stay together if they can."""
        room = console.width if console.is_terminal else 1_000_000  # a file has room for any line
        every = [column for group in groups for column in group]
        if self._width(every, narrow=False) <= room:
            console.width = max(console.width, room) if not console.is_terminal else console.width
            yield every, False
            return
        narrow = any(self._width(group, narrow=False) > room for group in groups)
        block: list[TableColumn] = []
        for group in groups:
            if block and self._width([*block, *group], narrow=narrow) > room:
                yield block, narrow
                block = []
            for column in group:
                if block and self._width([*block, column], narrow=narrow) > room:
                    yield block, narrow
                    block = []
                block.append(column)
        yield block, narrow

    def _width(self, block: Block, *, narrow: bool) -> int:
        widths = self._widths(block, narrow=narrow).values()
        return self._first[narrow] + sum(_GAP + width.total(narrow=narrow) for width in widths)

    def _widths(self, block: Block, *, narrow: bool) -> dict[TableColumn, _Widths]:
        """Return the widths of the columns; the first of a quantity leaves room for its name above them."""
        found = {column: self._own[column] for column in block}
        for key, group in groupby(block, lambda column: column.key) if self._titled else ():
            first, *others = group
            beside = sum(_GAP + found[column].total(narrow=narrow) for column in others)
            found[first] = found[first]._replace(head=max(found[first].head, len(" ".join(key)) - beside))
        return found

    def print_block(self, block: Block, console: Console, *, narrow: bool) -> None:
        widths = self._widths(block, narrow=narrow)
        if self._titled:
            title = " " * self._first[narrow]
            for key, group in groupby(block, lambda column: column.key):
                width = sum(_GAP + widths[column].total(narrow=narrow) for column in group) - _GAP
                title += " " * _GAP + f"{' '.join(key)} ".ljust(width, "-")[:width]
            console.print(Text(title.rstrip(), style="bold"), soft_wrap=True)
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("case", overflow="fold", width=self._first[narrow], no_wrap=not narrow)
        longest = max(len(operator) for operator, _ in self._who)
        for column in block:
            head = self._names.of[column.way]
            table.add_column(head.rjust(widths[column].total(narrow=narrow)), no_wrap=narrow is False)
        for (operator, rest), line in zip(self._who, self._cells, strict=True):
            if any(column in line for column in block):
                texts = [_cell_text(line.get(column), widths[column], narrow=narrow) for column in block]
                table.add_row(Text(f"{operator}\n{rest}" if narrow else f"{operator.ljust(longest)} {rest}"), *texts)
        print_lines(table, console)


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
    found: Sequence[CaseLine], names: ColumnHeads, keys: Sequence[Key], cells: Sequence[Cells], console: Console
) -> None:
    for line in (_describe_numbers(found, names, keys), *_explain_signs(found, keys, cells)):
        print_prose(line, console)


def _describe_numbers(found: Sequence[CaseLine], names: ColumnHeads, keys: Sequence[Key]) -> str:
    measured = any(row.timings for line in found for row in line.cells.values())
    quantity = f"median {' '.join(keys[0])}" if len(keys) == 1 and measured else "medians"
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


def _explain_signs(found: Sequence[CaseLine], keys: Sequence[Key], cells: Sequence[Cells]) -> Iterator[str]:
    """Yield the meaning of each sign that is used."""
    used = [cell for line in cells for cell in line.values()]
    if any(_BUS in cell.compiling for cell in used):
        yield "GB/s: bus bandwidth, as of nccl-tests"
    if any("(" in cell.compiling for cell in used):
        yield "(...) compiling it, with empty caches: not part of the median"
    if any(line.best for line in found):
        where = " in this quantity" if len(keys) > 1 else ""
        yield f"{FASTEST} ahead of every other verified one{where} by more than chance and noise"
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


def _print_reasons(found: Sequence[CaseLine], names: ColumnHeads, keys: Sequence[Key], console: Console) -> None:
    """Print one line for each reason of a missing number, with its columns and operators."""
    reasons: dict[str, tuple[dict[str, None], dict[int, Row]]] = {}
    for line in found:
        for column, row in line.cells.items():
            for whole in (*reasons_of(row), *_not_measured(row, keys)):
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


def _not_measured(row: Row, keys: Sequence[Key]) -> Iterator[str]:
    """Yield which of the quantities a measured row lacks, unless its notes say why."""
    noted = tuple(f"{start}:" for key in keys for start in (key[0], " ".join(key)))
    told = {note.partition(":")[0] for note in row.notes if note.startswith(noted)}
    lacking = [key for key in keys if key not in row.keys and not {key[0], " ".join(key)} & told]
    if row.status in MEASURED and row.timings and lacking:
        names = [", ".join(" ".join(key) for key in some) for some in (lacking, row.keys)]
        yield f"not measured: {names[0]}; measured: {names[1]}"


def _operators(found: Sequence[Row]) -> str:
    listed = list(dict.fromkeys(row.op for row in found))
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


def _name_rows(found: Sequence[Row], heads_of: Mapping[int, str]) -> str:
    first = f"{found[0].op} on {heads_of[id(found[0])]}"
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
