"""Transfer runs between stores: write an uploaded run in one transaction, and make the parts that `opmark push`
sends."""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, func, select

from opmark.errors import UserError
from opmark.schema import Environment, Run
from opmark.schema.machine import MachineFinding, findings_key
from opmark.schema.tuned import TunedEntry
from opmark.schema.upload import (
    FORMAT,
    EnvironmentLine,
    FindingLine,
    Header,
    Note,
    PushReply,
    RecordIdParts,
    Seal,
    SentRecord,
    TunedLine,
)
from opmark.store.merge import add_findings, add_notes, notes_of
from opmark.store.record_codec import (
    encoded,
    from_row,
    pack_samples,
    plain_body,
    storable,
    storable_json,
    to_row,
    unpack_samples,
)
from opmark.store.runs import noise_under
from opmark.store.sql import SqlStore, run_row, tuned_row
from opmark.store.tables import ENVIRONMENT, FINDING, RECORD, RUN
from opmark.version import VERSION

_AT_ONCE = 500
"""Ids in one statement, which databases limit."""
_CONSTANT = tuple(column for column in RUN.c if column.name not in ("number", "label"))
"""Columns of a run that never change. Its label may: notes hold the current one."""


class IdConflict(UserError):
    """The store has something else under the same id, which stays."""


@dataclass
class UploadedRun:
    run: Run
    notes: tuple[Note, ...]
    environments: list[Environment] = field(default_factory=list)
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows of the table, by id."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the table."""
    findings: list[MachineFinding] = field(default_factory=list)
    tuned: list[TunedEntry] = field(default_factory=list)


def store_upload(store: SqlStore, arrived: UploadedRun) -> PushReply:
    """Write the parts of an uploaded run that the store lacks. Raises IdConflict, and writes nothing, if the store has
    something else under the same ids."""
    run_id = arrived.run.id
    with store.writing() as here:
        store.database.lock(here)  # two uploads of the same run are written one after the other
        begun = _begin(store, here, arrived.run)
        _add_environments(store, here, arrived.environments)
        if arrived.cases:
            store.add_cases(here, list(arrived.cases.values()))
        of_run = store.run_column(here, run_id) == run_id
        missing = _missing(here, of_run, run_id, arrived.records)
        for some in _parts(missing):
            store.add_records(here, list(some))
        add_notes(here, run_id, [_note_row(note) for note in arrived.notes])
        findings = add_findings(here, [_finding_row(finding) for finding in _unknown(here, arrived.findings)])
        store.add_tuned_rows(here, [tuned_row(entry) for entry in arrived.tuned])
        stored = here.execute(select(func.count(RECORD.c.number)).where(of_run)).scalar_one()
    return PushReply(run_id, begun, len(arrived.records), len(missing), findings, stored)


def _begin(store: SqlStore, here: Connection, run: Run) -> bool:
    """Add the run, and return whether it is new."""
    row = run_row(run)
    new = here.execute(store.database.insert_new(RUN).execution_options(preserve_rowcount=True), row).rowcount == 1
    there = here.execute(select(*_CONSTANT).where(RUN.c.id == run.id)).one()
    other = [column.name for column, value in zip(_CONSTANT, there, strict=True) if value != row[column.name]]
    if other:
        raise IdConflict(
            f"run {run.id}: another run of this id is there already: it differs in {', '.join(other)}",
            "nothing was changed; is it the right dashboard?",
        )
    return new


def _add_environments(store: SqlStore, here: Connection, environments: Sequence[Environment]) -> None:
    rows = [{"id": one.id, "facts": storable_json(encoded(one.facts).decode())} for one in environments]
    if rows:  # sorted, as all writers do, so that none waits for another
        here.execute(store.database.insert_new(ENVIRONMENT), sorted(rows, key=lambda row: row["id"]))


def _missing(
    here: Connection, of_run: ColumnElement[bool], run_id: str, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows that the store lacks; `of_run` finds those of the run. Existing ones must be equal, because
    records are never changed."""
    there: set[str] = set()
    columns = (RECORD.c.task_id, RECORD.c.body, RECORD.c.samples)
    for some in _parts(rows):
        wanted = {row["task_id"]: row for row in some}
        query = select(*columns).where(of_run, RECORD.c.task_id.in_(wanted))
        for found in here.execute(query):
            _check_same(run_id, found, wanted[found.task_id])
            there.add(found.task_id)
    return [row for row in rows if row["task_id"] not in there]


def _check_same(run_id: str, there: Any, row: dict[str, Any]) -> None:
    if there.body == row["body"] and there.samples == row["samples"]:
        return
    # Another version may have compressed the same data differently, or may have known fewer fields.
    if _comparable(there.body, there.samples) != _comparable(row["body"], row["samples"]):
        raise IdConflict(
            f"run {run_id}: task {there.task_id} of {row['op']} on {row['backend']} has another record there already",
            "nothing was changed; records are never overwritten",
        )


def _comparable(body: bytes | str, samples: bytes) -> tuple[bytes, bytes]:
    """Return a record as bytes for comparison, because NaN is not equal to itself."""
    record = from_row(body, samples)
    return encoded(record), pack_samples([m.samples for m in record.measurements])


def _unknown(here: Connection, findings: Sequence[MachineFinding]) -> list[MachineFinding]:
    """Return the findings about machines for which the store has none of that kind. Verdicts depend on findings, so an
    upload must not replace one that exists."""
    known = {tuple(row) for row in here.execute(select(FINDING.c.kind, FINDING.c.chip).distinct())}
    return [finding for finding in findings if (finding.kind, storable(finding.chip)) not in known]


def _note_row(note: Note) -> dict[str, Any]:
    return {"kind": note.kind, "text": storable(note.text), "noted": note.noted}


def _finding_row(finding: MachineFinding) -> dict[str, Any]:
    body = encoded(finding.body).decode()
    return {"kind": finding.kind, "chip": storable(finding.chip), "started": finding.started, "body": body}


def _parts(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


_SENT_AT_ONCE = 200
"""Records in memory at once: they may have thousands of samples."""
_GZIP = 31
"""Window parameter of zlib: the largest window, with the header and checksum of gzip."""
_id_parts = msgspec.json.Decoder(RecordIdParts)


@dataclass
class UploadPart:
    """A run and some of its records, as one upload."""

    run: Run
    notes: tuple[Note, ...]
    records: int = 0
    environments: set[str] = field(default_factory=set)
    lines: list[bytes] = field(default_factory=list)
    """Encoded records, one per line."""
    nbytes: int = 0
    """Size of these lines in bytes."""


def parts(store: SqlStore, run_id: str, most: int, most_bytes: int) -> Iterator[UploadPart]:
    """Split a run into parts of at most `most` records and little more than `most_bytes`. A run without records is one
    part."""
    with store.reading() as connection:
        columns = connection.execute(select(RUN).where(RUN.c.id == run_id)).mappings().one()
        run = Run(**{name: value for name, value in columns.items() if name != "number"})
        notes = tuple(Note(note["kind"], note["text"], note["noted"]) for note in notes_of(connection, run_id))
        part = UploadPart(run, notes)
        for row in _rows(store, connection, run_id):
            if part.records == most or part.nbytes > most_bytes:
                yield part
                part = UploadPart(run, notes)
            store.decode_rows([row], partial(_add, part))
        yield part


def _rows(store: SqlStore, connection: Connection, run_id: str) -> Iterator[Any]:
    """Yield the records that exist now; those that are added meanwhile are left to the next push."""
    of_run = store.run_column(connection, run_id) == run_id
    which = select(RECORD.c.number).where(of_run).order_by(RECORD.c.number)
    numbers = connection.execute(which).scalars().all()
    columns = (RECORD.c.run_id, RECORD.c.task_id, RECORD.c.body, RECORD.c.samples, RECORD.c.environment_id)
    for start in range(0, len(numbers), _SENT_AT_ONCE):
        some = RECORD.c.number.in_(numbers[start : start + _SENT_AT_ONCE])
        yield from connection.execute(select(*columns).where(some).order_by(RECORD.c.number)).all()


def _add(part: UploadPart, row: Any) -> None:
    body, samples = row.body, row.samples
    if isinstance(body, str):  # its writer began before the store was upgraded
        packed = to_row(part.run.id, from_row(body, samples))
        body, samples = packed["body"], packed["samples"]
    plain = plain_body(body)
    task = _id_parts.decode(plain).task_id
    numbers = [_little_endian(values) for values in unpack_samples(samples)]
    sent = SentRecord(part.run.id, task, msgspec.Raw(plain), numbers)
    part.lines.append(msgspec.json.encode(sent))
    part.nbytes += len(part.lines[-1])
    part.records += 1
    if row.environment_id:
        part.environments.add(row.environment_id)


def _little_endian(values: list[float]) -> bytes:
    packed = array("d", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def payload(store: SqlStore, part: UploadPart) -> Iterator[bytes]:
    """Yield the lines of a part with their line ends: header, environments, records, findings, what was tuned, and a
    checksum."""
    environments = sorted(store.environments(part.environments).values(), key=lambda one: one.id)
    findings = _findings(store, environments)
    tuned = [entry for entry in store.tuned() if entry.run == part.run.id]
    header = Header(FORMAT, VERSION, part.run, len(environments), part.records, len(findings), part.notes, len(tuned))
    lines = [encoded(header), *(encoded(EnvironmentLine(one)) for one in environments)]
    lines += [*part.lines, *(encoded(FindingLine(finding)) for finding in findings)]
    lines += [encoded(TunedLine(entry)) for entry in tuned]
    whole = hashlib.sha256()
    for line in lines:
        ended = line + b"\n"
        whole.update(ended)
        yield ended
    yield encoded(Seal(len(lines), whole.hexdigest())) + b"\n"


def _findings(store: SqlStore, environments: Sequence[Environment]) -> list[MachineFinding]:
    """Return the newest finding of each kind and machine, which is the one that counts."""
    chips = {("peaks", findings_key(one.facts)) for one in environments}
    chips |= {("noise", noise_under(one.facts.get("backend"), one.facts)) for one in environments}
    newest: dict[tuple[str, str], MachineFinding] = {}
    for finding in store.findings():
        key = (finding.kind, finding.chip)
        if key in chips and (key not in newest or finding.started >= newest[key].started):
            newest[key] = finding
    return [newest[key] for key in sorted(newest)]


def gzipped(lines: Iterator[bytes]) -> bytes:
    """Compress lines without a time stamp, so that equal lines give equal bytes."""
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    return b"".join([*(packer.compress(line) for line in lines), packer.flush()])
