"""Rooflines with their ceilings, and heatmaps of the share of the peak by element type and by size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.metrics import is_above
from opmark.analysis.rows import MachineFacts, Row, RunView
from opmark.plugin.param import short_bytes
from opmark.report.charts.elements import (
    LATENCY,
    LAUNCHED,
    NOWHERE,
    ChartHardware,
    Dot,
    LeftOutCounter,
    WayNames,
    address,
    doubts,
    dtype_order,
    hardware_by_environment,
    is_usable_time,
    name_few,
    operator_name,
    positive,
    row_label,
    thin_out,
    unique,
    why_left_out,
)
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.machine import MEMORY, Peaks
from opmark.schema.measurement import CACHES
from opmark.schema.tensor import DTYPES

MOST_DTYPES = 3
"""Number of element types in a chart; with more, each kind and width of element types gets a chart."""
MOST_SERIES = 8
"""Number of series that can be distinguished; with more, element types are not series of their own."""
MOST_DOTS = 3000
"""Number of dots in a chart; more would be slow to show, and lie on each other."""

MOVES_ONLY = "with data to move and no arithmetic: the table and the figures over size tell the bandwidth"
UNCOUNTED = "whose number of floating-point operations is unknown"
NO_BYTES = "without bytes to move, or with an unknown number"
_X = Axis("operational intensity", "flop/B", "log")
_Y = Axis("floating-point operations per second", "flop/s", "log")
_ROOFLINE_ABOUT = (
    "Each dot is a case in one state of the caches. Under a slanted line memory or a cache is the limit, under a level "
    "one arithmetic; what lies between a dot and its line could be gained."
)
_DASHED = " Solid lines were measured, dashed ones are what the datasheet states."


@dataclass
class _RooflineGroup:
    """The dots of one hardware, and the rows that are left out."""

    place: ChartHardware
    dots: list[Dot] = field(default_factory=list)
    left: LeftOutCounter = field(default_factory=LeftOutCounter)


def roofline(run_view: RunView) -> list[Chart]:
    """Return a chart for each chip and its limits; if there are many element types, one for each kind of them. A dot is
    the headline in one state of the caches; other quantities include the launch, or are no times."""
    where, groups = hardware_by_environment(run_view), dict[str, _RooflineGroup]()
    for row in run_view.rows:
        place = where.get(row.environment, NOWHERE)
        group = groups.setdefault(place.key, _RooflineGroup(place))
        reason = why_left_out(row)
        if not reason and not row.flops:
            reason = UNCOUNTED if row.flops is None else MOVES_ONLY
        if reason or not row.bytes or not row.flops:
            group.left.add(reason or NO_BYTES)
            continue
        for timing in row.timings:
            if timing.quantity != row.timings[0].quantity:
                continue
            if is_usable_time(timing) and timing.median:
                group.dots.append(Dot(row, timing, row.flops / row.bytes, row.flops / timing.median))
            else:
                group.left.add(f"without a median above 0 where caches are {timing.cache}")
    charts, remaining = [], list[str]()
    for group in groups.values():
        several = len({dot.row.dtype for dot in group.dots}) > MOST_DTYPES
        kinds: dict[str, list[Dot]] = {}
        for dot in group.dots:
            kinds.setdefault(_kind(dot.row.dtype) if several else "", []).append(dot)
        notes = group.left.notes()
        for kind, dots in kinds.items():
            charts.append(_roofline_chart(group.place, kind, dots, notes))
            notes = ()
        remaining += notes
    if charts and remaining:  # notes of hardware without a chart
        charts[0] = replace(charts[0], notes=(*charts[0].notes, *remaining))
    return unique(charts)


def _kind(dtype: str) -> str:
    """Return the kind of element types that have about the same ceiling."""
    known = DTYPES.get(dtype)
    if known is None:
        return dtype or "no element type"
    return {"float": f"{8 * known.size}-bit floats", "complex": "complex numbers"}.get(known.kind, "integers")


def _roofline_chart(place: ChartHardware, kind: str, dots: Sequence[Dot], notes: tuple[str, ...]) -> Chart:
    few_dots = thin_out(dots, MOST_DOTS, lambda dot: dot.spot)
    dtypes = sorted({dot.row.dtype for dot in dots}, key=dtype_order)
    warm = any(dot.timing.cache == "warm" for dot in few_dots)
    lines = ceilings(place.machine, dtypes, [dot.intensity for dot in few_dots], warm=warm)
    launched = place.device and any(dot.timing.quantity == LATENCY for dot in dots)
    hidden = len(dots) - len(few_dots)
    covered = f"left out: {units.count_noun(hidden, 'dot')} near others of their kind; choose operators to see all"
    return Chart(
        id=address("roofline", place.name, kind),
        title=f"Roofline of {place.name}" + (f", {kind}" if kind else ""),
        about=_ROOFLINE_ABOUT + (_DASHED if any(line.stated for line in lines) else ""),
        kind="plot",
        x=_X,
        y=_Y,
        series=(*lines, *_series(few_dots, dtypes)),
        notes=(
            *([LAUNCHED] if launched else []),
            *missing_ceilings(place, dtypes),
            *([covered] if hidden else []),
            *notes,
        ),
    )


def _series(dots: Sequence[Dot], dtypes: Sequence[str]) -> Iterator[ChartSeries]:
    """Yield series by backend, quantity and state of the caches, and by element type if there are few enough. Names
    have the quantity if it is not the same for all."""
    found: dict[tuple[str, str, str, str], list[Mark]] = {}
    for dot in dots:
        key = (dot.row.backend, dot.timing.quantity, dot.timing.cache, dot.row.dtype)
        found.setdefault(key, []).append(_mark(dot))
    several = len({quantity for _, quantity, _, _ in found}) > 1
    apart = len(dtypes) > 1 and len(found) <= MOST_SERIES
    for backend, quantity in dict.fromkeys(key[:2] for key in found):
        for cache in CACHES:
            name = ", ".join([backend, *([quantity] if several else []), cache])
            own = {dtype: marks for dtype in dtypes if (marks := found.get((backend, quantity, cache, dtype)))}
            if apart:
                yield from (ChartSeries(f"{name}, {dtype}", tuple(marks)) for dtype, marks in own.items())
            elif own:
                yield ChartSeries(name, tuple(mark for marks in own.values() for mark in marks))


def _mark(dot: Dot) -> Mark:
    row, timing = dot.row, dot.timing
    notes = [f"{timing.quantity} {units.seconds(timing.median or 0)}"]
    if timing is row.headline and (share := row.of_peak or row.of_datasheet):
        source = "measured" if row.of_peak else "datasheet's"
        notes.append(f"{units.percent(share.share)} of the {source} peak ({share.bound})")
    notes += filter(None, [doubts(timing)])
    return Mark(dot.intensity, dot.rate, row_label(row), link=row.key, note="; ".join(notes))


# Ceilings of a roofline: slanted lines for the bandwidth of memory levels, horizontal ones for arithmetic.

DATASHEET = "datasheet"
_MARGIN = 2.0
"""Factor by which lines extend beyond the dots and ridges."""


class _Ceilings(NamedTuple):
    """The ceilings that one source states."""

    source: str
    levels: tuple[tuple[str, float], ...]
    """Names and bandwidths, the fastest first."""
    flops: tuple[tuple[str, float], ...]
    """Names and rates of element types; those with the same rate have one entry."""

    @property
    def highest(self) -> float | None:
        return max((rate for _, rate in self.flops), default=None)

    def ridges(self) -> list[float]:
        """Return the intensities at which levels meet the highest ceiling, in ascending order."""
        top = self.highest
        return sorted(top / bandwidth for _, bandwidth in self.levels) if top else []


def ceilings(
    known: MachineFacts, dtypes: Sequence[str], intensities: Sequence[float], *, warm: bool
) -> list[ChartSeries]:
    """Return lines for the given element types. Those of caches are drawn only if some dots are warm."""
    found = [_read_ceilings(source, peaks, dtypes, warm) for source, peaks in _sources(known)]
    span = [*intensities, *(ridge for one in found for ridge in one.ridges())]
    if not span:
        return []
    low, high = min(span) / _MARGIN, max(span) * _MARGIN
    return [
        series for one in found for series in (*_bandwidth_lines(one, low, high), *_arithmetic_lines(one, low, high))
    ]


def missing_ceilings(place: ChartHardware, dtypes: Sequence[str]) -> Iterator[str]:
    """Yield notes on missing ceilings, and how to measure them."""
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


def _read_ceilings(source: str, peaks: Peaks, dtypes: Sequence[str], warm: bool) -> _Ceilings:
    levels = [
        (level.name, level.bandwidth)
        for level in peaks.levels
        if positive(level.bandwidth) and (warm or level.name == MEMORY)
    ]
    shared: dict[float, list[str]] = {}
    for dtype in dtypes:
        rate = peaks.flops.get(dtype)
        if rate is not None and positive(rate):
            shared.setdefault(rate, []).append(dtype)
    flops = tuple((", ".join(names), rate) for rate, names in shared.items())
    return _Ceilings(source, tuple(sorted(levels, key=lambda level: -level[1])), flops)


def _bandwidth_lines(known: _Ceilings, low: float, high: float) -> Iterator[ChartSeries]:
    """Yield the lines of memory levels, each up to the highest ceiling."""
    for name, bandwidth in known.levels:
        end = known.highest / bandwidth if known.highest else high
        marks = (Mark(low, bandwidth * low), Mark(end, bandwidth * end, "ridge" if known.highest else ""))
        yield _line(f"{name} {units.rate(bandwidth, 'B/s')}", known, marks)


def _arithmetic_lines(known: _Ceilings, low: float, high: float) -> Iterator[ChartSeries]:
    """Yield the lines of arithmetic, each from the point where the fastest level reaches it."""
    for names, rate in known.flops:
        start = rate / known.levels[0][1] if known.levels else low
        marks = (Mark(start, rate, "ridge" if known.levels else ""), Mark(high, rate))
        yield _line(f"{names} {units.rate(rate, 'FLOP/s')}", known, marks)


def _line(name: str, known: _Ceilings, marks: tuple[Mark, ...]) -> ChartSeries:
    return ChartSeries(f"{name} {known.source}", marks, "line", "ceiling", stated=known.source == DATASHEET)


# Heatmaps of the share of the peak: operators by element type and by size.

MOST_ROWS = 40
"""Number of operators in a chart: those furthest from the peak, which need attention most."""
MOST_PLACES = 6
"""Number of backends, with their chips, that get charts: those with the most cases."""

NO_SHARE = "without a share, because their work or the peak is unknown"
_HEATMAP_ABOUT = (
    "Each cell is the median over its cases of the time that the chip would need at least over the time that it took, "
    "in {what}, by the {source} limits. Operators furthest from them come first."
)
_SMALLEST = 5
"""Exponent of 4 below which sizes are one class."""


class _Cell(NamedTuple):
    label: str
    row: Row
    share: float


class _HeatmapGroup(NamedTuple):
    """The cells of one backend and quantity, on one hardware with one number of threads."""

    title: str
    what: str
    """The quantity and the state of the caches."""
    source: str
    cells: list[_Cell]
    notes: tuple[str, ...]


def heatmap(run_view: RunView) -> list[Chart]:
    groups = sorted(_groups(run_view), key=lambda group: -len(group.cells))
    found = (chart for group in groups[:MOST_PLACES] for chart in (*_by_dtype(group), *_by_size(group)))
    charts = [chart for chart in found if len(chart.series[0].marks) > 1]  # the table has the number of a single cell
    if charts and (more := [group.title for group in groups[MOST_PLACES:]]):
        charts[0] = replace(charts[0], notes=(*charts[0].notes, f"left out: {name_few(more)}, which have fewer cases"))
    return unique(charts)


def _groups(run_view: RunView) -> list[_HeatmapGroup]:
    where, found = hardware_by_environment(run_view), dict[tuple[str, str, int], tuple[ChartHardware, list[Row]]]()
    for row in run_view.rows:
        place = where.get(row.environment, NOWHERE)
        found.setdefault((row.backend, place.key, row.threads), (place, []))[1].append(row)
    ways, made = WayNames(), list[_HeatmapGroup]()
    for (backend, key, threads), (place, rows) in found.items():
        several = sum((backend, key) == other[:2] for other in found) > 1
        title = f"{backend} on {place.name}" + (f" with {units.count_noun(threads, 'thread')}" if several else "")
        made += _heatmaps_of_place(title, place, rows, ways)
    if len({group.what for group in made}) > 1:
        return [group._replace(title=f"{group.title}, {group.what}") for group in made]
    return made


def _heatmaps_of_place(
    title: str, place: ChartHardware, rows: Sequence[Row], ways: WayNames
) -> Iterator[_HeatmapGroup]:
    """Yield a group for each quantity, because latency and device time are not comparable. Shares are of the measured
    peaks if there are any, else of the datasheet. The first group has the notes on rows that are left out."""
    by_measured = any(row.of_peak for row in rows)
    found, left = dict[str, list[_Cell]](), LeftOutCounter()
    for row in rows:
        share = row.of_peak if by_measured else row.of_datasheet
        if reason := why_left_out(row):
            left.add(reason)
        elif share is None or not positive(share.share):
            left.add(NO_SHARE)
        elif row.headline:
            label = operator_name(row) + ways.name(row).removeprefix(row.backend)
            what = f"{row.headline.quantity}, {row.headline.cache}"
            found.setdefault(what, []).append(_Cell(label, row, share.share))
    notes = left.notes()
    for what, cells in found.items():
        launched = place.device and what.startswith(LATENCY)
        yield _HeatmapGroup(title, what, "measured" if by_measured else "datasheet's", cells,
                     (*([LAUNCHED] if launched else []), *notes))  # fmt: skip
        notes = ()


def _by_dtype(group: _HeatmapGroup) -> Iterator[Chart]:
    found = sorted({cell.row.dtype for cell in group.cells}, key=dtype_order)
    if len(found) > 1:
        place = {dtype: i for i, dtype in enumerate(found)}
        names = tuple(dtype or "none" for dtype in found)
        axis = Axis("element type", "", "category", names)
        yield _heatmap_chart(group, "element type", axis, lambda row: place[row.dtype])


def _by_size(group: _HeatmapGroup) -> Iterator[Chart]:
    """Yield a chart by bytes moved, in classes of a factor of four; parameters of different operators are not
    comparable."""
    classes = [_size_class(cell.row.bytes or 0) for cell in group.cells]
    first, last = min(classes), max(classes)
    names = tuple(_class_name(power) for power in range(first, last + 1))
    axis = Axis("bytes moved", "", "category", names)
    yield _heatmap_chart(group, "size", axis, lambda row: _size_class(row.bytes or 0) - first)


def _size_class(moved: int) -> int:
    """Return the largest power of 4 that is not above the size, exactly, unlike a logarithm."""
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
    rows = order[:MOST_ROWS]
    marks = [mark for y, label in enumerate(rows) for mark in _marks(label, y, labels[label], across, column)]
    return Chart(
        id=address("heatmap", group.title, by),
        title=f"Share of the {group.source} peak by {by}: {group.title}",
        about=_HEATMAP_ABOUT.format(source=group.source, what=group.what),
        kind="heatmap",
        x=across,
        y=Axis("operator", "", "category", tuple(rows)),
        series=(ChartSeries(group.title, tuple(marks), "cells"),),
        values=Axis(f"share of the {group.source} peak", "share", "linear"),
        notes=(*_notes(labels, rows, group.source), *group.notes),
    )


def _notes(labels: dict[str, list[_Cell]], rows: Sequence[str], source: str) -> Iterator[str]:
    if more := len(labels) - len(rows):
        yield f"left out: {units.count_noun(more, 'operator')} nearer to the peak; choose operators to see them"
    above = sum(is_above(cell.share) for label in rows for cell in labels[label])
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
