"""Charts as figures of a page, with their numbers as a folded table, and as SVG files of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from opmark import units
from opmark.report.charts.svg.picture import identifier, svg
from opmark.report.charts.svg.scale import NO_NUMBER, format_exactly, select_marks
from opmark.report.charts.svg.text import clean, safe, shorten, text, width
from opmark.report.html.templates import asset
from opmark.schema.chart import Axis, Chart

_RIGHT = ' class="n"'
_LEFT = "left out: "
"""Prefix of notes that are joined to one line."""
_KEYS = "arrow keys move from mark to mark, Enter follows its link, Escape hides what it says"


ON_PAPER = 40
"""Number of rows up to which the numbers of a figure are printed."""


class FigureStyle(NamedTuple):
    """Options of a figure in a page."""

    level: int = 3
    """Level of its heading."""
    of: str = ""
    """Name of its run or comparison, if the page has several figures of the same title."""
    paper: bool = False
    """Whether the page is printed, so that its numbers have to be unfolded."""


_DEFAULT_STYLE = FigureStyle()


def figure(chart: Chart, href: Callable[[str], str], style: FigureStyle = _DEFAULT_STYLE) -> Markup:
    """Return a figure. `href` returns the address of a row by its key. All texts of a chart are escaped here or in
    `svg`."""
    name, h = identifier(chart), f"h{style.level}"
    label = safe(", ".join(filter(None, (chart.title, style.of))))
    missing = count_undrawn(chart)
    left = [note.removeprefix(_LEFT) for note in chart.notes if note.startswith(_LEFT)]
    notes = [note for note in chart.notes if not note.startswith(_LEFT)]
    notes += [_LEFT + "; ".join(left)] if left else []
    notes += [f"{units.count_noun(missing, 'mark')} not drawn: no place on such an axis"] if missing else []
    listed = "".join([f"<li>{safe(note)}</li>" for note in notes])
    found = numbers(chart)
    count = units.count_noun(len(found.rows), "row")
    if style.paper and len(found.rows) > ON_PAPER:
        table = f'<p class="muted">Its numbers are {count}: a report in HTML has them.</p>'
    else:
        table = (
            f'<details class="numbers"{" open" if style.paper else ""}><summary>Numbers ({count})</summary>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="Numbers: {label}">'
            f"{_draw_table(found, href)}</div></details>"
        )
    return Markup(
        f'<figure class="chart chart-{chart.kind}" id="{name}">'
        f'<figcaption><{h} id="{name}-title">{safe(chart.title)}</{h}>'
        f'<p id="{name}-about">{safe(chart.about)}</p>{f"""<ul class="chart-notes">{listed}</ul>""" if notes else ""}'
        "</figcaption>"
        f'<div class="drawing" tabindex="0" role="group" aria-label="{label}: {_KEYS}">{svg(chart)}</div>'
        f"{table}</figure>"
    )


def count_undrawn(chart: Chart) -> int:
    """Return the number of marks that are in the table and not in the picture."""
    return len(chart.marks()) - sum(len(kept.marks) for kept in select_marks(chart))


def _draw_table(found: Numbers, href: Callable[[str], str]) -> str:
    """Return a table, made without a template, which takes seconds for ten thousand rows."""
    heads = zip(found.head, found.words, strict=True)
    parts = ["<table><thead><tr>"]
    parts += [f'<th scope="col"{"" if words else _RIGHT}>{escape(head)}</th>' for head, words in heads]
    parts.append("</tr></thead><tbody>")
    open_cell = ["<td>" if words else '<td class="n">' for words in found.words]
    for cells, link in found.rows:
        first = escape(cells[0])
        address = href(link) if link else ""
        first = f'<a href="{safe(address)}">{first}</a>' if address else first
        parts.append(f'<tr><th scope="row">{first}</th>')
        parts += [f"{opened}{escape(cell)}</td>" for opened, cell in zip(open_cell[1:], cells[1:], strict=True)]
        parts.append("</tr>")
    parts.append("</tbody></table>")
    return "".join(parts)


# The numbers of a chart as a table of text, for readers who copy them or do not see the picture.

_DIGITS = 4
_FINE = 5
"""Digits of samples, which differ little from each other."""
_UNKNOWN = "unknown"


class NumberRow(NamedTuple):
    cells: tuple[str, ...]
    link: str
    """Key of the item that it is of, or empty."""


class Numbers(NamedTuple):
    head: tuple[str, ...]
    rows: list[NumberRow]
    """One for each mark: the number of a row is that of its mark in the picture."""
    words: tuple[bool, ...]
    """Which columns are words, not numbers."""


def numbers(chart: Chart) -> Numbers:
    """Return the table, with only those columns that say something. Names that go downwards are read first."""
    pairs = chart.marks()
    marks = [mark for _, mark in pairs]
    digits = _FINE if chart.kind == "samples" else _DIGITS
    columns: list[tuple[str, bool, list[str]]] = []
    if any(mark.label for mark in marks):
        columns.append(("of", True, [clean(mark.label or series.name) for series, mark in pairs]))
    if len(chart.series) > 1:
        columns.append(("series", True, [clean(series.name) for series, _ in pairs]))
    axes: list[tuple[Axis, list[float | None]]] = [(chart.x, [m.x for m in marks]), (chart.y, [m.y for m in marks])]
    if chart.kind in ("bars", "heatmap"):
        axes.reverse()
    if chart.values is not None:
        axes.append((chart.values, [mark.value for mark in marks]))
    for axis, values in axes:
        texts = [NO_NUMBER if value is None else format_exactly(value, axis, digits) for value in values]
        columns.append((clean(axis.title) or "value", axis.scale == "category", [clean(text) for text in texts]))
    axis = chart.x if chart.kind == "bars" else chart.y
    for head, ends in (("from", [mark.low for mark in marks]), ("to", [mark.high for mark in marks])):
        if any(end is not None or mark.unsure for end, mark in zip(ends, marks, strict=True)):
            both = zip(ends, marks, strict=True)
            texts = [_UNKNOWN if mark.unsure else format_exactly(end, axis, digits) for end, mark in both]
            columns.append((head, False, texts))
    if any(mark.note for mark in marks):
        columns.append(("note", True, [clean(mark.note) for mark in marks]))
    cells = zip(*(texts for _, _, texts in columns), strict=True)
    rows = [NumberRow(own, mark.link) for own, mark in zip(cells, marks, strict=True)]
    return Numbers(tuple(head for head, _, _ in columns), rows, tuple(words for _, words, _ in columns))


# Charts as an SVG file of its own: one below the other, on white, without external styles.

_WIDTH = 960.0
_MARGIN = 16.0
_TITLE, _LINE = 26.0, 17.0
_SMALL = 12.0
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_VALUE = re.compile(r"(--[\w-]+):\s*([^;]+)")
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_COLOUR = "--c"
"""Variable that a series sets for the colour of its marks."""


def standalone(charts: Sequence[Chart]) -> str:
    """Return an SVG of charts with their titles above and their notes below."""
    y, parts = _MARGIN, []
    for chart in charts:
        high, picture = _chart(chart, y)
        parts.append(picture)
        y += high + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {y:.0f}" width="{_WIDTH:.0f}"'
        f' height="{y:.0f}" class="chart" font-family="system-ui, sans-serif" font-size="12">'
        f"<style>{style()}</style>"
        f'<rect width="{_WIDTH:.0f}" height="{y:.0f}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _chart(chart: Chart, y: float) -> tuple[float, str]:
    """Return the height and the markup of a chart; the ids of its title and description are those that `svg` refers
    to."""
    name, picture = identifier(chart), svg(chart)
    found = re.match(r'<svg [^>]*viewBox="0 0 (\d+) (\d+)"', picture)
    if found is None:
        raise AssertionError("a picture without a size")
    wide = _WIDTH - 2 * _MARGIN
    high = wide * int(found[2]) / int(found[1])
    place = f'x="{_MARGIN:.0f}" y="{y + _TITLE:.0f}" width="{wide:.0f}" height="{high:.0f}"'
    placed = picture.replace("<svg ", f"<svg {place} ", 1)
    notes = [line for note in chart.notes for line in _wrap(note, wide)]
    below = [text(_MARGIN, y + _TITLE + high + _LINE * (k + 1), line) for k, line in enumerate(notes)]
    title = (
        f'<text id="{name}-title" x="{_MARGIN:.0f}" y="{y + 14:.0f}" font-size="15" font-weight="600">'
        f'{safe(chart.title)}</text><desc id="{name}-about">{safe(chart.about)}</desc>'
    )
    return _TITLE + high + _LINE * len(notes), f"<g>{title}{placed}{''.join(below)}</g>"


def _wrap(note: str, room: float) -> Iterator[str]:
    line = ""
    for word in clean(note).split():
        longer = f"{line} {word}" if line else word
        if line and width(longer, _SMALL) > room:
            yield line
            longer = word
        line = shorten(longer, room, _SMALL)
    yield line


def style() -> str:
    """Return the rules of `chart.css` for pictures in its light colours, with all variables replaced, because many
    programs that show SVG do not know variables."""
    sheet = re.sub(r"/\*.*?\*/", "", asset("chart.css"), flags=re.DOTALL)
    sheet = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet)
    rules = [(found[1].strip(), found[2].strip()) for found in _RULE.finditer(sheet)]
    values = dict(_VALUE.findall(next(body for selector, body in rules if selector == ":root")))
    own = {selector: body for selector, body in rules if body.startswith(f"{_COLOUR}:")}
    colours = {selector: _resolve(body.partition(":")[2].strip(" ;"), values) for selector, body in own.items()}
    found = [line for selector, body in rules for line in _expand_rule(selector, body, values, colours)]
    return "".join(dict.fromkeys(found))


def _expand_rule(selector: str, body: str, values: dict[str, str], colours: dict[str, str]) -> Iterator[str]:
    """Yield a rule with its variables replaced: one for each kind of series if it uses their colour, none if it is
    about the page around."""
    if selector.startswith((":root", "figure")) or ".chart-tip" in selector or body.startswith(f"{_COLOUR}:"):
        return
    if f"var({_COLOUR})" not in body:
        yield f"{selector}{{{_resolve(body, values)}}}"
        return
    for kind, colour in colours.items():
        one = selector.replace(".series", ".series" + kind.removeprefix(".series"), 1)
        yield f"{one}{{{_resolve(body, {**values, _COLOUR: colour})}}}"


def _resolve(body: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: values[found[1]], body)
