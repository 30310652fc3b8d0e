"""A store in memory, for programs that need results as objects and no file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.schema import Case, Environment, Record, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Figure
from opmark.schema.tuned import TunedEntry
from opmark.store.protocol import NoteKind
from opmark.store.record_codec import figures_of

NAME = ":memory:"


class MemoryStore:
    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._records: dict[str, dict[str, Record]] = {}
        self._environments: dict[str, Environment] = {}
        self._findings: list[MachineFinding] = []
        self._tuned: list[TunedEntry] = []

    def begin(self, run: Run) -> None:
        self._runs.insert(0, run)
        self._records[run.id] = {}

    def add_environment(self, environment: Environment) -> None:
        self._environments.setdefault(environment.id, environment)

    def append(self, run_id: str, record: Record) -> None:
        self._records[run_id].setdefault(record.task.id, record)

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        before = len(self._records[run_id])
        for record in records:
            self.append(run_id, record)
        return len(self._records[run_id]) - before

    def note(self, run_id: str, kind: NoteKind, text: str) -> None:
        self._runs = [replace(run, **{kind: text}) if run.id == run_id else run for run in self._runs]

    def runs(self, limit: int | None = None) -> list[Run]:
        return sorted(self._runs, key=lambda run: run.started, reverse=True)[
            :limit
        ]  # stable: equal times keep their order

    def records(self, run_id: str) -> list[Record]:
        return list(self._records.get(run_id, {}).values())

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        among = self._records if runs is None else runs
        found = ((run, record) for run in self._records if run in among for record in self._records[run].values())
        return [f for run, record in found if case in (None, record.task.case.id) for f in figures_of(run, record)]

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        known = {r.task.case.id: r.task.case for records in self._records.values() for r in records.values()}
        bare: dict[str, Any] = {"tags": (), "sources": (), "written_as": (), "count": 1, "duration": None}
        return {key: replace(known[key], **bare) for key in ids if key in known}

    def counts(self, run_id: str) -> dict[str, int]:
        cases = [record.task.case for record in self.records(run_id)]
        return {case.id: case.count for case in cases if case.count > 1}

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        return {key: self._environments[key] for key in ids if key in self._environments}

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        self._findings.append(MachineFinding(kind, chip, started, msgspec.to_builtins(body)))

    def kept(self, kind: str, chip: str) -> Any:
        found = [f for f in reversed(self._findings) if (f.kind, f.chip) == (kind, chip)]
        return max(found, key=lambda finding: finding.started).body if found else None

    def findings(self) -> list[MachineFinding]:
        return list(self._findings)

    def add_tuned(self, entries: Sequence[TunedEntry]) -> int:
        new = [entry for entry in entries if entry not in self._tuned]
        self._tuned += new
        return len(new)

    def tuned(self, op: str | None = None, backend: str | None = None, case: str | None = None) -> list[TunedEntry]:
        return [
            entry
            for entry in self._tuned
            if op in (None, entry.op) and backend in (None, entry.backend) and case in (None, entry.case)
        ]

    def remove(self, run_ids: Sequence[str]) -> None:
        self._runs = [run for run in self._runs if run.id not in run_ids]
        for run_id in run_ids:
            self._records.pop(run_id, None)

    def close(self) -> None:
        return None
