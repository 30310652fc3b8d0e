"""Helpers for tests of `opmark micro-perf`: the suite is read once, and cases have few samples."""

from __future__ import annotations

from functools import cache, partial

import pytest

from opmark.api.run import run
from opmark.catalogue.workload_file import suite
from opmark.interop.bytemicroperf import selection
from opmark.runner.workload_source import WorkloadSource

FEW = {"effort": "quick"}
"""Samples if neither the generation nor the file sets their number."""

_items = selection._items


@cache
def _read() -> tuple[object, tuple[selection.WorkloadEntry, ...]]:
    whole = suite(selection.SUITE)
    return whole, tuple(_items(WorkloadSource(f"suite {selection.SUITE}", whole)))


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    def items(taken: WorkloadSource) -> list[selection.WorkloadEntry]:
        whole, known = _read()
        return list(known) if taken.workload is whole else _items(taken)

    monkeypatch.setattr(selection, "suite", lambda name: _read()[0])
    monkeypatch.setattr(selection, "_items", items)
    monkeypatch.setattr("opmark.interop.bytemicroperf.command.run", partial(run, **FEW))
