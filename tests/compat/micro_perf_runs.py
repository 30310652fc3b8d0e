"""Helpers for tests of `opmark micro-perf`: the suite is read once, and cases have few samples."""

from __future__ import annotations

from functools import cache, partial

import pytest

from opmark import api
from opmark.compat.micro_perf import tasks
from opmark.runner.intake import Intake
from opmark.workloads.load import suite

FEW = {"effort": "quick"}
"""Samples if neither the generation nor the file sets their number."""

_items = tasks._items


@cache
def _read() -> tuple[object, tuple[tasks.Item, ...]]:
    whole = suite(tasks.SUITE)
    return whole, tuple(_items(Intake(f"suite {tasks.SUITE}", whole)))


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    def items(taken: Intake) -> list[tasks.Item]:
        whole, known = _read()
        return list(known) if taken.workload is whole else _items(taken)

    monkeypatch.setattr(tasks, "suite", lambda name: _read()[0])
    monkeypatch.setattr(tasks, "_items", items)
    monkeypatch.setattr(api, "run", partial(api.run, **FEW))
