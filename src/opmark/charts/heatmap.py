"""How much of the hardware is used, at a glance: operators against element types and against sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.rows import Row, RunView
from opmark.charts.common import LATENCY, LAUNCHED, NOWHERE, Left, Place, Ways, phased, places, rank, unique, why_out
from opmark.charts.parts import address, listed, positive
from opmark.metrics.doubts import is_above
from opmark.metrics.roofline import Attained
from opmark.schema.chart import Axis, Chart, Mark, Series
from opmark.schema.shown import short_bytes
from opmark.stats import median

MOST_ROWS = 40
"""Operators in one picture, those furthest from the peak; the others need attention least."""
MOST_PLACES = 6
"""Backends, with their chips, that get pictures: those with the most cases."""

NO_SHARE = "without a share: of the work or of the peak nothing is known"
_ABOUT = (
    "Each cell is the median over its cases of the time that the chip would need at least over the time that it took, "
    "in {what}, by the {source} limits. Operators furthest from them come first."
)
_SMALLEST = 5
"""Sizes below 4 to this power are one class."""


class _Cell(NamedTuple):
    label: str
    row: Row
    share: float


class _Group(NamedTuple):
    """What one backend measured of one quantity, in one place with one number of threads."""

    title: str
    what: str
    """The quantity and the state of the caches."""
    source: str
    cells: list[_Cell]
    notes: tuple[str, ...]


def heatmap(run_view: RunView) -> list[Chart]:
    groups = sorted(_groups(run_view), key=lambda group: -len(group.cells))
    found = (chart for group in groups[:MOST_PLACES] for chart in (*_by_dtype(group), *_by_size(group)))
    charts = [chart for chart in found if len(chart.series[0].marks) > 1]  # a single cell is a number, and in the table
    if charts and (more := [group.title for group in groups[MOST_PLACES:]]):
        charts[0] = replace(charts[0], notes=(*charts[0].notes, f"left out: {listed(more)}, which have fewer cases"))
    return unique(charts)


def _groups(run_view: RunView) -> list[_Group]:
    where, found = places(run_view), dict[tuple[str, str, int], tuple[Place, list[Row]]]()
    for row in run_view.rows:
        place = where.get(row.environment, NOWHERE)
        found.setdefault((row.backend, place.key, row.threads), (place, []))[1].append(row)
    ways, made = Ways(), list[_Group]()
    for (backend, key, threads), (place, rows) in found.items():
        several = sum((backend, key) == other[:2] for other in found) > 1
        title = f"{backend} on {place.name}" + (f" with {units.counted(threads, 'thread')}" if several else "")
        made += _of_place(title, place, rows, ways)
    if len({group.what for group in made}) > 1:
        return [group._replace(title=f"{group.title}, {group.what}") for group in made]
    return made


def _of_place(title: str, place: Place, rows: Sequence[Row], ways: Ways) -> Iterator[_Group]:
    """A group a quantity, as a latency is no device time; what is left out is told beneath the first. By what was
    measured of the chip, if it was: the two are not mixed in one picture."""
    by_measured = any(row.of_peak for row in rows)
    found, left = dict[str, list[_Cell]](), Left()
    for row in rows:
        share = row.of_peak if by_measured else row.of_datasheet
        if reason := _why_out(row, share):
            left.out(reason)
        elif share is not None and row.headline:
            label = phased(row) + ways.name(row).removeprefix(row.backend)
            what = f"{row.headline.quantity}, {row.headline.cache}"
            found.setdefault(what, []).append(_Cell(label, row, share.share))
    notes = left.notes()
    for what, cells in found.items():
        launched = place.device and what.startswith(LATENCY)
        yield _Group(title, what, "measured" if by_measured else "datasheet's", cells,
                     (*([LAUNCHED] if launched else []), *notes))  # fmt: skip
        notes = ()


def _why_out(row: Row, share: Attained | None) -> str:
    return why_out(row) or ("" if share is not None and positive(share.share) else NO_SHARE)


def _by_dtype(group: _Group) -> Iterator[Chart]:
    found = sorted({cell.row.dtype for cell in group.cells}, key=rank)
    if len(found) > 1:
        place = {dtype: i for i, dtype in enumerate(found)}
        names = tuple(dtype or "none" for dtype in found)
        axis = Axis("element type", "", "category", names)
        yield _chart(group, "element type", axis, lambda row: place[row.dtype])


def _by_size(group: _Group) -> Iterator[Chart]:
    """By bytes moved, in classes four times as large each: parameters of operators cannot be compared."""
    classes = [_size_class(cell.row.bytes or 0) for cell in group.cells]
    first, last = min(classes), max(classes)
    names = tuple(_class_name(power) for power in range(first, last + 1))
    axis = Axis("bytes moved", "", "category", names)
    yield _chart(group, "size", axis, lambda row: _size_class(row.bytes or 0) - first)


def _size_class(moved: int) -> int:
    """The power of 4 that it reaches; exact, which a logarithm is not."""
    return max(_SMALLEST - 1, (moved.bit_length() - 1) // 2)


def _class_name(power: int) -> str:
    if power < _SMALLEST:
        return f"below {short_bytes(4**_SMALLEST)}"
    return f"{short_bytes(4**power)}–{short_bytes(4 ** (power + 1))}"


def _chart(group: _Group, by: str, across: Axis, column: Callable[[Row], int]) -> Chart:
    labels: dict[str, list[_Cell]] = {}
    for cell in group.cells:
        labels.setdefault(cell.label, []).append(cell)
    order = sorted(labels, key=lambda label: (median([cell.share for cell in labels[label]]), label))
    shown = order[:MOST_ROWS]
    marks = [mark for y, label in enumerate(shown) for mark in _marks(label, y, labels[label], across, column)]
    return Chart(
        id=address("heatmap", group.title, by),
        title=f"Share of the {group.source} peak by {by}: {group.title}",
        about=_ABOUT.format(source=group.source, what=group.what),
        kind="heatmap",
        x=across,
        y=Axis("operator", "", "category", tuple(shown)),
        series=(Series(group.title, tuple(marks), "cells"),),
        values=Axis(f"share of the {group.source} peak", "share", "linear"),
        notes=(*_notes(labels, shown, group.source), *group.notes),
    )


def _notes(labels: dict[str, list[_Cell]], shown: Sequence[str], source: str) -> Iterator[str]:
    if more := len(labels) - len(shown):
        yield f"left out: {units.counted(more, 'operator')} nearer to the peak; choose operators to see them"
    above = sum(is_above(cell.share) for label in shown for cell in labels[label])
    if above:
        hint = ": `opmark calibrate` again, on a quiet machine" if source == "measured" else ""
        yield f"{units.counted(above, 'case')} above 100 %, which no chip can do{hint}"


def _marks(label: str, y: int, cells: Sequence[_Cell], across: Axis, column: Callable[[Row], int]) -> Iterator[Mark]:
    columns: dict[int, list[_Cell]] = {}
    for cell in cells:
        columns.setdefault(column(cell.row), []).append(cell)
    for x, own in sorted(columns.items()):
        shares = [cell.share for cell in own]
        alone = len(own) == 1
        reach = "" if alone else f"from {units.percent(min(shares))} to {units.percent(max(shares))}"
        name = f"{label}, {across.names[x]}: {own[0].row.name if alone else f'median of {len(own)} cases'}"
        yield Mark(x, y, name, value=median(shares), link=own[0].row.key if alone else "", note=reach)
