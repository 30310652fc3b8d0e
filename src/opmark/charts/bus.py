"""Communication over sizes: what goes over the busiest link a second, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opmark.analysis.rows import Row, RunView, Timing
from opmark.charts.common import unique
from opmark.charts.parts import address, called, end, measured, positive, spoilt
from opmark.metrics.bus import but_size, link_for
from opmark.registry import backend_or_none, parameters_of
from opmark.schema.case import Case, content_id
from opmark.schema.chart import Axis, Chart, Mark, Series
from opmark.schema.peaks import Interconnect
from opmark.schema.shown import shown
from opmark.units import counted, rate

_MOST = 12
"""Series that one figure can tell apart: if there are more, every operator gets a figure of its own."""

Made = Callable[[Row, Timing], Mark]


class _Line(NamedTuple):
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


def _lines(rows: Iterable[Row]) -> list[_Line]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_alike(row), []).append(row)
    return [_line(group) for group in found.values()]


def _alike(row: Row) -> str:
    first = row.headline
    how = (row.threads, row.mode, row.effort, first.quantity if first else "", first.cache if first else "")
    return content_id([row.op, but_size(row.params), row.phase, row.backend, row.implementation, *how])


def _line(group: list[Row]) -> _Line:
    first = group[0]
    phase = "" if first.phase == "forward" else first.phase
    parameters = shown(Case.of(first.op, but_size(first.params), "forward"), parameters_of(first.op))
    name = " ".join(filter(None, (first.op, parameters, phase, "on", first.where)))
    return _Line(name, sorted(group, key=lambda row: row.traffic or 0))


def _bandwidth(run_view: RunView, op: str, lines: Sequence[_Line]) -> Chart | None:
    """None where nothing crosses a link."""
    crossing = [_Line(name, kept) for name, rows in lines if (kept := [i for i in rows if positive(i.bus_bandwidth)])]
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
            *([f"{counted(alone, 'case')} left out: nothing crosses a link"] if alone else []),
        ),
    )


def _latency(op: str, lines: Sequence[_Line]) -> Chart | None:
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


def _drawn(lines: Sequence[_Line]) -> list[_Line]:
    """The lines with the most sizes, in the order of the run."""
    chosen = sorted(range(len(lines)), key=lambda i: -len(lines[i].rows))[:_MOST]
    return [lines[i] for i in sorted(chosen)]


def _not_drawn(lines: Sequence[_Line]) -> Iterator[str]:
    if len(lines) > _MOST:
        yield f"{len(lines) - _MOST} more series not drawn: those with most sizes are"


def _series(lines: Sequence[_Line], made: Made) -> Iterator[Series]:
    for line in lines:
        pairs = [(row, row.headline) for row in line.rows]
        yield Series(line.name, tuple(made(row, timing) for row, timing in pairs if timing), "band")


def _rate(row: Row, timing: Timing) -> Mark:
    """The interval is that of the time, turned round."""
    value, low, high = row.bus_bandwidth or 0.0, end(timing.low), end(timing.high)
    crossed = value * (timing.median or 0.0)
    ends = crossed / high if high else None, crossed / low if low else None
    return Mark(row.traffic or 0, value, called(row), *ends, link=row.key)


def _time(row: Row, timing: Timing) -> Mark:
    return Mark(row.traffic or 0, timing.median or 0.0, called(row), end(timing.low), end(timing.high), link=row.key)


def _ceilings(run_view: RunView, lines: Sequence[_Line]) -> Iterator[Series]:
    """One a link, as long as the sizes reach."""
    sizes = [row.traffic or 0 for line in lines for row in line.rows]
    links = {found[0].name: found for line in lines for row in line.rows if (found := _link(run_view, row))}
    for name, (link, stated) in links.items():
        peak = link.bandwidth or 0.0
        ends = tuple(Mark(size, peak, name) for size in sorted({min(sizes), max(sizes)}))
        yield Series(f"{name} peak {rate(peak, 'B/s')}", ends, "line", "ceiling", stated=stated)


def _link(run_view: RunView, row: Row) -> tuple[Interconnect, bool] | None:
    """That data takes, where somebody tells what it can carry, and whether a datasheet does. Processes of one host have
    none."""
    own, facts = backend_or_none(row.backend), run_view.environments.get(row.environment, {})
    device = facts.get("device") or (own.device if own else "")
    known = run_view.machines.get(row.environment)
    if known is None or row.link is None or device == "cpu":
        return None
    sources = ((known.datasheet, True), (known.measured, False))
    found = ((link_for(peaks, row.link), stated) for peaks, stated in sources if peaks)
    return next(((link, stated) for link, stated in found if link and positive(link.bandwidth)), None)
