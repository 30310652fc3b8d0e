"""One run of comms.py: measures the rows and prints each as soon as it is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from opmark import api
from opmark.compat.param.ordering import RecordsInOrder
from opmark.compat.param_comms.figures import QUANTITY
from opmark.compat.param_comms.json_rows import JsonFile
from opmark.compat.param_comms.options import Asked
from opmark.compat.param_comms.parser import LEVELS
from opmark.compat.param_comms.rows import Row
from opmark.compat.param_comms.table import header, line
from opmark.result import Result
from opmark.schema import Entry, Record, Workload
from opmark.schema.workload import VERSION


@dataclass(frozen=True)
class Talk:
    """Prints the table to standard output and the rest to standard error, on rank 0 only."""

    level: int
    first: bool = True

    def row(self, text: str) -> None:
        if self.first:
            print(text, flush=True)

    def any_rank(self, text: str) -> None:
        """Print a message of this process, whatever its rank is."""
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
    """Measures rows and reports each of them as soon as all before it are known."""

    given: argparse.Namespace
    request: Asked
    file: JsonFile
    talk: Talk
    _table: tuple[str, str] | None = None
    _failed: bool = False

    def run(self, rows: Sequence[Row]) -> int:
        self._in_order = RecordsInOrder(rows, self._report_row)
        entries = [Entry(case.op, case.params) for row in rows for case in row.cases]
        if not rows:
            entries = [Entry("barrier", {"ranks": self.request.ranks})]
        try:
            found = self._measure(entries)
        except KeyboardInterrupt:
            self.talk.error("interrupted: the measurements until then are in the store")
            return 130
        if found.rank:  # rank 0 has the records and the exit code
            return found.exit_code
        if not rows:
            self._report_connection(found.records)
        self.talk.info(f"stored as run {found.run.id} in {found.db}")
        return 1 if self._failed or not self._in_order.is_complete else 0

    def _report_connection(self, records: Sequence[Record]) -> None:
        for record in records:
            self._failed = self._failed or record.status != "ok"
            connected = f"{self.request.ranks} ranks are connected through {self.request.place.engine}"
            self.talk.row(connected if record.status == "ok" else f"--init-only: {record.status}: {record.reason}")

    def _measure(self, entries: list[Entry]) -> Result:
        """Run the entries; each collective of an iteration is one sample."""
        request, per_iteration = self.request, self.request.per_iteration
        return api.run(
            workload=Workload(VERSION, "param comms", entries),
            backend=request.place.backend,
            quantity=QUANTITY,
            effort="quick",
            processes=1,
            warmup=request.warmup * per_iteration,
            samples=request.iterations * per_iteration,
            verify=not self.given.no_verify,
            timeout=self.given.timeout,
            db=self.given.db,
            on_start=self._in_order.start,
            on_record=self._in_order.add,
            say=self.talk.any_rank,
        )

    def _report_row(self, row: Row, records: Sequence[Record]) -> None:
        if row.table != self._table:
            self._table = row.table
            self.talk.row(header(row.collective))
        text = line(row, records)
        if text is None:
            self._failed = True
            self.talk.error(f"{row.label} {row.size}: {_why_failed(records)}")
        else:
            self.talk.row(text)
        for caution in _cautions(row, records):
            self.talk.info(caution)
        self.file.write(row, records, self._in_order.run_id)


def _why_failed(records: Sequence[Record]) -> str:
    found = next((record for record in records if record.status != "ok"), records[0])
    which = f"{found.task.case.params.get('pattern', '')} " if found.task.case.op == "p2p" else ""
    return f"{which}{found.status}: {found.reason or 'there is no time by the host clock'}"


def _cautions(row: Row, records: Sequence[Record]) -> list[str]:
    cautions = (caution for record in records for found in record.measurements for caution in found.cautions)
    return [f"{row.label} {row.size}: {caution.message}" for caution in cautions]
