"""A store that lasts as long as the call: for programs that want results as objects and no file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from opmark.schema import Environment, Record, Run

NAME = ":memory:"


class MemoryStore:
    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._records: dict[str, dict[str, Record]] = {}
        self._environments: dict[str, Environment] = {}
        self._findings: dict[tuple[str, str], Any] = {}

    def begin(self, run: Run) -> None:
        self._runs.insert(0, run)
        self._records[run.id] = {}

    def add_environment(self, environment: Environment) -> None:
        self._environments.setdefault(environment.id, environment)

    def append(self, run_id: str, record: Record) -> None:
        self._records[run_id].setdefault(record.task.id, record)

    def runs(self, limit: int | None = None) -> list[Run]:
        return self._runs[:limit]

    def records(self, run_id: str) -> list[Record]:
        return list(self._records.get(run_id, {}).values())

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        return {key: self._environments[key] for key in ids if key in self._environments}

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        self._findings[kind, chip] = msgspec.to_builtins(body)

    def kept(self, kind: str, chip: str) -> Any:
        return self._findings.get((kind, chip))

    def close(self) -> None:
        return None
