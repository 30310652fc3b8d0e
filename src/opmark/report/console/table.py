"""Tables and sparklines on a terminal and in a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.report.text import harmless, printable

STYLES = {"ok": "green", "unchecked": "yellow", "disturbed": "bold red", "wrong": "bold red", "error": "red",
          "timeout": "red", "oom": "red", "killed": "red", "skipped": "yellow"}  # fmt: skip

DOUBTFUL = "yellow"
"""Colour of rows with a caution, which also have a `!`."""

MANY = 200
"""Number of rows above which long lines are not folded, because Rich would measure every cell."""


def gigabytes(rate: float) -> str:
    return units.significant(rate / 1e9)


def plain_table(*columns: str, caption: str | None = None) -> Table:
    """Return a table without lines, with bold heads, whose cells fold on a narrow terminal."""
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
    """Print a table whose first `who` columns name a row; the others are figures.

    On a narrow terminal the names take one line, and the figures with their heads the next. `left`: heads of further
    columns that are aligned to the left. `unnamed`: heads that are not repeated on a narrow terminal; if it is given,
    the head of the first column is not repeated either. `lead`: the head of the figure that comes first there.
    `spare`: the head of a column that is only printed on a terminal with room for it.
    """
    plain_cells = [[_one_line(str(cell)) for cell in row] for row in (heads, *rows)]
    usual = [i for i, head in enumerate(heads) if head != spare]
    width = sum(widths_of([[line[i] for i in usual] for line in plain_cells])) + 2 * (len(usual) - 1)
    if console.is_terminal and width > console.width:
        order = sorted(range(len(heads)), key=lambda i: (i >= who, heads[i] != lead))
        texts = [[_text(row[i]) for i in order] for row in rows]
        _print_two_lines([heads[i] for i in order], texts, console, who, unnamed)
        return
    if len(usual) < len(heads) and console.is_terminal:
        whole = sum(widths_of(plain_cells)) + 2 * (len(heads) - 1)
        usual = list(range(len(heads))) if whole <= console.width else usual
    right = [i >= who and bool(heads[i]) and heads[i] not in left for i in usual]
    lines = aligned_cells([[line[i] for i in usual] for line in plain_cells], right)
    if console.is_terminal:
        paints: dict[tuple[str, str], str] = {}
        styles = [["bold"] * len(usual), *([getattr(row[i], "style", "") for i in usual] for row in rows)]
        lines = [
            [_paint(cell, style, console, paints) if style else cell for cell, style in zip(line, own, strict=True)]
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
    """Return a cell as Rich text, without interpreting markup, which names may contain."""
    return cell if isinstance(cell, Text) else Text(_one_line(cell))


def _paint(cell: str, style: str, console: Console, paints: dict[tuple[str, str], str]) -> str:
    """Return a cell with the escape codes of its style, if the console has colours. `paints` caches equal cells."""
    bare = cell.strip()
    if (bare, style) not in paints:
        with console.capture() as captured:
            console.print(Text(bare, style=style), end="", soft_wrap=True)
        paints[bare, style] = captured.get()
    return cell.replace(bare, paints[bare, style]) if bare else cell


# Aligned text without Rich, which takes longer for thousands of rows than everything else together.

_ONE_WIDE = re.compile(r"[ -~\u00a0-\u02ff\u2010-\u2027\u2581-\u2588]*").fullmatch
"""Matches text of characters that are all one column wide: letters, digits, µ, ×, –, the bars of sparklines."""


def align_columns(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return lines of text with aligned columns. `right`: whether a column is aligned to the right."""
    return "".join(f"{'  '.join(line).rstrip()}\n" for line in aligned_cells(lines, right))


def aligned_cells(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> list[Sequence[str]]:
    """Return the cells of the lines, padded to the width of their columns."""
    columns = []
    for column, to_the_right in zip(zip(*lines, strict=True), right, strict=True):
        widths = list(map(_width, column))
        most = max(widths)
        blanks = (" " * (most - width) for width in widths)
        cells = zip(blanks, column, strict=True)
        columns.append([blank + cell if to_the_right else cell + blank for blank, cell in cells])
    return list(zip(*columns, strict=True))


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(*lines, strict=True)]


def _width(text: str) -> int:
    """Return the width on a terminal, where some characters take two columns."""
    if (text.isascii() and text.isprintable()) or _ONE_WIDE(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class PlainConsole(Console):
    """A console that writes control characters of texts as escapes, because names may come from anywhere."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(harmless(segment.text), segment.style)


# Sparklines: a series of numbers in a few characters.

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"
"""Bars for streams that cannot write the others; as many, so that both have the same levels."""
WIDTH = 30
_STILL = 0.02
"""Relative range below which a series is drawn flat, so that noise does not look like a change."""


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return positive values as bars by their logarithms; neighbours share a bar if there are too many."""
    return _bars(_merge([math.log(value) for value in values], width, _mean), _BARS)


def samples_line(values: Sequence[float], width: int, encoding: str) -> str:
    """Return samples as bars, in the order of measurement. Samples that share a bar are represented by the slowest,
    because a mean would hide one straggler among a thousand. Only positive finite numbers can be drawn."""
    if values and not (min(values) > 0 and math.isfinite(sum(values))):
        values = [value for value in values if 0 < value < math.inf]
    return _bars([math.log(value) for value in _merge(values, width, max)], bars_for(encoding))


def bars_for(encoding: str) -> str:
    """Return the bars that the encoding of a stream has."""
    try:
        _BARS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _BARS


def _bars(logs: Sequence[float], bars: str) -> str:
    if not logs:
        return ""
    low, high = min(logs), max(logs)
    span = max(high - low, _STILL)
    start, scale, top = low - (span - (high - low)) / 2, len(bars) / span, len(bars) - 1
    return "".join([bars[min(top, int((value - start) * scale))] for value in logs])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _merge(values: Sequence[float], width: int, merge: Callable[[Sequence[float]], float]) -> list[float]:
    if len(values) <= width:
        return list(values)
    ends = [round(i * len(values) / width) for i in range(width + 1)]
    return [merge(values[a:b]) for a, b in pairwise(ends)]
