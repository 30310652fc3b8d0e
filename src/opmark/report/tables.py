"""One look for every table."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
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
