"""One look for every table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

STYLES = {"ok": "green", "wrong": "bold red", "error": "red", "timeout": "red", "oom": "red", "skipped": "yellow"}


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
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def natural_width(table: Table, console: Console) -> int:
    """How wide it would be where there was room enough."""
    return Measurement.get(console, console.options.update(width=1_000_000), table).maximum


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]], console: Console, who: int) -> None:
    """The first `who` columns name a row, figures follow, what is said of it is last; on a narrow terminal the names
    stand on a line of their own."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i < who or not head else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    width = natural_width(table, console)
    if not console.is_terminal:
        console.width = max(console.width, width)
    print_lines(table if width <= console.width else _two_lines(heads, rows, who), console)


def _two_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], who: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    for row in rows:
        figures = [f"{head} {cell}".strip() for head, cell in zip(heads, row, strict=True) if cell]
        table.add_row(Text(f"{heads[0]} " + "  ".join(row[:who])))
        table.add_row(Padding(Text("  ".join(figures[len([cell for cell in row[:who] if cell]) :])), (0, 0, 0, 2)))
    return table
