"""One look for every table."""

from __future__ import annotations

from rich.table import Table


def plain_table(*columns: str, caption: str | None = None) -> Table:
    """No lines, bold heads, cells that fold where a terminal is narrow."""
    table = Table(box=None, header_style="bold", pad_edge=False, caption=caption, caption_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
