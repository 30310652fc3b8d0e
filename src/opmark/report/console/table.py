"""Tables and sparklines on a terminal and in a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.report.text import fold, harmless, printable, text_width
from opmark.schema.record import NOT_TRIED

STYLES = {"ok": "green", "unchecked": "yellow", "disturbed": "bold red", "wrong": "bold red", "error": "red",
          "timeout": "red", "oom": "red", "killed": "red", "skipped": "yellow", NOT_TRIED: "yellow"}  # fmt: skip

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


_GAP = 2
_LEAST_NAME = 12
"""Width below which the column of names is not narrowed: then each row takes two lines."""
_NAME_SHARE = 0.4
"""Share of a narrow terminal that the names keep before an optional column is shown; up to half of it for a long
word, which would otherwise be cut."""


def print_rows(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    console: Console,
    who: int,
    *,
    left: Collection[str] = (),
    optional: Sequence[Sequence[str]] = (),
    name_share: float = _NAME_SHARE,
) -> list[str]:
    """Print a table whose first `who` columns name a row; the others are figures. Return the heads of the columns for
    which a terminal had no room.

    On a terminal that is too narrow, the names share one column and take further lines where they are long, so that
    figures stay aligned. If that is not enough, `optional` columns are left out, the last group of them first, until
    the names have `name_share` of the width and their longest word is whole. If that is not enough either, the names
    take one line, and the figures with their heads the next. `left`: heads of further columns that are aligned to the
    left.
    """
    cells = [[_one_line(str(cell)) for cell in row] for row in (heads, *rows)]
    right = [i >= who and bool(head) and head not in left for i, head in enumerate(heads)]
    styles = [["bold"] * len(heads), *([str(getattr(cell, "style", "")) for cell in row] for row in rows)]
    shown = list(range(len(heads)))
    if console.is_terminal and _table_width(cells) > console.width:
        names = ["case", *(" ".join(filter(None, line[:who])) for line in cells[1:])]
        groups = [[heads.index(head) for head in group if head in heads] for group in optional]
        fitted = _fit(names, cells, who, groups, console.width, name_share)
        if fitted is None:
            _print_two_lines(heads, [[_text(cell) for cell in row] for row in rows], console, who)
            return []
        shown, room = fitted
        cells, styles = _with_names(names, room, [[line[i] for i in shown] for line in cells], shown, styles)
        right = [False, *(right[i] for i in shown)]
    lines = aligned_cells(cells, right)
    if console.is_terminal:
        paints: dict[tuple[str, str], str] = {}
        lines = [
            [_paint(cell, style, console, paints) if style else cell for cell, style in zip(line, own, strict=True)]
            for line, own in zip(lines, styles, strict=True)
        ]
    console.file.write("".join(f"{(' ' * _GAP).join(line).rstrip()}\n" for line in lines))
    return [head for i, head in enumerate(heads) if i >= who and i not in shown]


def fits(heads: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> bool:
    """Whether `print_rows` can print these rows with each name and each figure in a column of its own."""
    cells = [[_one_line(cell) for cell in row] for row in (heads, *rows)]
    return not console.is_terminal or _table_width(cells) <= console.width


def _table_width(cells: Sequence[Sequence[str]]) -> int:
    return sum(widths_of(cells)) + _GAP * (len(cells[0]) - 1)


def _fit(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    who: int,
    optional: Sequence[Sequence[int]],
    width: int,
    name_share: float,
) -> tuple[list[int], int] | None:
    """Return the columns of figures that fit beside the names, and the width that is left for the names; None if not
    even the columns that are not optional fit."""
    longest, widths = max(map(text_width, names)), widths_of(cells)
    word = max(text_width(word) for name in names for word in name.split(" "))
    least = min(longest, max(int(name_share * width), min(word, width // 2)))
    shown = [i for i in range(who, len(widths)) if not any(i in group for group in optional)]
    room = width - sum(_GAP + widths[i] for i in shown)
    if room < min(longest, _LEAST_NAME):
        return None
    for group in optional:
        left_over = room - sum(_GAP + widths[i] for i in group)
        if left_over >= least:
            shown, room = [*shown, *group], left_over
    return sorted(shown), min(room, longest)


def _with_names(
    names: Sequence[str],
    room: int,
    figures: Sequence[Sequence[str]],
    shown: Sequence[int],
    styles: Sequence[Sequence[str]],
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the cells and styles of a table whose names take as many lines as they need in a column of width `room`;
    the figures stand in the first line."""
    cells, painted = [], []
    for name, line, style in zip(names, figures, styles, strict=True):
        first, *others = fold(name, room, cut=True)
        cells += [[first, *line], *([other, *([""] * len(line))] for other in others)]
        painted += [["bold" if line is figures[0] else "", *(style[i] for i in shown)]]
        painted += [[""] * (1 + len(line)) for _ in others]
    return cells, painted


def print_prose(text: str, console: Console, style: str = "") -> None:
    """Print sentences, which may have several lines: on a terminal they break between words, elsewhere not at all."""
    lines = [
        part
        for line in text.split("\n")
        for part in (fold(line, console.width) if console.is_terminal else [line])
    ]  # fmt: skip
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


def _print_two_lines(heads: Sequence[str], rows: Sequence[Sequence[Text]], console: Console, who: int) -> None:
    for row in rows:
        names = Text(f"{heads[0]} ") + Text("  ").join([cell for cell in row[:who] if cell.plain])
        figures = [
            Text(f"{head} ") + cell if head else cell
            for head, cell in zip(heads[who:], row[who:], strict=True)
            if cell.plain
        ]  # fmt: skip
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


def align_columns(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return lines of text with aligned columns. `right`: whether a column is aligned to the right."""
    return "".join(f"{'  '.join(line).rstrip()}\n" for line in aligned_cells(lines, right))


def aligned_cells(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> list[Sequence[str]]:
    """Return the cells of the lines, padded to the width of their columns."""
    columns = []
    for column, to_the_right in zip(zip(*lines, strict=True), right, strict=True):
        widths = list(map(text_width, column))
        most = max(widths)
        blanks = (" " * (most - width) for width in widths)
        cells = zip(blanks, column, strict=True)
        columns.append([blank + cell if to_the_right else cell + blank for blank, cell in cells])
    return list(zip(*columns, strict=True))


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(text_width, column)) for column in zip(*lines, strict=True)]


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


def histogram_line(counts: Sequence[int], encoding: str) -> str:
    """Return the counts of bins as bars by their logarithms, so that a single element is seen; a dot for none."""
    bars, largest = bars_for(encoding), math.log1p(max(counts, default=0))
    return "".join(bars[min(len(bars) - 1, int(math.log1p(n) / largest * len(bars)))] if n else "." for n in counts)


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
