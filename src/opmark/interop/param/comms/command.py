"""opmark param comms: PARAM's comms.py, measured by opmark."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opmark.api.result import Result, interruption_line
from opmark.api.run import run
from opmark.interop.param.comms.options import LEVELS, CommsRequest, make_request, parse_options, remarks
from opmark.interop.param.comms.output import JsonFile, header
from opmark.interop.param.comms.output import line as format_line
from opmark.interop.param.comms.rows import QUANTITY, CommsRow
from opmark.interop.param.results import RecordsInOrder
from opmark.interop.visible_devices import set_variables
from opmark.schema import Entry, Record, Workload
from opmark.schema.record import MEASURED
from opmark.schema.workload import VERSION

if TYPE_CHECKING:
    from opmark.runner.ranks.job import JobRank

DEFAULT_RANKS = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 for success, 1 if a size failed, 130 after Ctrl-C."""
    given = parse_options(arguments)
    # Imported here, because neither -h nor a wrong option needs these modules.
    from opmark.interop.param.comms.output import JsonFile
    from opmark.interop.param.comms.rows import rows_of
    from opmark.runner.ranks.job import read_job

    rendezvous = _rendezvous(given)
    place = read_job({**os.environ, **rendezvous})
    talk = CommsLog(LEVELS.index(given.log), first=place is None or place.rank == 0)
    request = make_request(given, _rank_count(given, place))
    rows = rows_of(request) if not given.init_only else []
    lines = [
        *remarks(given),
        *_rank_remarks(given, place),
        *_group_remarks(request),
        *_blocking_remarks(given, rows),
    ]
    for line in lines:
        talk.warning(line)
    with set_variables(rendezvous if place else {}), JsonFile(given.json if talk.first else None, request) as file:
        return Session(given, request, file, talk).run(rows)


def _rank_count(given: argparse.Namespace, place: JobRank | None) -> int:
    """Return the number of ranks; under a launcher it is the number that it started."""
    if place:
        return place.size
    return DEFAULT_RANKS if given.ranks is None else int(given.ranks)


def _rank_remarks(given: argparse.Namespace, place: JobRank | None) -> list[str]:
    if place:
        same = given.ranks in (None, place.size)
        return [] if same else [f"--ranks {given.ranks} is ignored: {place.launcher} started {place.size} ranks"]
    lines = [
        f"{option} is ignored: ranks on this machine find each other without it"
        for option, value in (("--master-ip", given.master_ip), ("--master-port", given.master_port))
        if value is not None
    ]
    if given.ranks is None:
        lines.append(f"without a launcher and --ranks, {DEFAULT_RANKS} ranks are started on this machine")
    return lines


def _group_remarks(request: CommsRequest) -> list[str]:
    if not request.group:
        return []
    return [f"--multi-comms: a group has {request.group} neighbouring ranks; PARAM assigns ranks to groups in turn"]


def _blocking_remarks(given: argparse.Namespace, rows: Sequence[CommsRow]) -> list[str]:
    """Return a remark if --z 0 was given; it is also the default, which needs no remark."""
    if given.z != 0:
        return []
    without = {row.collective for row in rows if not any("asynchronous" in case.params for case in row.cases)}
    return [f"--z 0 has no effect on {', '.join(sorted(without))}, which always block"] if without else []


def _rendezvous(given: argparse.Namespace) -> dict[str, str]:
    """Return variables for the options, which take precedence over the environment as in PARAM."""
    both = (("MASTER_ADDR", given.master_ip), ("MASTER_PORT", given.master_port))
    return {name: value for name, value in both if value is not None}


# One run of comms.py: measures the rows and prints each as soon as it is known.


@dataclass(frozen=True)
class CommsLog:
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
    request: CommsRequest
    file: JsonFile
    talk: CommsLog
    _table: tuple[str, str] | None = None
    _failed: bool = False

    def run(self, rows: Sequence[CommsRow]) -> int:
        self._in_order = RecordsInOrder(rows, self._report_row)
        entries = [Entry(case.op, case.params) for row in rows for case in row.cases]
        if not rows:
            entries = [Entry("barrier", {"ranks": self.request.ranks})]
        try:
            found = self._measure(entries)
        except KeyboardInterrupt:
            self.talk.error(interruption_line(self._in_order.stored_runs, self.given.db))
            return 130
        if found.rank:  # rank 0 has the records and the exit code
            return found.exit_code
        if not rows:
            self._report_connection(found.records)
        (self.talk.error if found.journals else self.talk.info)(found.storage)
        return 1 if self._failed or not self._in_order.is_complete or found.journals else 0

    def _report_connection(self, records: Sequence[Record]) -> None:
        for record in records:
            self._failed = self._failed or record.status not in MEASURED
            text = f"{self.request.ranks} ranks are connected through {self.request.place.engine}"
            if record.status not in MEASURED:
                text = f"--init-only: {record.status_text}: {record.reason}"
            self.talk.row(text)

    def _measure(self, entries: list[Entry]) -> Result:
        """Run the entries; each collective of an iteration is one sample."""
        request, per_iteration = self.request, self.request.per_iteration
        return run(
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

    def _report_row(self, row: CommsRow, records: Sequence[Record]) -> None:
        if row.table != self._table:
            self._table = row.table
            self.talk.row(header(row.collective))
        text = format_line(row, records)
        if text is None:
            self._failed = True
            self.talk.error(f"{row.label} {row.size}: {_why_failed(records)}")
        else:
            self.talk.row(text)
        for caution in _cautions(row, records):
            self.talk.info(caution)
        self.file.write(row, records, self._in_order.run_id)


def _why_failed(records: Sequence[Record]) -> str:
    found = next((record for record in records if record.status not in MEASURED), records[0])
    which = f"{found.task.case.params.get('pattern', '')} " if found.task.case.op == "p2p" else ""
    return f"{which}{found.status_text}: {found.reason or 'there is no time by the host clock'}"


def _cautions(row: CommsRow, records: Sequence[Record]) -> list[str]:
    cautions = (caution for record in records for found in record.measurements for caution in found.cautions)
    return [f"{row.label} {row.size}: {caution.message}" for caution in cautions]
