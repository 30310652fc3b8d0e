"""Charts of the launch overhead, against device time or against the smallest call, and of peak memory."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.analysis.rows import Row, RunView, Timing
from opmark.report.charts.elements import (
    NOWHERE,
    by_backend,
    diagonal,
    end,
    hardware_by_environment,
    is_usable,
    limit_dots,
    name_few,
    note_unusable,
    positive,
    row_label,
    usable_headline,
)
from opmark.schema.chart import Axis, Chart, Mark, ReferenceLine
from opmark.schema.record import COUNTED, MEASURED
from opmark.units import count_noun, seconds, significant

_BOUND = "launch-bound"
_NEAR = 2
"""A case below this number of times the smallest call is mostly the cost of the call."""


def overhead(run_view: RunView) -> list[Chart]:
    fine = [row for row in run_view.rows if row.status in COUNTED]
    found = (_against_device(fine), _against_smallest(run_view, fine))
    return [chart for chart in found if chart is not None]


def _against_device(rows: Sequence[Row]) -> Chart | None:
    pairs = [
        (row, _overhead_dot(row, device, host)) for row in rows if (device := _device(row)) and (host := _host(row))
    ]
    if not pairs:
        return None
    dots, hidden = limit_dots(pairs)
    series = by_backend(dots)
    bound = sum(bool(mark.note) for _, mark in pairs)
    lone = sum(_device(row) is not None and _host(row) is None for row in rows)
    return Chart(
        id="overhead",
        title="Launch overhead against device time",
        about="A dot above the line is launch-bound: the host takes longer to launch it than the device to do it.",
        kind="plot",
        x=Axis("device time", "s", "log"),
        y=Axis("host time until the call returns", "s", "log"),
        series=(*series, diagonal(series, "launch takes as long as the device works")),
        notes=(
            f"{bound} of {count_noun(len(pairs), 'case')} launch-bound",
            *([f"{count_noun(lone, 'case')} left out: no usable host time"] if lone else []),
            *hidden,
        ),
    )


def _device(row: Row) -> Timing | None:
    return _usable_timing(row, "device_time")


def _host(row: Row) -> Timing | None:
    return _usable_timing(row, "host_time")


def _usable_timing(row: Row, quantity: str) -> Timing | None:
    """Return the warm timing if there is one, because launches are measured warm."""
    found = row.timing(quantity, "warm") or row.timing(quantity)
    return found if is_usable(found) else None


def _overhead_dot(row: Row, device: Timing, host: Timing) -> Mark:
    x, y = device.median or 0.0, host.median or 0.0
    return Mark(x, y, row_label(row), end(host.low), end(host.high), link=row.key, note=_BOUND if y > x else "")


def _against_smallest(run_view: RunView, rows: Sequence[Row]) -> Chart | None:
    """Return the chart of rows without device time: latency over bytes, with the smallest call of each backend."""
    lone = [row for row in rows if row.timing("device_time") is None]
    hosts = [row for row in lone if _smallest(run_view, row)]
    others = list(dict.fromkeys(row.backend for row in lone if _latency(row) and not _smallest(run_view, row)))
    pairs = [(row, _call(row, latency, _smallest(run_view, row) or 0)) for row in hosts
             if positive(row.bytes) and (latency := _latency(row))]  # fmt: skip
    if not pairs:
        return None
    calls = {(row.backend, _chip(run_view, row), _smallest(run_view, row) or 0) for row, _ in pairs}
    dots, hidden = limit_dots(pairs)
    near = sum(bool(mark.note) for _, mark in pairs)
    unsized = sum(usable_headline(row) is not None and not positive(row.bytes) for row in hosts)
    return Chart(
        id="overhead-host",
        title="Latency against the smallest call",
        about="Near the line a case is mostly the cost of calling at all, and a faster kernel would not help.",
        kind="plot",
        x=Axis("bytes moved at least", "B", "log2"),
        y=Axis("latency", "s", "log"),
        series=by_backend(dots),
        rules=tuple(
            ReferenceLine("y", launch, f"smallest call of {backend} on {chip}: {seconds(launch)}")
            for backend, chip, launch in sorted(calls)
        ),
        notes=(
            f"{near} of {count_noun(len(pairs), 'case')} within {_NEAR} times the smallest call",
            *(
                [f"{count_noun(unsized, 'case')} left out: the number of bytes that they move is unknown"]
                if unsized
                else []
            ),
            *([f"left out: {name_few(others)}, whose smallest call was not measured"] if others else []),
            *note_unusable(hosts),
            *hidden,
        ),
    )


def _smallest(run_view: RunView, row: Row) -> float | None:
    """Return the smallest call as `calibrate` measured it with the same backend; other frameworks have other costs."""
    known = run_view.machines.get(row.environment)
    own = known and known.measured and known.measured.backend == row.backend
    return end(known.measured.launch.get("latency")) if known and known.measured and own else None


def _chip(run_view: RunView, row: Row) -> str:
    known = run_view.machines[row.environment].measured
    return known.chip if known else ""


def _latency(row: Row) -> Timing | None:
    first = usable_headline(row)
    return first if first and first.quantity == "latency" else _usable_timing(row, "latency")


def _call(row: Row, latency: Timing, smallest: float) -> Mark:
    value = latency.median or 0.0
    note = _BOUND if value < _NEAR * smallest else ""
    return Mark(row.bytes or 0, value, row_label(row), end(latency.low), end(latency.high), link=row.key, note=note)


# Peak memory against the size of the data.

_MUCH = 2
"""Cases that take more than this number of times their data are named."""


def memory(run_view: RunView) -> list[Chart]:
    where = hardware_by_environment(run_view)
    counted = [row for row in run_view.rows if row.status in MEASURED and row.memory is not None]
    on_host = [where.get(row.environment, NOWHERE).device and _counts_host_memory(row) for row in counted]
    elsewhere = [row for row, away in zip(counted, on_host, strict=True) if away]
    known = [row for row, away in zip(counted, on_host, strict=True) if not away]
    resolved_rows = [row for row in known if _is_resolved(row) and positive(row.bytes)]
    if not resolved_rows:
        return []
    dots, hidden = limit_dots([(row, _memory_dot(row)) for row in resolved_rows])
    series = by_backend(dots)
    return [
        Chart(
            id="memory",
            title="Peak memory against the data",
            about="On the line a case takes its inputs and outputs and nothing more; above it, room to work in.",
            kind="plot",
            x=Axis("bytes moved at least", "B", "log2"),
            y=Axis("peak memory", "B", "log2"),
            series=(*series, diagonal(series, "as much as its data")),
            notes=(*_note_much(resolved_rows), *_note_left_out(known), *_note_host_memory(elsewhere), *hidden),
        )
    ]


def _counts_host_memory(row: Row) -> bool:
    """Whether the kernel of the host counted the memory, which does not include the memory of a device."""
    return row.memory_source.startswith("resident pages")


def _is_resolved(row: Row) -> bool:
    return positive(row.memory) and row.memory >= row.memory_resolution


def _note_host_memory(rows: list[Row]) -> list[str]:
    backends = name_few(list(dict.fromkeys(row.backend for row in rows)))
    note = (
        f"{count_noun(len(rows), 'case')} of {backends} left out: counted on the host, which is not the device's memory"
    )
    return [note] if rows else []


def _factor(row: Row) -> float:
    return (row.memory or 0) / (row.bytes or 1)


def _memory_dot(row: Row) -> Mark:
    note = f"{significant(_factor(row))} times its data" if _factor(row) > _MUCH else ""
    return Mark(row.bytes or 0, row.memory or 0, row_label(row), link=row.key, note=note)


def _note_much(resolved_rows: list[Row]) -> list[str]:
    """Return a note on the cases that take much memory, the largest factor first."""
    found = sorted((row for row in resolved_rows if _factor(row) > _MUCH), key=lambda row: -_factor(row))
    names = name_few([f"{row_label(row)} {significant(_factor(row))} times" for row in found])
    return (
        [f"{len(found)} of {count_noun(len(resolved_rows), 'case')} over {_MUCH} times their data: {names}"]
        if found
        else []
    )


def _note_left_out(known: list[Row]) -> list[str]:
    unresolved = sum(not _is_resolved(row) for row in known)
    unsized = sum(_is_resolved(row) and not positive(row.bytes) for row in known)
    reasons = (
        (unresolved, "less than the counter of memory can tell"),
        (unsized, "the number of bytes that they move is unknown"),
    )
    return [f"{count_noun(count, 'case')} left out: {why}" for count, why in reasons if count]
