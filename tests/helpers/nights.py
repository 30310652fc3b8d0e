"""A store of many nights, made up: what `history` and the learnt floors read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from msgspec.structs import replace

from opmark.schema import (
    EFFORTS,
    Case,
    Caution,
    Conditions,
    Environment,
    Measurement,
    Record,
    Run,
    SensorReading,
    Settings,
    Task,
)
from opmark.store.memory import MemoryStore
from opmark.store.protocol import Store

FIRST = datetime(2030, 1, 1, 3, tzinfo=timezone.utc)
FACTS: dict[str, Any] = {"cpu": "a processor", "device": "cpu", "backend": "torch-cpu", "threads": 2, "torch": "2.12"}

Level = Callable[[int], float]
"""Seconds by the number of the night."""


def case(op: str = "exp", **params: Any) -> Case:
    return Case.of(op, {"shape": [4], "dtype": "float32"} | params, "forward")


def step(at: int, ratio: float, seconds: float = 1e-3) -> Level:
    return lambda night: seconds * (ratio if night >= at else 1.0)


def flat(seconds: float = 1e-3) -> Level:
    return lambda night: seconds


def record(
    of: Case, seconds: float | None, environment: str, *, process: int = 0, backend: str = "torch-cpu", **fields: Any
) -> Record:
    """Without a time, one that failed."""
    settings = Settings(fields.pop("threads", 2), "quick", EFFORTS["quick"], process=process)
    task = Task(of, backend, backend.partition("-")[0], settings)
    if seconds is None:
        return Record(task, fields.pop("status", "error"), "raised", environment=environment)
    cautions = tuple(Caution(code, "") for code in fields.pop("cautions", ()))
    keys = fields.pop("keys", [("latency", "warm")])
    clock = fields.pop("clock", None)
    conditions = Conditions((SensorReading(clock=clock),)) if clock else Conditions()
    found = tuple(
        Measurement(
            quantity,
            cache,
            "virtual",
            [seconds * (1 + i)] * 3,
            1,
            0.0,
            1,
            0.0,
            "count",
            cautions,
            conditions=conditions,
        )
        for i, (quantity, cache) in enumerate(keys)
    )
    return Record(task, "ok", "", found, environment=environment)


def run_of(night: int, **fields: Any) -> Run:
    started = FIRST + timedelta(days=night)
    given = {"plan": "nightly", "tasks": 1, "label": "nightly", "revision": f"{night:07x}"} | fields
    return Run(f"{started:%Y%m%d-%H%M%S}-{night:04x}", started.isoformat(timespec="milliseconds"), **given)


def nights(
    levels: Sequence[tuple[Case, Level]],
    count: int = 100,
    *,
    noise: float = 0.01,
    processes: int = 1,
    seed: int = 0,
    facts: Callable[[int], dict[str, Any]] = lambda night: FACTS,
    store: Store | None = None,
    run: Callable[[int], Run] = run_of,
) -> Store:
    """A run a night: each case in so many processes, around its level of the night by so much noise."""
    kept = MemoryStore() if store is None else store
    draw = random.Random(seed)
    for night in range(count):
        environment = Environment.of(facts(night))
        this = replace(run(night), tasks=len(levels) * processes)
        kept.begin(this)
        kept.add_environment(environment)
        drawn = ((of, level(night) * (1 + draw.gauss(0, noise)), p) for of, level in levels for p in range(processes))
        kept.extend(this.id, [record(of, seconds, environment.id, process=p) for of, seconds, p in drawn])
    return kept


def upgraded(night: int) -> dict[str, Any]:
    """torch was upgraded at night 60, and the host is another every night."""
    return FACTS | {"torch": "2.12" if night < 60 else "2.13", "machine": f"node{night % 3}"}
