"""Latency and bandwidth over sizes, fitted: one series an operator, element type, number of ranks, options, backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from opmark.metrics.alpha_beta import Fit, NoFit, fit
from opmark.metrics.bus import crossing
from opmark.report.communication import traffic
from opmark.report.names import case_parameters, where
from opmark.report.rows import Row, rows
from opmark.schema import Case, Record
from opmark.schema.case import content_id

_SIZES = ("size", "num_tokens")
"""Parameters that say how much is sent; a series has all values of one of them."""


class Point(Struct, frozen=True):
    size: int
    """Bytes of the whole buffer."""
    bus: float
    """Bytes that the busiest link carries for it."""
    seconds: float
    """Median of the slowest rank's."""


class Fitted(Struct, frozen=True):
    """A series of sizes, and the line through their times."""

    op: str
    params: dict[str, Any]
    """All but the size."""
    parameters: str
    """The same, as people read them."""
    backend: str
    where: str
    """Backend, implementation, threads and processes as the table of a run has them."""
    points: tuple[Point, ...]
    """By size."""
    fit: Fit | None
    reason: str = ""
    """Why there is no fit."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.op, self.parameters, "on", self.where)))

    @property
    def drawable(self) -> bool:
        """A time of 0 has no place on a logarithmic axis."""
        return all(point.seconds > 0 for point in self.points)

    @property
    def factor(self) -> float:
        """Bus over algorithm bandwidth: that of the operator and its number of ranks."""
        largest = self.points[-1]
        return largest.bus / largest.size

    @property
    def bus_bandwidth(self) -> float | None:
        return self.fit.beta * self.factor if self.fit and self.fit.beta and self.factor else None


def fits(records: Iterable[Record]) -> list[Fitted]:
    """Of everything that communicates, also of what has too few sizes; in the order of the records."""
    return fits_of(rows(records))


def fits_of(found: Sequence[Row]) -> list[Fitted]:
    series: dict[str, list[tuple[Row, Point]]] = {}
    for row in found:
        moved = traffic(row)
        seconds = row.seconds() if moved and moved.size and row.record.status == "ok" else None
        if moved and seconds is not None:
            series.setdefault(_alike(row), []).append((row, Point(moved.size, crossing(moved), seconds)))
    return [_fitted(pairs) for pairs in series.values()]


def _alike(row: Row) -> str:
    """The same for what differs only in its size."""
    task, key = row.record.task, row.measured()[0]
    settings = (task.settings.threads, task.settings.mode, task.settings.seed, task.settings.effort)
    return content_id(
        [task.case.op, _but_size(task.case), task.case.phase, task.backend, task.implementation, *settings, *key]
    )


def _but_size(case: Case) -> dict[str, Any]:
    varied = next((name for name in _SIZES if name in case.params), None)
    return {name: value for name, value in case.params.items() if name != varied}


def _fitted(pairs: Sequence[tuple[Row, Point]]) -> Fitted:
    task = pairs[0][0].record.task
    params = _but_size(task.case)
    points = tuple(sorted((point for _, point in pairs), key=lambda point: point.size))
    found = fit([point.size for point in points], [point.seconds for point in points])
    shown = case_parameters(Case.of(task.case.op, params, task.case.phase))
    none = found.reason if isinstance(found, NoFit) else ""
    line = found if isinstance(found, Fit) else None
    return Fitted(task.case.op, params, shown, task.backend, where(pairs[0][0]), points, line, none)


def fit_view(one: Fitted) -> dict[str, Any]:
    """For programs: seconds, bytes, bytes a second."""
    line = one.fit
    return {
        "op": one.op,
        "params": one.params,
        "backend": one.backend,
        "alpha": line.alpha if line else None,
        "beta": line.beta if line else None,
        "bus_bandwidth": one.bus_bandwidth,
        "half_size": line.half_size if line else None,
        "worst": line.worst if line else None,
        "worst_at": line.worst_at if line else None,
        "off": line.off if line else None,
        "reason": one.reason,
        "points": msgspec.to_builtins(one.points),
    }
