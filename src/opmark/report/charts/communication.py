"""Charts of communication over sizes: bus bandwidth and time, as measured and as fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.bandwidth import but_size, link_for
from opmark.analysis.fits import Fit, FitPoint, Fitted, join_remarks, remarks
from opmark.analysis.rows import Row, RunView, Timing
from opmark.plugin.param import format_params
from opmark.plugin.registry import backend_or_none, parameters_of
from opmark.report.charts.elements import address, end, note_unusable, positive, row_label, unique, usable_headline
from opmark.schema.case import Case, content_id
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.machine import Interconnect
from opmark.units import count_noun, rate

_MOST = 12
"""Number of series that can be distinguished in a figure; with more, every operator gets a figure of its own."""

MarkMaker = Callable[[Row, Timing], Mark]


class _SizeLine(NamedTuple):
    """Rows that differ only in their size, by size."""

    name: str
    rows: list[Row]

    @property
    def op(self) -> str:
        return self.rows[0].op


def bus(run_view: RunView) -> list[Chart]:
    communicating = [row for row in run_view.rows if row.traffic is not None]
    lines = _lines(row for row in communicating if usable_headline(row) and row.seconds and positive(row.traffic))
    ops = list(dict.fromkeys(line.op for line in lines))
    parts = [("", lines)] if len(lines) <= _MOST else [(op, [line for line in lines if line.op == op]) for op in ops]
    found = (chart for op, some in parts for chart in (_bandwidth(run_view, op, some), _latency(op, some)))
    charts, notes = unique(chart for chart in found if chart), note_unusable(communicating)
    if charts and notes:
        charts[0] = replace(charts[0], notes=(*charts[0].notes, *notes))
    return charts


def _lines(rows: Iterable[Row]) -> list[_SizeLine]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        first = row.headline
        how = (row.threads, row.mode, row.effort, first.quantity if first else "", first.cache if first else "")
        key = content_id([row.op, but_size(row.params), row.phase, row.backend, row.implementation, *how])
        found.setdefault(key, []).append(row)
    lines = []
    several = len({row.headline.key for group in found.values() for row in group if row.headline}) > 1
    for group in found.values():
        one = group[0]
        phase = "" if one.phase == "forward" else one.phase
        parameters = format_params(Case.of(one.op, but_size(one.params), "forward"), parameters_of(one.op))
        what = f"{one.headline.quantity}, {one.headline.cache}" if several and one.headline else ""
        where = ", ".join(filter(None, (one.where, what)))
        name = " ".join(filter(None, (one.op, parameters, phase, "on", where)))
        lines.append(_SizeLine(name, sorted(group, key=lambda row: row.traffic or 0)))
    return lines


def _bandwidth(run_view: RunView, op: str, lines: Sequence[_SizeLine]) -> Chart | None:
    """Return the chart, or None if nothing crosses a link."""
    crossing = [
        _SizeLine(name, own) for name, rows in lines if (own := [row for row in rows if positive(row.bus_bandwidth)])
    ]
    alone = sum(len(line.rows) for line in lines) - sum(len(line.rows) for line in crossing)
    if not crossing:
        return None
    longest = _longest(crossing)
    return Chart(
        id=address("bus", op),
        title="Bus bandwidth over size" + (f": {op}" if op else ""),
        about="Bytes per second that the busiest link carries: comparable with its peak, whatever the number of ranks.",
        kind="plot",
        x=Axis("bytes of the whole buffer", "B", "log2"),
        y=Axis("bus bandwidth", "B/s", "log"),
        series=(*_series(longest, _rate), *_ceilings(run_view, longest)),
        notes=(
            *_not_drawn(crossing),
            *([f"{count_noun(alone, 'case')} left out: nothing crosses a link"] if alone else []),
        ),
    )


def _latency(op: str, lines: Sequence[_SizeLine]) -> Chart | None:
    if not lines:
        return None
    return Chart(
        id=address("bus-latency", op),
        title="Time of communication over size" + (f": {op}" if op else ""),
        about="Level on the left, where every message takes the same; rising where bandwidth is the limit.",
        kind="plot",
        x=Axis("bytes of the whole buffer", "B", "log2"),
        y=Axis("time of the slowest rank", "s", "log"),
        series=tuple(_series(_longest(lines), _time)),
        notes=tuple(_not_drawn(lines)),
    )


def _longest(lines: Sequence[_SizeLine]) -> list[_SizeLine]:
    """Return the lines with the most sizes, in the order of the run."""
    chosen = sorted(range(len(lines)), key=lambda i: -len(lines[i].rows))[:_MOST]
    return [lines[i] for i in sorted(chosen)]


def _not_drawn(lines: Sequence[_SizeLine]) -> Iterator[str]:
    if len(lines) > _MOST:
        yield f"{len(lines) - _MOST} more series not drawn: those with most sizes are"


def _series(lines: Sequence[_SizeLine], make: MarkMaker) -> Iterator[ChartSeries]:
    for line in lines:
        pairs = [(row, row.headline) for row in line.rows]
        yield ChartSeries(line.name, tuple(make(row, timing) for row, timing in pairs if timing), "band")


def _rate(row: Row, timing: Timing) -> Mark:
    """Return the bus bandwidth, with the interval of the time converted to rates."""
    value, low, high = row.bus_bandwidth or 0.0, end(timing.low), end(timing.high)
    crossed = value * (timing.median or 0.0)
    ends = crossed / high if high else None, crossed / low if low else None
    return Mark(row.traffic or 0, value, row_label(row), *ends, link=row.key)


def _time(row: Row, timing: Timing) -> Mark:
    return Mark(row.traffic or 0, timing.median or 0.0, row_label(row), end(timing.low), end(timing.high), link=row.key)


def _ceilings(run_view: RunView, lines: Sequence[_SizeLine]) -> Iterator[ChartSeries]:
    """Yield the peak of each link, over the range of sizes."""
    sizes = [row.traffic or 0 for line in lines for row in line.rows]
    links = {found[0].name: found for line in lines for row in line.rows if (found := _link(run_view, row))}
    for name, (link, stated) in links.items():
        peak = link.bandwidth or 0.0
        ends = tuple(Mark(size, peak, name) for size in sorted({min(sizes), max(sizes)}))
        yield ChartSeries(f"{name} peak {rate(peak, 'B/s')}", ends, "line", "ceiling", stated=stated)


def _link(run_view: RunView, row: Row) -> tuple[Interconnect, bool] | None:
    """Return the link that the data of a row crosses and whether its peak comes from a datasheet, or None if its
    peak is unknown. Ranks on CPUs of one host cross no link."""
    own, facts = backend_or_none(row.backend), run_view.environments.get(row.environment, {})
    device = facts.get("device") or (own.device if own else "")
    known = run_view.machines.get(row.environment)
    if known is None or row.link is None or device == "cpu":
        return None
    sources = ((known.datasheet, True), (known.measured, False))
    found = ((link_for(peaks, row.link), stated) for peaks, stated in sources if peaks)
    return next(((link, stated) for link, stated in found if link and positive(link.bandwidth)), None)


# Times and bus bandwidths over sizes with the fitted lines.

LINE = "alpha + size / algbw"
_STEPS = 64
"""Number of pieces of a curve."""
_BEYOND = 2.0
"""Factor beyond the measured values up to which a fitted line is drawn, so that the points keep their room."""
_SIZE = Axis("bytes of the whole buffer", "B", "log2")

PointValue = Callable[[FitPoint], float]


def fit_charts(fitted: Sequence[Fitted]) -> list[Chart]:
    """Return the chart of times of at least one series, and that of bandwidths if something crosses a link."""
    times = Chart(
        id="fit-time",
        title="time over size",
        about="Level on the left, where every message takes the same; rising where bandwidth is the limit.",
        kind="plot",
        x=_SIZE,
        y=Axis("time", "s", "log"),
        series=tuple(_fit_series(fitted, _seconds, lambda one, line, size: line.time(size))),
        notes=tuple(f"{one.name}: {join_remarks([*_formula(one.fit), *remarks(one)])}" for one in fitted),
    )
    moving = [one for one in fitted if any(point.bus for point in one.points)]
    if not moving:
        return [times]
    bandwidths = Chart(
        id="fit-bus",
        title="bus bandwidth over size",
        about="Bytes per second that the busiest link carries: comparable with its peak, whatever the number of ranks.",
        kind="plot",
        x=_SIZE,
        y=Axis("bus bandwidth", "B/s", "log"),
        series=tuple(
            _fit_series(moving, _fit_rate, lambda one, line, size: size * (one.factor or 0.0) / line.time(size))
        ),
    )
    return [times, bandwidths]


def _seconds(point: FitPoint) -> float:
    return point.seconds


def _fit_rate(point: FitPoint) -> float:
    return point.bus / point.seconds


def _fit_series(
    fitted: Sequence[Fitted], value_of: PointValue, line_at: Callable[[Fitted, Fit, float], float]
) -> Iterator[ChartSeries]:
    """Yield the points of each series, then the fitted lines, which share one name."""
    for one in fitted:
        yield ChartSeries(
            one.name, tuple(Mark(point.size, value_of(point)) for point in one.points if value_of(point) > 0)
        )
    values = [value_of(point) for one in fitted for point in one.points if value_of(point) > 0]
    low, high = min(values) / _BEYOND, max(values) * _BEYOND
    name = LINE
    for one in fitted:
        line = one.fit
        if line is None:
            continue
        found = [(size, line_at(one, line, size)) for size in _sizes(one) if line.time(size) > 0]
        yield ChartSeries(
            name, tuple(Mark(size, value) for size, value in found if low <= value <= high), "line", "guide"
        )
        name = ""


def _sizes(one: Fitted) -> list[float]:
    first, last = one.points[0].size, one.points[-1].size
    return [first * (last / first) ** (i / _STEPS) for i in range(_STEPS + 1)]


def _formula(line: Fit | None) -> Iterator[str]:
    """Yield the numbers of a fit that the sizes determine."""
    if line is None:
        return
    parts = [units.seconds(line.alpha)] if line.alpha is not None else []
    parts += [f"size / {units.rate(line.beta, 'B/s')}"] if line.beta else []
    off = f"off by up to {units.percent(line.worst)}"
    yield f"{' + '.join(parts)}, {off}" if parts else off
