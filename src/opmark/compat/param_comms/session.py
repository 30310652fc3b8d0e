"""One command of comms.py: what opmark is asked for, and its rows, told as they come."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from opmark import api
from opmark.compat.param_comms.figures import QUANTITY
from opmark.compat.param_comms.json_rows import JsonFile
from opmark.compat.param_comms.options import Asked
from opmark.compat.param_comms.parser import LEVELS
from opmark.compat.param_comms.rows import Row
from opmark.compat.param_comms.table import header, line
from opmark.result import Result
from opmark.runner.plan import Plan
from opmark.schema import Entry, Record, Run, Workload
from opmark.schema.workload import VERSION


@dataclass(frozen=True)
class Talk:
    """The table goes to standard output, the rest to standard error; only rank 0 says anything."""

    level: int
    first: bool = True

    def row(self, text: str) -> None:
        if self.first:
            print(text, flush=True)

    def anywhere(self, text: str) -> None:
        """Of this process, whichever rank it is."""
        if self.level <= LEVELS.index("INFO"):
            print(text, file=sys.stderr, flush=True)

    def info(self, text: str) -> None:
        self._if("INFO", text)

    def warning(self, text: str) -> None:
        self._if("WARNING", text)

    def error(self, text: str) -> None:
        self._if("ERROR", text)

    def _if(self, level: str, text: str) -> None:
        if self.first and self.level <= LEVELS.index(level):
            print(text, file=sys.stderr, flush=True)


@dataclass
class Session:
    """One command: its rows, told in their order as soon as they and all before them are there."""

    given: argparse.Namespace
    asked: Asked
    file: JsonFile
    talk: Talk
    _run_id: str = ""
    _waiting: deque[Row] = field(default_factory=deque)
    _records: dict[str, Record] = field(default_factory=dict)
    _table: tuple[str, str] | None = None
    _failed: bool = False

    def run(self, rows: Sequence[Row]) -> int:
        self._waiting.extend(rows)
        entries = [Entry(case.op, case.params) for row in rows for case in row.cases] or [self._meeting()]
        try:
            found = self._measure(entries)
        except KeyboardInterrupt:
            self.talk.error("interrupted: what was measured until then is in the store")
            return 130
        if found.rank:  # rank 0 has the records, and has decided how it ended
            return found.exit_code
        if not rows:
            self._tell_of_meeting(found.records)
        self.talk.info(f"stored as run {found.run.id} in {found.db}")
        return 1 if self._failed or self._waiting else 0

    def _meeting(self) -> Entry:
        return Entry("barrier", {"ranks": self.asked.ranks})

    def _tell_of_meeting(self, records: Sequence[Record]) -> None:
        for record in records:
            self._failed = self._failed or record.status != "ok"
            told = f"{self.asked.ranks} ranks met through {self.asked.place.engine}"
            self.talk.row(told if record.status == "ok" else f"--init-only: {record.status}: {record.reason}")

    def _measure(self, entries: list[Entry]) -> Result:
        """Each iteration is one sample; several collectives of an iteration are as many samples."""
        asked, each = self.asked, self.asked.per_iteration
        return api.run(
            workload=Workload(VERSION, "param comms", entries),
            backend=asked.place.backend,
            quantity=QUANTITY,
            effort="quick",
            processes=1,
            warmup=asked.warmup * each,
            samples=asked.iterations * each,
            verify=not self.given.no_verify,
            timeout=self.given.timeout,
            db=self.given.db,
            on_start=self._start,
            on_record=self._add,
            say=self.talk.anywhere,
        )

    def _start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        """What cannot run here is known before the rest begins."""
        self._run_id = run.id
        coming = {task.case.id for task in plan.tasks}
        self._records = {r.task.case.id: r for r in plan.skipped if r.task.case.id not in coming}
        self._tell()

    def _add(self, record: Record) -> None:
        self._records.setdefault(record.task.case.id, record)
        self._tell()

    def _tell(self) -> None:
        while self._waiting and all(case.id in self._records for case in self._waiting[0].cases):
            row = self._waiting.popleft()
            self._tell_row(row, [self._records[case.id] for case in row.cases])

    def _tell_row(self, row: Row, records: Sequence[Record]) -> None:
        if row.table != self._table:
            self._table = row.table
            self.talk.row(header(row.collective))
        told = line(row, records)
        if told is None:
            self._failed = True
            self.talk.error(f"{row.label} {row.size}: {_why(records)}")
        else:
            self.talk.row(told)
        for text in _doubts(row, records):
            self.talk.info(text)
        self.file.write(row, records, self._run_id)


def _why(records: Sequence[Record]) -> str:
    found = next((record for record in records if record.status != "ok"), records[0])
    which = f"{found.task.case.params.get('pattern', '')} " if found.task.case.op == "p2p" else ""
    return f"{which}{found.status}: {found.reason or 'it has no time by the host clock'}"


def _doubts(row: Row, records: Sequence[Record]) -> list[str]:
    cautions = (caution for record in records for found in record.measurements for caution in found.cautions)
    return [f"{row.label} {row.size}: {caution.message}" for caution in cautions]
