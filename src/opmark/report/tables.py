"""The look of tables on a terminal and in a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.report.aligned import aligned_cells, widths_of
from opmark.report.plain import printable

STYLES = {"ok": "green", "wrong": "bold red", "error": "red", "timeout": "red", "oom": "red", "skipped": "yellow"}

DOUBTFUL = "yellow"
"""The colour of what has a caution: a `!` says the same."""

MANY = 200
"""Rows beyond which nothing is folded: Rich would measure every cell."""


def gigabytes(rate: float) -> str:
    return units.significant(rate / 1e9)


def plain_table(*columns: str, caption: str | None = None) -> Table:
    """No lines, bold heads, cells that fold where a terminal is narrow."""
    table = Table(box=None, header_style="bold", pad_edge=False, caption=caption, caption_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def print_lines(table: Table, console: Console) -> None:
    """Print a table without the blanks that fill up the last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1]))


def print_rows(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    console: Console,
    who: int,
    *,
    left: Collection[str] = (),
    unnamed: Collection[str] | None = None,
    lead: str = "",
    spare: str | None = None,
) -> None:
    """Print a table of which the first `who` columns name a row and figures follow.

    On a narrow terminal the names stand on a line of their own, and the figures with their heads on the next. `left`:
    heads of further columns that are set to the left. `unnamed`: heads that need not be said on a narrow terminal;
    where given, the names go without the head of the first column, too. `lead`: the head of the figure that comes first
    there. `spare`: the head of a column that is left out where a terminal has not enough room for it, or nobody looks
    at one.
    """
    shown = [[_one_line(str(cell)) for cell in row] for row in (heads, *rows)]
    usual = [i for i, head in enumerate(heads) if head != spare]
    width = sum(widths_of([[line[i] for i in usual] for line in shown])) + 2 * (len(usual) - 1)
    if console.is_terminal and width > console.width:
        order = sorted(range(len(heads)), key=lambda i: (i >= who, heads[i] != lead))
        texts = [[_text(row[i]) for i in order] for row in rows]
        _print_two_lines([heads[i] for i in order], texts, console, who, unnamed)
        return
    if len(usual) < len(heads) and console.is_terminal:
        whole = sum(widths_of(shown)) + 2 * (len(heads) - 1)
        usual = list(range(len(heads))) if whole <= console.width else usual
    right = [i >= who and bool(heads[i]) and heads[i] not in left for i in usual]
    lines = aligned_cells([[line[i] for i in usual] for line in shown], right)
    if console.is_terminal:
        paints: dict[tuple[str, str], str] = {}
        styles = [["bold"] * len(usual), *([getattr(row[i], "style", "") for i in usual] for row in rows)]
        lines = [
            [_painted(cell, style, console, paints) if style else cell for cell, style in zip(line, own, strict=True)]
            for line, own in zip(lines, styles, strict=True)
        ]
    console.file.write("".join(f"{'  '.join(line).rstrip()}\n" for line in lines))


def _print_two_lines(
    heads: Sequence[str], rows: Sequence[Sequence[Text]], console: Console, who: int, unnamed: Collection[str] | None
) -> None:
    first = f"{heads[0]} " if unnamed is None else ""
    for row in rows:
        names = Text(first) + Text("  ").join([cell for cell in row[:who] if cell.plain])
        figures = [
            cell if not head or head in (unnamed or ()) else Text(f"{head} ") + cell
            for head, cell in zip(heads[who:], row[who:], strict=True)
            if cell.plain
        ]
        numbers = Text("  ").join(figures)
        if len(rows) > MANY:
            console.file.write(f"{_one_line(names.plain)}\n  {_one_line(numbers.plain)}\n")
        else:
            console.print(names, overflow="fold")
            console.print(Padding(numbers, (0, 0, 0, 2)), overflow="fold")


def _one_line(cell: str) -> str:
    return cell if cell.isprintable() else printable(" ".join(cell.split()))


def _text(cell: str | Text) -> Text:
    """A cell as it stands: what looks like Rich's markup is a name."""
    return cell if isinstance(cell, Text) else Text(_one_line(cell))


def _painted(cell: str, style: str, console: Console, paints: dict[tuple[str, str], str]) -> str:
    """A cell as this console prints it: with its colour, or as it stands where there is none. A cell that many rows
    share is painted once."""
    bare = cell.strip()
    if (bare, style) not in paints:
        with console.capture() as captured:
            console.print(Text(bare, style=style), end="", soft_wrap=True)
        paints[bare, style] = captured.get()
    return cell.replace(bare, paints[bare, style]) if bare else cell
