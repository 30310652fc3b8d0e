"""Runs that nobody measured, for tests of what is done with stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from opmark.api.result import open_store
from opmark.schema import EFFORTS, Case, Cost, Environment, Measurement, Record, Run, Settings, Task

BOX = Environment.of({"machine": "box", "cpu": "AMD EPYC", "python": "3.11.7", "torch": "2.11.0", "backend": "null",
                      "device": "cpu", "opmark": "0.6.0", "system": "Linux 6"})  # fmt: skip

SAMPLES = [1.00e-3, 1.01e-3, 1.02e-3, 1.03e-3, 1.04e-3, 1.05e-3, 1.06e-3]
"""Median 1.03 ms."""

HOSTILE = "=1+1|`<b>x</b>*_[a](b)'\";--\x1b[31m\x9b31m\u202e\r\n@y"
"""A formula, markup, HTML, SQL, sequences that a terminal obeys, several lines."""


def record(n: int = 1, *, op: str = "add", backend: str = "null", **fields: Any) -> Record:
    """Of a case that `n` makes; measured unless its status says otherwise."""
    params = fields.pop("params", {"shape": [n], "dtype": "float32"})
    settings = Settings(2, "quick", EFFORTS["quick"], process=fields.pop("process", 0))
    task = Task(Case.of(op, params, "forward"), backend, fields.pop("implementation", "null"), settings)
    status = fields.pop("status", "ok")
    if status == "ok":
        samples = fields.pop("samples", SAMPLES)
        measured = (Measurement("latency", "warm", "virtual", samples, 3, 1e-9, 5, 0.25, "precise"),)
        fields = {"measurements": measured, "cost": Cost(4_243_600, 2_000_000, 121_800), **fields}
    return Record(task, status, **{"environment": BOX.id, "started": "2030-01-01T00:00:00.000+00:00", **fields})


def made_run(number: int, label: str = "", **fields: Any) -> Run:
    """Number 1 is of the first of January, and so on."""
    day = f"{number:02}"
    tasks = fields.pop("tasks", 1)
    return Run(f"203001{day}-000000-{number:04x}", f"2030-01-{day}T00:00:00.000+00:00", "plan", tasks, label, **fields)


def store(db: str | Path, run: Run, records: Sequence[Record] = ()) -> Run:
    with closing(open_store(db, create=True)) as opened:
        opened.add_environment(BOX)
        opened.begin(run)
        opened.extend(run.id, records)
    return run
