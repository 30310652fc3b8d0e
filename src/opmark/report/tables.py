"""One look for every table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opmark.report.aligned import aligned, widths_of
from opmark.report.plain import printable

STYLES = {"ok": "green", "wrong": "bold red", "error": "red", "timeout": "red", "oom": "red", "skipped": "yellow"}

DOUBTFUL = "yellow"
"""What has a caution: a `!` says the same."""

MANY = 200
"""Rows beyond which a table is written by hand."""


def plain_table(*columns: str, caption: str | None = None) -> Table:
    """No lines, bold heads, cells that fold where a terminal is narrow."""
    table = Table(box=None, header_style="bold", pad_edge=False, caption=caption, caption_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def print_lines(table: Table, console: Console) -> None:
    """Without the blanks that fill up the last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1]))


def painted(text: Text, console: Console) -> str:
    """As this console prints it: with its colours, or as it stands where it has none."""
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True)
    return captured.get()


def natural_width(table: Table, console: Console) -> int:
    """How wide it would be where there was room enough."""
    return Measurement.get(console, console.options.update(width=1_000_000), table).maximum


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]], console: Console, who: int) -> None:
    """The first `who` columns name a row, figures follow, what is said of it is last; on a narrow terminal the names
    stand on a line of their own. Many rows, or rows that no terminal shows, are written as they are: Rich would measure
    every cell."""
    if not console.is_terminal or len(rows) > MANY:
        _print_plain(heads, rows, console, who)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i < who or not head else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    narrow = natural_width(table, console) > console.width
    print_lines(_two_lines(heads, rows, who) if narrow else table, console)


def _print_plain(heads: Sequence[str], rows: Sequence[Sequence[str]], console: Console, who: int) -> None:
    """As Rich would set it where there is room, or in two lines where a terminal is too narrow."""
    lines = [_one_line(row) for row in (heads, *rows)]
    widths = widths_of(lines) if console.is_terminal else []
    if sum(widths) + 2 * len(widths) > console.width:
        first, *others = lines
        for row in others:
            console.file.write(f"{first[0]} {'  '.join(row[:who])}\n  {_figures(first, row, who)}\n")
    else:
        console.file.write(aligned(lines, [i >= who and bool(head) for i, head in enumerate(heads)]))


def _one_line(cells: Sequence[str]) -> list[str]:
    return [cell if cell.isprintable() else printable(" ".join(cell.split())) for cell in cells]


def _figures(heads: Sequence[str], row: Sequence[str], who: int) -> str:
    figures = [f"{head} {cell}".strip() for head, cell in zip(heads, row, strict=True) if cell]
    return "  ".join(figures[len([cell for cell in row[:who] if cell]) :])


def _two_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], who: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(Text(f"{heads[0]} " + "  ".join(row[:who])))
        table.add_row(Padding(Text(_figures(heads, row, who)), (0, 0, 0, 2)))
    return table
