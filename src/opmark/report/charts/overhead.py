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
from opmark.schema.measurement import Cache
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
    pairs, lone = [], 0
    caches = {quantity: _shared_cache(rows, quantity) for quantity in ("device_time", "host_time")}
    for row in rows:
        device, host = (_usable_timing(row, *key) for key in caches.items())
        if device and host:
            x, y = device.median or 0.0, host.median or 0.0
            note = _BOUND if y > x else ""
            pairs.append((row, Mark(x, y, row_label(row), end(host.low), end(host.high), link=row.key, note=note)))
        lone += row.timing("device_time") is not None and (device is None) != (host is None)
    if not pairs:
        return None
    dots, hidden = limit_dots(pairs)
    series = by_backend(dots)
    bound = sum(bool(mark.note) for _, mark in pairs)
    return Chart(
        id="overhead",
        title="Launch overhead against device time",
        about="A dot above the line is launch-bound: the host takes longer to launch it than the device to do it.",
        kind="plot",
        x=Axis(f"device time, {caches['device_time']}", "s", "log"),
        y=Axis(f"host time until the call returns, {caches['host_time']}", "s", "log"),
        series=(*series, diagonal(series, "launch takes as long as the device works")),
        notes=(
            f"{bound} of {count_noun(len(pairs), 'case')} launch-bound",
            *([f"{count_noun(lone, 'case')} left out: only one of the two times is usable"] if lone else []),
            *hidden,
        ),
    )


def _shared_cache(rows: Sequence[Row], quantity: str) -> Cache:
    """Return the state of the caches that a chart is of: warm, in which launches are measured unless another one was
    asked for."""
    found = {timing.cache for row in rows for timing in row.timings if timing.quantity == quantity}
    states: tuple[Cache, ...] = ("warm", "cold", "rotated")
    return next((cache for cache in states if cache in found), "warm")


def _usable_timing(row: Row, quantity: str, cache: Cache) -> Timing | None:
    found = row.timing(quantity, cache)
    return found if is_usable(found) else None


def _against_smallest(run_view: RunView, rows: Sequence[Row]) -> Chart | None:
    """Return the chart of rows without device time: latency over bytes, with the smallest call of each backend."""
    hosts, pairs = list[Row](), list[tuple[Row, Mark]]()
    calls, others = set[tuple[str, str, float]](), dict[str, None]()
    without = [row for row in rows if row.timing("device_time") is None and row.is_plain]
    cache = _shared_cache(without, "latency")
    for row in without:
        latency = _usable_timing(row, "latency", cache)
        # The smallest call as `calibrate` measured it with the same backend; other frameworks have other costs.
        known = run_view.machines.get(row.environment)
        peaks = known.measured if known and known.measured and known.measured.backend == row.backend else None
        smallest = end(peaks.launch.get("latency")) if peaks else None
        if peaks is None or smallest is None:
            others |= {row.backend: None} if latency else {}
            continue
        hosts.append(row)
        if latency and positive(row.bytes):
            value, low, high = latency.median or 0.0, end(latency.low), end(latency.high)
            note = _BOUND if value < _NEAR * smallest else ""
            pairs.append((row, Mark(row.bytes, value, row_label(row), low, high, link=row.key, note=note)))
            calls.add((row.backend, peaks.chip, smallest))
    if not pairs:
        return None
    dots, hidden = limit_dots(pairs)
    near = sum(bool(mark.note) for _, mark in pairs)
    unsized = sum(usable_headline(row) is not None and not positive(row.bytes) for row in hosts)
    return Chart(
        id="overhead-host",
        title="Latency against the smallest call",
        about="Near the line a case is mostly the cost of calling at all, and a faster kernel would not help.",
        kind="plot",
        x=Axis("bytes moved at least", "B", "log2"),
        y=Axis(f"latency, {cache}", "s", "log"),
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
            *([f"left out: {name_few(list(others))}, whose smallest call was not measured"] if others else []),
            *note_unusable(hosts),
            *hidden,
        ),
    )


# Peak memory against the size of the data.

_MUCH = 2
"""Cases that take more than this number of times their data are named."""


def memory(run_view: RunView) -> list[Chart]:
    where = hardware_by_environment(run_view)
    elsewhere, unresolved, unsized = list[Row](), 0, 0
    pairs, much = list[tuple[Row, Mark]](), list[tuple[float, Row]]()
    for row in run_view.rows:
        if row.status not in MEASURED or row.memory is None:
            continue
        # The kernel of the host does not count the memory of a device.
        if where.get(row.environment, NOWHERE).device and row.memory_source.startswith("resident pages"):
            elsewhere.append(row)
        elif not (positive(row.memory) and row.memory >= row.memory_resolution):
            unresolved += 1
        elif not positive(row.bytes):
            unsized += 1
        else:
            factor = row.memory / row.bytes
            note = f"{significant(factor)} times its data" if factor > _MUCH else ""
            pairs.append((row, Mark(row.bytes, row.memory, row_label(row), link=row.key, note=note)))
            much += [(factor, row)] if factor > _MUCH else []
    if not pairs:
        return []
    dots, hidden = limit_dots(pairs)
    series = by_backend(dots)
    notes = []
    if much:
        much.sort(key=lambda pair: -pair[0])
        names = name_few([f"{row_label(row)} {significant(factor)} times" for factor, row in much])
        notes.append(f"{len(much)} of {count_noun(len(pairs), 'case')} over {_MUCH} times their data: {names}")
    if unresolved:
        notes.append(f"{count_noun(unresolved, 'case')} left out: less than the counter of memory can tell")
    if unsized:
        notes.append(f"{count_noun(unsized, 'case')} left out: the number of bytes that they move is unknown")
    if elsewhere:
        cases = (
            f"{count_noun(len(elsewhere), 'case')} of {name_few(list(dict.fromkeys(row.backend for row in elsewhere)))}"
        )
        notes.append(f"{cases} left out: counted on the host, which is not the device's memory")
    return [
        Chart(
            id="memory",
            title="Peak memory against the data",
            about="On the line a case takes its inputs and outputs and nothing more; above it, room to work in.",
            kind="plot",
            x=Axis("bytes moved at least", "B", "log2"),
            y=Axis("peak memory", "B", "log2"),
            series=(*series, diagonal(series, "as much as its data")),
            notes=(*notes, *hidden),
        )
    ]
