"""Records to store, and stores to put them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.schema import EFFORTS, Case, Measurement, Record, Run, Settings, Task
from opmark.store.memory import MemoryStore
from opmark.store.protocol import Store
from opmark.store.sql import SqlStore, open_sql

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record() -> MakeRecord:
    """A record of `add` with the given fields; `n` makes the case, `samples` a measurement of its own each."""

    def make(n: int = 1, *samples: list[float], **fields: Any) -> Record:
        op, process = fields.pop("op", "add"), fields.pop("process", 0)
        case = Case.of(op, {"shape": [n], "dtype": "float32"}, "forward", ("a tag",))
        task = Task(case, "null", "null", Settings(2, "quick", EFFORTS["quick"], process=process))
        measurements = tuple(
            Measurement(f"quantity {i}", "warm", "virtual", values, 3, 1e-9, 5, 0.25, "precise")
            for i, values in enumerate(samples)
        )
        return Record(task, fields.pop("status", "ok"), measurements=measurements, **fields)

    return make


@pytest.fixture
def make_run() -> Callable[..., Run]:
    def make(run_id: str = "20300101-000000-0001", **fields: Any) -> Run:
        started = fields.pop("started", "2030-01-01T00:00:00.000+00:00")
        return Run(run_id, started, "0123456789abcdef", fields.pop("tasks", 1), **fields)

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be made: on each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(place: str) -> Iterator[SqlStore]:
    with closing(open_sql(place, create=True)) as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    told = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with closing(open_sql(told, create=True)) as opened:
        yield opened
