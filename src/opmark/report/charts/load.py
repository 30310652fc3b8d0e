"""Charts of cases under load: throughput and latency over the number of clients, and latency over the offered rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.load import LoadFigures
from opmark.analysis.rows import Row, RunView
from opmark.plugin.param import format_params
from opmark.plugin.registry import parameters_of, way_of
from opmark.report.charts.elements import address, end, name_few, positive, row_label, unique
from opmark.schema.case import Case, content_id
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.record import COUNTED
from opmark.stats.load import Estimate

MOST_SERIES = 12
"""Number of series that can be distinguished in a figure."""
_BATCH = "batch"
_TAIL = "p99"

_CLIENTS = Axis("clients", "count", "log2")
_RATE = Axis("requests per second, offered", "", "log")
_THROUGHPUT = Axis("samples per second", "", "log")
_LATENCY = Axis("latency of a request", "s", "log")


class _LoadPoint(NamedTuple):
    row: Row
    figures: LoadFigures
    place: float = 0.0
    """Its place on the axis: clients, or requests per second."""


class _LoadLine(NamedTuple):
    """Rows that differ only in the number of clients, or only in the offered rate."""

    name: str
    points: list[_LoadPoint]


def load(run_view: RunView) -> list[Chart]:
    """Return the figures of each model or operator under load; they need whole records, because percentiles are
    computed from samples."""
    found = [
        _LoadPoint(row, figures)
        for row in run_view.rows
        if row.load and row.status in COUNTED and row.records and (figures := row.load_figures)
    ]
    charts: list[Chart] = []
    for op in dict.fromkeys(point.row.op for point in found):
        own = [point for point in found if point.row.op == op]
        charts += _charts(op, own)
    return unique(charts)


def _charts(op: str, points: Sequence[_LoadPoint]) -> Iterator[Chart]:
    if scaling := _lines(points, "clients"):
        yield from _chart(
            op, "throughput over clients", scaling, _CLIENTS, _THROUGHPUT, lambda figures: figures.samples_per_second,
            "Samples per second of all clients together: it levels off where the model is busy all the time.",
        )  # fmt: skip
        yield from _chart(
            op, f"{_TAIL} over clients", scaling, _CLIENTS, _LATENCY, lambda figures: figures.percentiles[_TAIL],
            "Latency within which 99 % of the requests are answered: it grows where requests wait for each other.",
        )  # fmt: skip
    if offered := _lines([point for point in points if point.figures.load.rate], "rate"):
        about = "Latency, waiting included: it turns upwards where more requests are due than can be answered."
        yield from _chart(
            op, "p50 over offered rate", offered, _RATE, _LATENCY, lambda figures: figures.percentiles["p50"], about
        )
        yield from _chart(
            op, f"{_TAIL} over offered rate", offered, _RATE, _LATENCY, lambda figures: figures.percentiles[_TAIL],
            about,
        )  # fmt: skip


def _lines(points: Sequence[_LoadPoint], moving: Literal["clients", "rate"]) -> list[_LoadLine]:
    """Return lines with at least two places on the axis, one for each batch size and everything else that differs."""
    found: dict[str, list[_LoadPoint]] = {}
    for point in points:
        row, one = point.row, point.figures.load
        fixed = one.rate if moving == "clients" else one.clients
        how = [row.params, row.phase_text, row.backend, row.implementation, row.threads, one.arrival, fixed]
        found.setdefault(content_id(how), []).append(point._replace(place=float(getattr(one, moving))))
    groups = [sorted(group, key=lambda point: point.place) for group in found.values()]
    groups = [group for group in groups if len({point.place for point in group}) > 1]
    rest = [_rest(group[0].row) for group in groups]
    differ = len(set(rest)) > 1
    fixed_too = len({point.figures.load.text for group in groups for point in group[:1]}) > 1
    return [
        _LoadLine(_name(group[0], others if differ else "", moving if fixed_too else ""), group)
        for group, others in zip(groups, rest, strict=True)
    ]


def _rest(row: Row) -> str:
    """Return the parameters without the batch size."""
    params = {name: value for name, value in row.params.items() if name != _BATCH}
    return format_params(Case.of(row.op, params, row.phase), parameters_of(row.op))


def _name(point: _LoadPoint, rest: str, moving: str) -> str:
    """Return the name of a line; `moving` is the axis, if lines differ in the rest of their load."""
    row, one = point.row, point.figures.load
    arrival: str = "" if one.arrival == "closed" else one.arrival
    if moving == "clients" and one.rate:
        arrival += f" {one.rate:g}/s"
    if moving == "rate":
        arrival = f"{units.count_noun(one.clients, 'client')} {arrival}"
    place = f"{row.backend}{way_of(row.backend, row.implementation)} ×{row.threads}"
    return " ".join(filter(None, (f"batch {point.figures.batch}", rest, arrival, "on", place)))


def _chart(
    op: str, title: str, lines: Sequence[_LoadLine], x: Axis, y: Axis, pick: Callable[[LoadFigures], Estimate],
    about: str,
) -> Iterator[Chart]:  # fmt: skip
    """Yield the chart of one figure of each row; none if the samples support it nowhere."""
    series, refused = [], dict[str, int]()
    for line in lines:
        marks = []
        for point in line.points:
            one = pick(point.figures)
            if one.value is None:
                refused[one.reason] = refused.get(one.reason, 0) + 1
            elif positive(one.value):
                low, high = end(one.low), end(one.high)
                mark = Mark(point.place, one.value, row_label(point.row), link=point.row.key)
                note = ", ".join(point.row.cautions)
                marks.append(replace(mark, low=low if high else None, high=high if low else None, note=note))
        if marks:
            series.append(ChartSeries(line.name, tuple(marks), "band"))
    if not series:
        return
    notes = [f"left out: {units.count_noun(count, 'row')}: {reason}" for reason, count in refused.items()]
    if len(series) > MOST_SERIES:
        more = [one.name for one in series[MOST_SERIES:]]
        notes.append(f"left out: {len(more)} more series: {name_few(more)}")
    yield Chart(
        address("load", op, title), f"{op}: {title}", about, "plot", x, y, tuple(series[:MOST_SERIES]),
        notes=tuple(notes),
    )  # fmt: skip
