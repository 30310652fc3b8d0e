"""Implementations of one case beside each other: how many times faster than the first of them."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.report.rows import Row


def gains(found: Sequence[Row]) -> list[float | None]:
    """A factor a row; None where there is nothing to compare with, or nothing was measured."""
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(_beside(row), []).append(row)
    return [_gain(row, groups[_beside(row)]) for row in found]


def _beside(row: Row) -> str:
    """The same for what differs only in its implementation."""
    task = row.record.task
    return f"{task.case.id} {task.backend} {task.settings.threads} {task.settings.mode} {task.settings.seed}"


def _gain(row: Row, group: Sequence[Row]) -> float | None:
    summary, first = row.summary(), group[0].summary()
    if len(group) < 2 or summary is None or first is None or summary.median <= 0:
        return None
    return first.median / summary.median if row.measured()[0] == group[0].measured()[0] else None
