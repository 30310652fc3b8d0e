"""The rows of a request in PARAM's order (by element type, collective, size), and their figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opmark.catalogue.expansion import cases_of
from opmark.errors import UserError
from opmark.interop.param.comms.collectives import (
    COLLECTIVES,
    PT2PT,
    Collective,
    elements_of,
    find_dtype,
    split_size,
    whole_sizes,
)
from opmark.interop.param.comms.options import CommsRequest
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, Measurement, Record
from opmark.schema.record import MEASURED
from opmark.schema.tensor import sizeof
from opmark.stats.summary import percentile

PATTERNS = ("ping", "ping_pong", "one_way", "both_ways")
"""The cases of a row of pt2pt, in their order."""


@dataclass(frozen=True)
class CommsRow:
    collective: str
    dtype: str
    """The element type as the command line names it."""
    tag: str
    size: int
    """Requested bytes, rounded to whole elements."""
    elements: int
    """Elements of each rank."""
    cases: tuple[Case, ...]
    """One case, or for pt2pt one for each of PATTERNS."""
    per_iteration: int = 1
    window: int = 1

    @property
    def label(self) -> str:
        return f"COMMS-RES-{self.collective}-{self.dtype}{self.tag}"

    @property
    def table(self) -> tuple[str, str]:
        """Rows with the same key are below one header."""
        return self.collective, self.dtype


def rows_of(request: CommsRequest) -> list[CommsRow]:
    """Return the rows of a request; raise UserError if an operator does not accept its parameters."""
    return [
        row
        for dtype in request.dtypes
        for name in request.collectives
        for row in (_pair_rows(request, dtype) if name == PT2PT else _collective_rows(request, name, dtype))
    ]


def _collective_rows(request: CommsRequest, name: str, dtype: str) -> Iterator[CommsRow]:
    found, element = COLLECTIVES[name], sizeof(find_dtype(dtype))
    parts = request.group_size if found.shared else 1
    known = find_operator(found.op).by_name
    for size in _row_sizes(request, element, parts):
        operator_size = size * max(1, request.group_size - 1) if found.per_sender else size
        params = {"size": operator_size, "ranks": request.ranks, **found.params}
        params |= _known_params(request, found, dtype, known)
        (case,) = cases_of(Entry(found.op, params), find_operator)
        elements = elements_of(size, element, parts)
        yield CommsRow(name, dtype, request.tag, size, elements, (case,), per_iteration=request.per_iteration)


def _row_sizes(request: CommsRequest, element: int, parts: int) -> list[int]:
    if request.splits:
        option, splits = request.splits
        return [split_size(splits, option, request.group_size, element)]
    return whole_sizes(request.sizes, element, parts)


def _known_params(request: CommsRequest, found: Collective, dtype: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that the operator has: objects have no element type, barriers no root."""
    params = {
        "dtype": find_dtype(dtype),
        "group": request.group,
        "root": request.root,
        "asynchronous": not request.blocking,
    }
    if found.uneven and request.imbalance:
        params["imbalance"] = request.imbalance
    return {name: value for name, value in params.items() if name in known}


def _pair_rows(request: CommsRequest, dtype: str) -> Iterator[CommsRow]:
    """Yield rows of four cases: ping, ping-pong, and many messages in flight in one direction and in both."""
    if request.group:
        raise UserError("--multi-comms: pt2pt has one pair and no groups", "leave it out")
    element = sizeof(find_dtype(dtype))
    for size in whole_sizes(request.sizes, element, 1):
        cases = tuple(_pair_case(request, dtype, size, pattern) for pattern in PATTERNS)
        yield CommsRow(
            PT2PT, dtype, request.tag, size, size // element, cases,
            per_iteration=request.per_iteration, window=request.window,
        )  # fmt: skip


def _pair_case(request: CommsRequest, dtype: str, size: int, pattern: str) -> Case:
    """Return a case; as in PARAM, latency is that of a single message, bandwidth that of a window of messages."""
    src, dst = request.pair
    is_single = pattern in ("ping", "ping_pong")
    params: dict[str, Any] = {
        "size": size, "dtype": find_dtype(dtype), "ranks": request.ranks, "src": src, "dst": dst,
        "pattern": "one_way" if pattern == "ping" else pattern, "window": 1 if is_single else request.window,
    }  # fmt: skip
    if "asynchronous" in find_operator("p2p").by_name:
        params["asynchronous"] = not is_single
    (case,) = cases_of(Entry("p2p", params), find_operator)
    return case


# Figures of a row: percentiles over iterations, each as long as its slowest rank, and bandwidths.

MICRO = 1e-6
GIGA = 1e9
QUANTITY = "latency"


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of the seconds of an iteration."""

    p50: float
    p75: float
    p95: float
    least: float
    most: float


@dataclass(frozen=True)
class CollectiveFigures:
    """Figures of a collective."""

    size: int
    """Bytes that the algorithm bandwidth counts."""
    time: Percentiles
    algorithm: float
    """Algorithm bandwidth in GB/s."""
    bus: float
    """Bus bandwidth in GB/s."""
    total: float
    """Median seconds of an iteration with all its collectives."""


@dataclass(frozen=True)
class PairFigures:
    size: int
    ping: Percentiles
    ping_pong: Percentiles
    one_way: float
    """GB/s in one direction."""
    both_ways: float


def percentiles(values: Sequence[float]) -> Percentiles:
    p50, p75, p95 = (percentile(values, percent) for percent in (50, 75, 95))
    return Percentiles(p50, p75, p95, min(values), max(values))


def latency(record: Record) -> Measurement | None:
    """Return the time by the host's clock; None for a failed record."""
    return record.measurement(QUANTITY) if record.status in MEASURED else None


def figures(row: CommsRow, record: Record) -> CollectiveFigures | None:
    found, cost = latency(record), record.cost
    if found is None or cost is None or cost.traffic is None:
        return None
    time, traffic = percentiles(found.samples), cost.traffic
    algorithm, bus = (bytes_ / time.p50 / GIGA if time.p50 > 0 else 0.0 for bytes_ in (traffic.size, traffic.bus))
    return CollectiveFigures(
        traffic.size, time, algorithm, bus, percentile(iterations(found.samples, row.per_iteration), 50)
    )


def iterations(samples: Sequence[float], per_iteration: int) -> list[float]:
    """Return the seconds of each iteration, which consists of several consecutive collectives."""
    starts = range(0, len(samples), per_iteration)
    return [sum(samples[start : start + per_iteration]) for start in starts]


def pair_figures(row: CommsRow, records: Sequence[Record]) -> PairFigures | None:
    """Return the figures of pt2pt; the bandwidth of both ways counts the bytes of both, as in PARAM."""
    found = [latency(record) for record in records]
    ping, ping_pong, one_way, both_ways = found
    if ping is None or ping_pong is None or one_way is None or both_ways is None:
        return None
    sent = row.size * row.window
    return PairFigures(
        row.size,
        percentiles(ping.samples),
        percentiles(ping_pong.samples),
        _bandwidth(sent, one_way.samples),
        _bandwidth(2 * sent, both_ways.samples),
    )


def _bandwidth(sent: int, samples: Sequence[float]) -> float:
    """Return GB/s by the mean time."""
    mean = sum(samples) / len(samples)
    return sent / mean / GIGA if mean > 0 else 0.0
