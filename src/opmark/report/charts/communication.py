"""Communication over sizes: what goes over the busiest link a second, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.bandwidth import but_size, link_for
from opmark.analysis.fits import Fit, FitPoint, Fitted, remarks, said
from opmark.analysis.rows import Row, RunView, Timing
from opmark.plugin.param import format_params
from opmark.plugin.registry import backend_or_none, parameters_of
from opmark.report.charts.elements import address, called, end, measured, positive, spoilt, unique
from opmark.schema.case import Case, content_id
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.machine import Interconnect
from opmark.units import count_noun, rate

_MOST = 12
"""Series that one figure can tell apart: if there are more, every operator gets a figure of its own."""

Made = Callable[[Row, Timing], Mark]


class _SizeLine(NamedTuple):
    """Items that differ only in their size, by size."""

    name: str
    rows: list[Row]

    @property
    def op(self) -> str:
        return self.rows[0].op


def bus(run_view: RunView) -> list[Chart]:
    communicating = [row for row in run_view.rows if row.traffic is not None]
    lines = _lines(row for row in communicating if measured(row) and row.seconds and positive(row.traffic))
    ops = list(dict.fromkeys(line.op for line in lines))
    parts = [("", lines)] if len(lines) <= _MOST else [(op, [line for line in lines if line.op == op]) for op in ops]
    charts = (chart for op, some in parts for chart in (_bandwidth(run_view, op, some), _latency(op, some)))
    return _with_notes(unique(chart for chart in charts if chart), spoilt(communicating))


def _with_notes(charts: list[Chart], notes: list[str]) -> list[Chart]:
    """On the first of them: said once."""
    if not charts or not notes:
        return charts
    return [replace(charts[0], notes=(*charts[0].notes, *notes)), *charts[1:]]


def _lines(rows: Iterable[Row]) -> list[_SizeLine]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_alike(row), []).append(row)
    return [_line(group) for group in found.values()]


def _alike(row: Row) -> str:
    first = row.headline
    how = (row.threads, row.mode, row.effort, first.quantity if first else "", first.cache if first else "")
    return content_id([row.op, but_size(row.params), row.phase, row.backend, row.implementation, *how])


def _line(group: list[Row]) -> _SizeLine:
    first = group[0]
    phase = "" if first.phase == "forward" else first.phase
    parameters = format_params(Case.of(first.op, but_size(first.params), "forward"), parameters_of(first.op))
    name = " ".join(filter(None, (first.op, parameters, phase, "on", first.where)))
    return _SizeLine(name, sorted(group, key=lambda row: row.traffic or 0))


def _bandwidth(run_view: RunView, op: str, lines: Sequence[_SizeLine]) -> Chart | None:
    """None where nothing crosses a link."""
    crossing = [
        _SizeLine(name, kept) for name, rows in lines if (kept := [i for i in rows if positive(i.bus_bandwidth)])
    ]
    alone = sum(len(line.rows) for line in lines) - sum(len(line.rows) for line in crossing)
    if not crossing:
        return None
    drawn = _drawn(crossing)
    return Chart(
        id=address("bus", op),
        title="Bus bandwidth over size" + (f": {op}" if op else ""),
        about="Bytes a second that the busiest link carries: comparable with its peak, whatever the number of ranks.",
        kind="plot",
        x=Axis("bytes of the whole buffer", "B", "log2"),
        y=Axis("bus bandwidth", "B/s", "log"),
        series=(*_series(drawn, _rate), *_ceilings(run_view, drawn)),
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
        series=tuple(_series(_drawn(lines), _time)),
        notes=tuple(_not_drawn(lines)),
    )


def _drawn(lines: Sequence[_SizeLine]) -> list[_SizeLine]:
    """The lines with the most sizes, in the order of the run."""
    chosen = sorted(range(len(lines)), key=lambda i: -len(lines[i].rows))[:_MOST]
    return [lines[i] for i in sorted(chosen)]


def _not_drawn(lines: Sequence[_SizeLine]) -> Iterator[str]:
    if len(lines) > _MOST:
        yield f"{len(lines) - _MOST} more series not drawn: those with most sizes are"


def _series(lines: Sequence[_SizeLine], made: Made) -> Iterator[ChartSeries]:
    for line in lines:
        pairs = [(row, row.headline) for row in line.rows]
        yield ChartSeries(line.name, tuple(made(row, timing) for row, timing in pairs if timing), "band")


def _rate(row: Row, timing: Timing) -> Mark:
    """The interval is that of the time, turned round."""
    value, low, high = row.bus_bandwidth or 0.0, end(timing.low), end(timing.high)
    crossed = value * (timing.median or 0.0)
    ends = crossed / high if high else None, crossed / low if low else None
    return Mark(row.traffic or 0, value, called(row), *ends, link=row.key)


def _time(row: Row, timing: Timing) -> Mark:
    return Mark(row.traffic or 0, timing.median or 0.0, called(row), end(timing.low), end(timing.high), link=row.key)


def _ceilings(run_view: RunView, lines: Sequence[_SizeLine]) -> Iterator[ChartSeries]:
    """One a link, as long as the sizes reach."""
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


# Fits as charts: times and bus bandwidths over sizes, with the fitted lines.

LINE = "alpha + size / algbw"
_STEPS = 64
"""Pieces of a curve."""
_BEYOND = 2.0
"""A line that leaves what was measured by more than this factor is not followed: the points would lose their room."""
_SIZE = Axis("bytes of the whole buffer", "B", "log2")

Told = Callable[[FitPoint], float]


def fit_charts(fitted: Sequence[Fitted]) -> list[Chart]:
    """Charts of at least one series. There is none of bandwidth where nothing crosses a link."""
    times = Chart(
        id="fit-time",
        title="time over size",
        about="Level on the left, where every message takes the same; rising where bandwidth is the limit.",
        kind="plot",
        x=_SIZE,
        y=Axis("time", "s", "log"),
        series=tuple(_fit_series(fitted, _seconds, lambda one, line, size: line.time(size))),
        notes=tuple(f"{one.name}: {said([*_formula(one.fit), *remarks(one)])}" for one in fitted),
    )
    moving = [one for one in fitted if any(point.bus for point in one.points)]
    if not moving:
        return [times]
    bandwidths = Chart(
        id="fit-bus",
        title="bus bandwidth over size",
        about="Bytes a second that the busiest link carries: comparable with its peak, whatever the number of ranks.",
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
    fitted: Sequence[Fitted], told: Told, line_at: Callable[[Fitted, Fit, float], float]
) -> Iterator[ChartSeries]:
    """Points of each, then the lines: these share one name."""
    for one in fitted:
        yield ChartSeries(one.name, tuple(Mark(point.size, told(point)) for point in one.points if told(point) > 0))
    values = [told(point) for one in fitted for point in one.points if told(point) > 0]
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
    """The numbers that the sizes can tell."""
    if line is None:
        return
    parts = [units.seconds(line.alpha)] if line.alpha is not None else []
    parts += [f"size / {units.rate(line.beta, 'B/s')}"] if line.beta else []
    off = f"off by up to {units.percent(line.worst)}"
    yield f"{' + '.join(parts)}, {off}" if parts else off
