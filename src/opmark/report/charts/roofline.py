"""The roofline: operations a second over operations a byte, below what the chip can do at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.metrics import PeakShare, is_above
from opmark.analysis.rows import MachineFacts, Row, RunView
from opmark.plugin.param import short_bytes
from opmark.report.charts.elements import (
    LATENCY,
    LAUNCHED,
    NOWHERE,
    ChartHardware,
    Dot,
    Left,
    Ways,
    address,
    called,
    doubts,
    listed,
    phased,
    places,
    positive,
    rank,
    thinned,
    timed,
    unique,
    why_out,
)
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.machine import MEMORY, Level, Peaks
from opmark.schema.measurement import CACHES
from opmark.schema.tensor import DTYPES

MOST_DTYPES = 3
"""Element types in one picture; of more, those of one kind and width share one."""
MOST_SERIES = 8
"""Series that can be told apart; where there would be more, element types are not series of their own."""
MOST_DOTS = 3000
"""In one picture: more are slow to look at, and lie on each other."""

MOVES_ONLY = "with data to move and no arithmetic: the table and the figures over size tell the bandwidth"
UNCOUNTED = "whose floating-point operations nobody can count"
NO_BYTES = "without bytes to move, or nobody knows how many"
_X = Axis("operational intensity", "flop/B", "log")
_Y = Axis("floating-point operations a second", "flop/s", "log")
_ROOFLINE_ABOUT = (
    "Each dot is a case in one state of the caches. Under a slanted line memory or a cache is the limit, under a level "
    "one arithmetic; what lies between a dot and its line could be gained."
)
_DASHED = " Solid lines were measured, dashed ones are what the datasheet states."


@dataclass
class _RooflineGroup:
    """What ran in one place."""

    place: ChartHardware
    dots: list[Dot] = field(default_factory=list)
    left: Left = field(default_factory=Left)


def roofline(run_view: RunView) -> list[Chart]:
    """One a chip with its limits, or one a kind of element type where there are many."""
    where, groups = places(run_view), dict[str, _RooflineGroup]()
    for row in run_view.rows:
        place = where.get(row.environment, NOWHERE)
        group = groups.setdefault(place.key, _RooflineGroup(place))
        if reason := _why_not_in_roofline(row):
            group.left.out(reason)
        else:
            group.dots.extend(_dots(row, group.left))
    charts = [chart for group in groups.values() if group.dots for chart in _rooflines_of_place(group)]
    untold = [note for group in groups.values() if not group.dots for note in group.left.notes()]
    if charts and untold:  # of a place without a picture
        charts[0] = replace(charts[0], notes=(*charts[0].notes, *untold))
    return unique(charts)


def _why_not_in_roofline(row: Row) -> str:
    if reason := why_out(row):
        return reason
    if not row.flops:
        return UNCOUNTED if row.flops is None else MOVES_ONLY
    return "" if row.bytes else NO_BYTES


def _dots(row: Row, left: Left) -> Iterator[Dot]:
    """The headline in each state of the caches; the other quantities have the launch in them, or are no times."""
    first, moved, flops = row.headline, row.bytes or 1, row.flops or 0
    for timing in row.timings:
        if first is None or timing.quantity != first.quantity:
            continue
        if timed(timing) and timing.median:
            yield Dot(row, timing, flops / moved, flops / timing.median)
        else:
            left.out(f"without a median above 0 where caches are {timing.cache}")


def _rooflines_of_place(group: _RooflineGroup) -> Iterator[Chart]:
    kinds: dict[str, list[Dot]] = {}
    several = len({dot.row.dtype for dot in group.dots}) > MOST_DTYPES
    for dot in group.dots:
        kinds.setdefault(_kind(dot.row.dtype) if several else "", []).append(dot)
    for i, (kind, dots) in enumerate(kinds.items()):
        yield _roofline_chart(group.place, kind, dots, group.left.notes() if i == 0 else ())


def _kind(dtype: str) -> str:
    """Element types that have about the same ceiling."""
    known = DTYPES.get(dtype)
    if known is None:
        return dtype or "no element type"
    return {"float": f"{8 * known.size}-bit floats", "complex": "complex numbers"}.get(known.kind, "integers")


def _roofline_chart(place: ChartHardware, kind: str, dots: Sequence[Dot], notes: tuple[str, ...]) -> Chart:
    shown = thinned(dots, MOST_DOTS, lambda dot: dot.spot)
    dtypes = sorted({dot.row.dtype for dot in dots}, key=rank)
    lines = ceilings(place.machine, dtypes, [dot.intensity for dot in shown], warm=_any_warm(shown))
    hidden = len(dots) - len(shown)
    covered = f"left out: {units.count_noun(hidden, 'dot')} near others of their kind; choose operators to see all"
    return Chart(
        id=address("roofline", place.name, kind),
        title=f"Roofline of {place.name}" + (f", {kind}" if kind else ""),
        about=_ROOFLINE_ABOUT + (_DASHED if any(line.stated for line in lines) else ""),
        kind="plot",
        x=_X,
        y=_Y,
        series=(*lines, *_series(shown, dtypes)),
        notes=(*_launched(place, dots), *unknown(place, dtypes), *([covered] if hidden else []), *notes),
    )


def _launched(place: ChartHardware, dots: Sequence[Dot]) -> Iterator[str]:
    if place.device and any(dot.timing.quantity == LATENCY for dot in dots):
        yield LAUNCHED


def _any_warm(dots: Sequence[Dot]) -> bool:
    return any(dot.timing.cache == "warm" for dot in dots)


def _series(dots: Sequence[Dot], dtypes: Sequence[str]) -> Iterator[ChartSeries]:
    """By backend and quantity, the coldest first; by element type as well, while these can be told apart. The quantity
    is named where it is not the same for all."""
    found: dict[tuple[str, str, str, str], list[Mark]] = {}
    for dot in dots:
        key = (dot.row.backend, dot.timing.quantity, dot.timing.cache, dot.row.dtype)
        found.setdefault(key, []).append(_mark(dot))
    told = len({quantity for _, quantity, _, _ in found}) > 1
    apart = len(dtypes) > 1 and len(found) <= MOST_SERIES
    for backend, quantity in dict.fromkeys(key[:2] for key in found):
        for cache in CACHES:
            name = ", ".join([backend, *([quantity] if told else []), cache])
            own = {dtype: marks for dtype in dtypes if (marks := found.get((backend, quantity, cache, dtype)))}
            if apart:
                yield from (ChartSeries(f"{name}, {dtype}", tuple(marks)) for dtype, marks in own.items())
            elif own:
                yield ChartSeries(name, tuple(mark for marks in own.values() for mark in marks))


def _mark(dot: Dot) -> Mark:
    row, timing = dot.row, dot.timing
    said = [f"{timing.quantity} {units.seconds(timing.median or 0)}"]
    if timing is row.headline and (share := row.of_peak or row.of_datasheet):
        of = "measured" if row.of_peak else "datasheet's"
        said.append(f"{units.percent(share.share)} of the {of} peak ({share.bound})")
    said += filter(None, [doubts(timing)])
    return Mark(dot.intensity, dot.rate, called(row), link=row.key, note="; ".join(said))


# Ceilings of a roofline as lines: slanted what a level of memory can deliver, level what arithmetic can do.

DATASHEET = "datasheet"
_MARGIN = 2.0
"""Lines go on beyond what they are about by this factor."""


class _Known(NamedTuple):
    """What one source says that matters here."""

    source: str
    levels: tuple[tuple[str, float], ...]
    """Bandwidths by name, the fastest first."""
    flops: tuple[tuple[str, float], ...]
    """By element type; those that share a ceiling under one name."""

    @property
    def highest(self) -> float | None:
        return max((rate for _, rate in self.flops), default=None)

    def ridges(self) -> list[float]:
        """Intensities where a level gives way to the highest ceiling, the lowest of them first."""
        top = self.highest
        return sorted(top / bandwidth for _, bandwidth in self.levels) if top else []


def ceilings(
    known: MachineFacts, dtypes: Sequence[str], intensities: Sequence[float], *, warm: bool
) -> list[ChartSeries]:
    """Lines for the element types that occur. Caches bound nothing cold: they are drawn where something is warm."""
    found = [_known(source, peaks, dtypes, warm) for source, peaks in _sources(known)]
    span = [*intensities, *(ridge for one in found for ridge in one.ridges())]
    if not span:
        return []
    low, high = min(span) / _MARGIN, max(span) * _MARGIN
    return [series for one in found for series in (*_slanted(one, low, high), *_level(one, low, high))]


def unknown(place: ChartHardware, dtypes: Sequence[str]) -> Iterator[str]:
    """Which ceilings are missing, and how they are got."""
    measured, sheet = place.machine.measured, place.machine.datasheet
    if measured is None:
        also = "" if sheet else ", and there is no datasheet of it"
        yield f"no measured ceilings of {place.name}{also}: `opmark calibrate` measures them"
    for source, peaks in _sources(place.machine):
        lacking = [dtype for dtype in dtypes if dtype and not positive(peaks.flops.get(dtype))]
        if lacking:
            yield f"no {source} ceiling for {', '.join(lacking)}"


def _sources(known: MachineFacts) -> list[tuple[str, Peaks]]:
    both = (("measured", known.measured), (DATASHEET, known.datasheet))
    return [(source, peaks) for source, peaks in both if peaks is not None]


def _known(source: str, peaks: Peaks, dtypes: Sequence[str], warm: bool) -> _Known:
    levels = [(level.name, level.bandwidth) for level in peaks.levels if _matters(level, warm) and level.bandwidth]
    shared: dict[float, list[str]] = {}
    for dtype in dtypes:
        rate = peaks.flops.get(dtype)
        if rate is not None and positive(rate):
            shared.setdefault(rate, []).append(dtype)
    flops = tuple((", ".join(names), rate) for rate, names in shared.items())
    return _Known(source, tuple(sorted(levels, key=lambda level: -level[1])), flops)


def _matters(level: Level, warm: bool) -> bool:
    return positive(level.bandwidth) and (warm or level.name == MEMORY)


def _slanted(known: _Known, low: float, high: float) -> Iterator[ChartSeries]:
    """Each up to where the highest ceiling takes over."""
    for name, bandwidth in known.levels:
        end = known.highest / bandwidth if known.highest else high
        marks = (Mark(low, bandwidth * low), Mark(end, bandwidth * end, "ridge" if known.highest else ""))
        yield _line(f"{name} {units.rate(bandwidth, 'B/s')}", known, marks)


def _level(known: _Known, low: float, high: float) -> Iterator[ChartSeries]:
    """Each from where the fastest level reaches it."""
    for names, rate in known.flops:
        start = rate / known.levels[0][1] if known.levels else low
        marks = (Mark(start, rate, "ridge" if known.levels else ""), Mark(high, rate))
        yield _line(f"{names} {units.rate(rate, 'FLOP/s')}", known, marks)


def _line(name: str, known: _Known, marks: tuple[Mark, ...]) -> ChartSeries:
    return ChartSeries(f"{name} {known.source}", marks, "line", "ceiling", stated=known.source == DATASHEET)


# How much of the hardware is used, at a glance: operators against element types and against sizes.

MOST_ROWS = 40
"""Operators in one picture, those furthest from the peak; the others need attention least."""
MOST_PLACES = 6
"""Backends, with their chips, that get pictures: those with the most cases."""

NO_SHARE = "without a share: of the work or of the peak nothing is known"
_HEATMAP_ABOUT = (
    "Each cell is the median over its cases of the time that the chip would need at least over the time that it took, "
    "in {what}, by the {source} limits. Operators furthest from them come first."
)
_SMALLEST = 5
"""Sizes below 4 to this power are one class."""


class _Cell(NamedTuple):
    label: str
    row: Row
    share: float


class _HeatmapGroup(NamedTuple):
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


def _groups(run_view: RunView) -> list[_HeatmapGroup]:
    where, found = places(run_view), dict[tuple[str, str, int], tuple[ChartHardware, list[Row]]]()
    for row in run_view.rows:
        place = where.get(row.environment, NOWHERE)
        found.setdefault((row.backend, place.key, row.threads), (place, []))[1].append(row)
    ways, made = Ways(), list[_HeatmapGroup]()
    for (backend, key, threads), (place, rows) in found.items():
        several = sum((backend, key) == other[:2] for other in found) > 1
        title = f"{backend} on {place.name}" + (f" with {units.count_noun(threads, 'thread')}" if several else "")
        made += _heatmaps_of_place(title, place, rows, ways)
    if len({group.what for group in made}) > 1:
        return [group._replace(title=f"{group.title}, {group.what}") for group in made]
    return made


def _heatmaps_of_place(title: str, place: ChartHardware, rows: Sequence[Row], ways: Ways) -> Iterator[_HeatmapGroup]:
    """A group a quantity, as a latency is no device time; what is left out is told beneath the first. By what was
    measured of the chip, if it was: the two are not mixed in one picture."""
    by_measured = any(row.of_peak for row in rows)
    found, left = dict[str, list[_Cell]](), Left()
    for row in rows:
        share = row.of_peak if by_measured else row.of_datasheet
        if reason := _why_not_in_heatmap(row, share):
            left.out(reason)
        elif share is not None and row.headline:
            label = phased(row) + ways.name(row).removeprefix(row.backend)
            what = f"{row.headline.quantity}, {row.headline.cache}"
            found.setdefault(what, []).append(_Cell(label, row, share.share))
    notes = left.notes()
    for what, cells in found.items():
        launched = place.device and what.startswith(LATENCY)
        yield _HeatmapGroup(title, what, "measured" if by_measured else "datasheet's", cells,
                     (*([LAUNCHED] if launched else []), *notes))  # fmt: skip
        notes = ()


def _why_not_in_heatmap(row: Row, share: PeakShare | None) -> str:
    return why_out(row) or ("" if share is not None and positive(share.share) else NO_SHARE)


def _by_dtype(group: _HeatmapGroup) -> Iterator[Chart]:
    found = sorted({cell.row.dtype for cell in group.cells}, key=rank)
    if len(found) > 1:
        place = {dtype: i for i, dtype in enumerate(found)}
        names = tuple(dtype or "none" for dtype in found)
        axis = Axis("element type", "", "category", names)
        yield _heatmap_chart(group, "element type", axis, lambda row: place[row.dtype])


def _by_size(group: _HeatmapGroup) -> Iterator[Chart]:
    """By bytes moved, in classes four times as large each: parameters of operators cannot be compared."""
    classes = [_size_class(cell.row.bytes or 0) for cell in group.cells]
    first, last = min(classes), max(classes)
    names = tuple(_class_name(power) for power in range(first, last + 1))
    axis = Axis("bytes moved", "", "category", names)
    yield _heatmap_chart(group, "size", axis, lambda row: _size_class(row.bytes or 0) - first)


def _size_class(moved: int) -> int:
    """The power of 4 that it reaches; exact, which a logarithm is not."""
    return max(_SMALLEST - 1, (moved.bit_length() - 1) // 2)


def _class_name(power: int) -> str:
    if power < _SMALLEST:
        return f"below {short_bytes(4**_SMALLEST)}"
    return f"{short_bytes(4**power)}–{short_bytes(4 ** (power + 1))}"


def _heatmap_chart(group: _HeatmapGroup, by: str, across: Axis, column: Callable[[Row], int]) -> Chart:
    labels: dict[str, list[_Cell]] = {}
    for cell in group.cells:
        labels.setdefault(cell.label, []).append(cell)
    order = sorted(labels, key=lambda label: (median([cell.share for cell in labels[label]]), label))
    shown = order[:MOST_ROWS]
    marks = [mark for y, label in enumerate(shown) for mark in _marks(label, y, labels[label], across, column)]
    return Chart(
        id=address("heatmap", group.title, by),
        title=f"Share of the {group.source} peak by {by}: {group.title}",
        about=_HEATMAP_ABOUT.format(source=group.source, what=group.what),
        kind="heatmap",
        x=across,
        y=Axis("operator", "", "category", tuple(shown)),
        series=(ChartSeries(group.title, tuple(marks), "cells"),),
        values=Axis(f"share of the {group.source} peak", "share", "linear"),
        notes=(*_notes(labels, shown, group.source), *group.notes),
    )


def _notes(labels: dict[str, list[_Cell]], shown: Sequence[str], source: str) -> Iterator[str]:
    if more := len(labels) - len(shown):
        yield f"left out: {units.count_noun(more, 'operator')} nearer to the peak; choose operators to see them"
    above = sum(is_above(cell.share) for label in shown for cell in labels[label])
    if above:
        hint = ": `opmark calibrate` again, on a quiet machine" if source == "measured" else ""
        yield f"{units.count_noun(above, 'case')} above 100 %, which no chip can do{hint}"


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
