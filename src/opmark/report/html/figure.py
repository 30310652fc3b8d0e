"""A chart as a figure of a page: caption, picture, and its numbers as a table that folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from opmark import units
from opmark.report.drawing.draw import svg
from opmark.report.drawing.kinds.heatmap import identifier
from opmark.report.drawing.numbers import Numbers, numbers
from opmark.report.drawing.sound import left_out
from opmark.report.drawing.text import safe
from opmark.schema.chart import Chart

_RIGHT = ' class="n"'
_LEFT = "left out: "
"""Notes that begin so are one line."""
_KEYS = "arrow keys move from mark to mark, Enter follows its link, Escape hides what it says"


ON_PAPER = 40
"""Rows of numbers that are printed: more would be a book."""


class Shown(NamedTuple):
    """How a figure stands in a page."""

    level: int = 3
    """Level of its heading."""
    of: str = ""
    """What it is of, where a page has several of the same title."""
    paper: bool = False
    """Nobody can unfold its numbers."""


_USUAL = Shown()


def figure(chart: Chart, href: Callable[[str], str], shown: Shown = _USUAL) -> Markup:
    """`href`: the address of an item by its key. Everything that a chart says is escaped here or while it is drawn."""
    name, h = identifier(chart), f"h{shown.level}"
    called = safe(", ".join(filter(None, (chart.title, shown.of))))
    return Markup("".join([
        f'<figure class="chart chart-{chart.kind}" id="{name}">',
        f'<figcaption><{h} id="{name}-title">{safe(chart.title)}</{h}>',
        f'<p id="{name}-about">{safe(chart.about)}</p>{"".join(_notes(chart))}</figcaption>',
        f'<div class="drawing" tabindex="0" role="group" aria-label="{called}: {_KEYS}">{svg(chart)}</div>',
        *_numbers(called, numbers(chart), href, paper=shown.paper),
        "</figure>",
    ]))  # fmt: skip


def _notes(chart: Chart) -> Iterator[str]:
    missing = left_out(chart)
    said = [f"{units.counted(missing, 'mark')} not drawn: no place on such an axis"] if missing else []
    left = [note.removeprefix(_LEFT) for note in chart.notes if note.startswith(_LEFT)]
    others = [note for note in chart.notes if not note.startswith(_LEFT)]
    if notes := [*others, *([_LEFT + "; ".join(left)] if left else []), *said]:
        yield '<ul class="chart-notes">'
        yield from (f"<li>{safe(note)}</li>" for note in notes)
        yield "</ul>"


def _numbers(called: str, found: Numbers, href: Callable[[str], str], *, paper: bool) -> Iterator[str]:
    count = units.counted(len(found.rows), "row")
    if paper and len(found.rows) > ON_PAPER:
        yield f'<p class="muted">Its numbers are {count}: a report in HTML has them.</p>'
        return
    yield f'<details class="numbers"{" open" if paper else ""}><summary>Numbers ({count})</summary>'
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="Numbers: {called}">'
    yield from _table(found, href)
    yield "</div></details>"


def _table(found: Numbers, href: Callable[[str], str]) -> Iterator[str]:
    """By hand: a template takes seconds for ten thousand rows."""
    yield "<table><thead><tr>"
    open_cell = ["<td>" if words else '<td class="n">' for words in found.words]
    for head, words in zip(found.head, found.words, strict=True):
        yield f'<th scope="col"{"" if words else _RIGHT}>{escape(head)}</th>'
    yield "</tr></thead><tbody>"
    for cells, link in found.rows:
        first = escape(cells[0])
        address = href(link) if link else ""
        yield (
            f'<tr><th scope="row"><a href="{safe(address)}">{first}</a></th>'
            if address
            else (f'<tr><th scope="row">{first}</th>')
        )
        for opened, cell in zip(open_cell[1:], cells[1:], strict=True):
            yield f"{opened}{escape(cell)}</td>"
        yield "</tr>"
    yield "</tbody></table>"
