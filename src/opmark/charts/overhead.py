"""What launching costs against what the device does; without a device, against what the smallest call takes."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.charts.parts import by_backend, called, diagonal, end, few, listed, measured, positive, spoilt, usable
from opmark.schema.chart import Axis, Chart, Mark, Rule
from opmark.schema.item import Item, Looked, Timing
from opmark.units import counted, seconds

_BOUND = "launch-bound"
_NEAR = 2
"""Times the smallest call: what takes less is mostly the call itself."""


def overhead(looked: Looked) -> list[Chart]:
    fine = [item for item in looked.items if item.status == "ok"]
    found = (_against_device(fine), _against_smallest(looked, fine))
    return [chart for chart in found if chart is not None]


def _against_device(items: Sequence[Item]) -> Chart | None:
    pairs = [(item, _dot(item, device, host)) for item in items if (device := _device(item)) and (host := _host(item))]
    if not pairs:
        return None
    kept, hidden = few(pairs)
    series = by_backend(kept)
    bound = sum(bool(mark.note) for _, mark in pairs)
    lone = sum(_device(item) is not None and _host(item) is None for item in items)
    return Chart(
        id="overhead",
        title="Launch overhead against device time",
        about="A dot above the line is launch-bound: the host takes longer to launch it than the device to do it.",
        kind="plot",
        x=Axis("device time", "s", "log"),
        y=Axis("host time until the call returns", "s", "log"),
        series=(*series, diagonal(series, "launch takes as long as the device works")),
        notes=(
            f"{bound} of {counted(len(pairs), 'case')} launch-bound",
            *([f"{counted(lone, 'case')} left out: no usable host time"] if lone else []),
            *hidden,
        ),
    )


def _device(item: Item) -> Timing | None:
    return _of(item, "device_time")


def _host(item: Item) -> Timing | None:
    return _of(item, "host_time")


def _of(item: Item, quantity: str) -> Timing | None:
    """Warm if it is there: launches are timed that way."""
    found = item.timing(quantity, "warm") or item.timing(quantity)
    return found if usable(found) else None


def _dot(item: Item, device: Timing, host: Timing) -> Mark:
    x, y = device.median or 0.0, host.median or 0.0
    return Mark(x, y, called(item), end(host.low), end(host.high), link=item.key, note=_BOUND if y > x else "")


def _against_smallest(looked: Looked, items: Sequence[Item]) -> Chart | None:
    """Of what has no device of its own: latency over bytes, and where the smallest call of its backend lies."""
    lone = [item for item in items if item.timing("device_time") is None]
    hosts = [item for item in lone if _smallest(looked, item)]
    others = list(dict.fromkeys(item.backend for item in lone if _latency(item) and not _smallest(looked, item)))
    pairs = [(item, _call(item, latency, _smallest(looked, item) or 0)) for item in hosts
             if positive(item.bytes) and (latency := _latency(item))]  # fmt: skip
    if not pairs:
        return None
    calls = {(item.backend, _chip(looked, item), _smallest(looked, item) or 0) for item, _ in pairs}
    kept, hidden = few(pairs)
    near = sum(bool(mark.note) for _, mark in pairs)
    unsized = sum(measured(item) is not None and not positive(item.bytes) for item in hosts)
    return Chart(
        id="overhead-host",
        title="Latency against the smallest call",
        about="Near the line a case is mostly the cost of calling at all, and a faster kernel would not help.",
        kind="plot",
        x=Axis("bytes moved at least", "B", "log2"),
        y=Axis("latency", "s", "log"),
        series=by_backend(kept),
        rules=tuple(
            Rule("y", launch, f"smallest call of {backend} on {chip}: {seconds(launch)}")
            for backend, chip, launch in sorted(calls)
        ),
        notes=(
            f"{near} of {counted(len(pairs), 'case')} within {_NEAR} times the smallest call",
            *([f"{counted(unsized, 'case')} left out: nobody told how many bytes they move"] if unsized else []),
            *([f"left out: {listed(others)}, whose smallest call nobody measured"] if others else []),
            *spoilt(hosts),
            *hidden,
        ),
    )


def _smallest(looked: Looked, item: Item) -> float | None:
    """As `calibrate` measured it, with the same backend: a call costs another framework something else."""
    known = looked.ceilings.get(item.environment)
    own = known and known.measured and known.measured.backend == item.backend
    return end(known.measured.launch.get("latency")) if known and known.measured and own else None


def _chip(looked: Looked, item: Item) -> str:
    known = looked.ceilings[item.environment].measured
    return known.chip if known else ""


def _latency(item: Item) -> Timing | None:
    first = measured(item)
    return first if first and first.quantity == "latency" else _of(item, "latency")


def _call(item: Item, latency: Timing, smallest: float) -> Mark:
    value = latency.median or 0.0
    note = _BOUND if value < _NEAR * smallest else ""
    return Mark(item.bytes or 0, value, called(item), end(latency.low), end(latency.high), link=item.key, note=note)
