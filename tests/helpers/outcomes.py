"""Run every operator of a backend's tables once, verified, in one worker."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.api.run import run
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue, implementations
from opmark.schema import Record


def covered(backend: str) -> list[str]:
    """Return the operators that a backend has an implementation for and accepts."""
    info = find_backend(backend)
    known = [name for name, op in catalogue().items() if implementations(op, info) and op.category != "diagnostics"]
    return [name for name in known if name not in info.lacks]


def outcomes(backend: str, names: Sequence[str] = (), phase: str = "forward") -> dict[str, list[Record]]:
    """Return the outcome of one call of each operator at its small size."""
    found = run(
        list(names) or covered(backend), backend=backend, size="small", phase=phase, samples=1, warmup=0, processes=1,
        threads=2, db=":memory:", timeout=120, say=lambda _: None,
    )  # fmt: skip
    by_name: dict[str, list[Record]] = {}
    for record in found.records:
        by_name.setdefault(record.task.case.op, []).append(record)
    return by_name
