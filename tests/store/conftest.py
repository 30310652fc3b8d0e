"""Records to store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opmark.schema import EFFORTS, Case, Measurement, Record, Run, Settings, Task

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record() -> MakeRecord:
    """A record of `add` with the given fields; `n` makes the case, `samples` a measurement of its own each."""

    def make(n: int = 1, *samples: list[float], **fields: Any) -> Record:
        case = Case.of("add", {"shape": [n], "dtype": "float32"}, "forward", ("a tag",))
        task = Task(case, "null", "null", Settings(2, "quick", EFFORTS["quick"]))
        measurements = tuple(
            Measurement(f"quantity {i}", "warm", "virtual", values, 3, 1e-9, 5, 0.25, "precise")
            for i, values in enumerate(samples)
        )
        return Record(task, fields.pop("status", "ok"), measurements=measurements, **fields)

    return make


@pytest.fixture
def make_run() -> Callable[..., Run]:
    def make(run_id: str = "20300101-000000-0001", **fields: Any) -> Run:
        return Run(run_id, "2030-01-01T00:00:00.000+00:00", "0123456789abcdef", fields.pop("tasks", 1), **fields)

    return make
