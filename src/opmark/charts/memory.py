"""How much memory cases take, against what their data takes at least."""

from __future__ import annotations

from opmark.analysis.rows import Row, RunView
from opmark.charts.common import NOWHERE, places
from opmark.charts.parts import by_backend, called, diagonal, few, listed, positive
from opmark.schema.chart import Axis, Chart, Mark
from opmark.units import counted, significant

_MUCH = 2
"""Times its data: what takes more is named."""


def memory(run_view: RunView) -> list[Chart]:
    where = places(run_view)
    told = [row for row in run_view.rows if row.status == "ok" and row.memory is not None]
    foreign = [where.get(row.environment, NOWHERE).device and _of_the_host(row) for row in told]
    elsewhere = [row for row, away in zip(told, foreign, strict=True) if away]
    known = [row for row, away in zip(told, foreign, strict=True) if not away]
    drawn = [row for row in known if _seen(row) and positive(row.bytes)]
    if not drawn:
        return []
    kept, hidden = few([(row, _dot(row)) for row in drawn])
    series = by_backend(kept)
    return [
        Chart(
            id="memory",
            title="Peak memory against the data",
            about="On the line a case takes its inputs and outputs and nothing more; above it, room to work in.",
            kind="plot",
            x=Axis("bytes moved at least", "B", "log2"),
            y=Axis("peak memory", "B", "log2"),
            series=(*series, diagonal(series, "as much as its data")),
            notes=(*_much(drawn), *_left_out(known), *_elsewhere(elsewhere), *hidden),
        )
    ]


def _of_the_host(row: Row) -> bool:
    """Whether it was the kernel that counted, which sees nothing of a device's memory."""
    return row.memory_source.startswith("resident pages")


def _seen(row: Row) -> bool:
    return positive(row.memory) and row.memory >= row.memory_resolution


def _elsewhere(rows: list[Row]) -> list[str]:
    backends = listed(list(dict.fromkeys(row.backend for row in rows)))
    said = f"{counted(len(rows), 'case')} of {backends} left out: counted on the host, which is not the device's memory"
    return [said] if rows else []


def _factor(row: Row) -> float:
    return (row.memory or 0) / (row.bytes or 1)


def _dot(row: Row) -> Mark:
    note = f"{significant(_factor(row))} times its data" if _factor(row) > _MUCH else ""
    return Mark(row.bytes or 0, row.memory or 0, called(row), link=row.key, note=note)


def _much(drawn: list[Row]) -> list[str]:
    """Most first."""
    found = sorted((row for row in drawn if _factor(row) > _MUCH), key=lambda row: -_factor(row))
    named = listed([f"{called(row)} {significant(_factor(row))} times" for row in found])
    return [f"{len(found)} of {counted(len(drawn), 'case')} over {_MUCH} times their data: {named}"] if found else []


def _left_out(known: list[Row]) -> list[str]:
    unseen = sum(not _seen(row) for row in known)
    unsized = sum(_seen(row) and not positive(row.bytes) for row in known)
    told = ((unseen, "less than the counter of memory can tell"), (unsized, "nobody told how many bytes they move"))
    return [f"{counted(count, 'case')} left out: {why}" for count, why in told if count]
