"""A stored run as what `opmark push` sends: parts of a bounded size, each of them whole in itself."""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from opmark.schema import Environment, Run
from opmark.schema.finding import Finding
from opmark.schema.peaks import kept_under
from opmark.schema.pushed import (
    FORMAT,
    EnvironmentLine,
    FindingLine,
    Header,
    Note,
    RecordTold,
    Seal,
    SentRecord,
)
from opmark.store.find import noise_under
from opmark.store.merge import notes_of
from opmark.store.pack import decoding, encoded, from_row, plain_body, to_row, unpack_samples
from opmark.store.sql import SqlStore
from opmark.store.tables import RECORD, RUN
from opmark.version import VERSION

_AT_ONCE = 200
"""Records in memory that are not packed: they may have thousands of samples."""
_GZIP = 31
"""Of zlib: the largest window, with the head and the checksum of gzip."""
_told = msgspec.json.Decoder(RecordTold)


@dataclass
class Part:
    """A run, and some of its records."""

    run: Run
    notes: tuple[Note, ...]
    records: int = 0
    environments: set[str] = field(default_factory=set)
    lines: list[bytes] = field(default_factory=list)
    """Of the records."""
    nbytes: int = 0
    """Of these lines."""


def parts(store: SqlStore, run_id: str, most: int, most_bytes: int) -> Iterator[Part]:
    """At most so many records in each, and not many more bytes. A run without records is one part as well."""
    with store.reading() as connection:
        columns = connection.execute(select(RUN).where(RUN.c.id == run_id)).mappings().one()
        run = Run(**{name: value for name, value in columns.items() if name != "number"})
        notes = tuple(Note(note["kind"], note["text"], note["noted"]) for note in notes_of(connection, run_id))
        part = Part(run, notes)
        for row in _rows(connection, run_id):
            if part.records == most or part.nbytes > most_bytes:
                yield part
                part = Part(run, notes)
            _add(part, row)
        yield part


def _rows(connection: Connection, run_id: str) -> Iterator[Any]:
    """Those that are there now; what comes meanwhile is for the next time."""
    which = select(RECORD.c.number).where(RECORD.c.run_id == run_id).order_by(RECORD.c.number)
    numbers = connection.execute(which).scalars().all()
    columns = (RECORD.c.body, RECORD.c.samples, RECORD.c.environment_id)
    for start in range(0, len(numbers), _AT_ONCE):
        some = RECORD.c.number.in_(numbers[start : start + _AT_ONCE])
        yield from connection.execute(select(*columns).where(some).order_by(RECORD.c.number)).all()


def _add(part: Part, row: Any) -> None:
    body, samples = row.body, row.samples
    if isinstance(body, str):  # of a writer that began before the store was upgraded
        packed = to_row(part.run.id, from_row(body, samples))
        body, samples = packed["body"], packed["samples"]
    with decoding():
        plain = plain_body(body)
        task = _told.decode(plain).task_id
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


def payload(store: SqlStore, part: Part) -> Iterator[bytes]:
    """The lines of a part, each with its end."""
    environments = sorted(store.environments(part.environments).values(), key=lambda one: one.id)
    findings = _findings(store, environments)
    header = Header(FORMAT, VERSION, part.run, len(environments), part.records, len(findings), part.notes)
    lines = [encoded(header), *(encoded(EnvironmentLine(one)) for one in environments)]
    lines += [*part.lines, *(encoded(FindingLine(finding)) for finding in findings)]
    whole = hashlib.sha256()
    for line in lines:
        ended = line + b"\n"
        whole.update(ended)
        yield ended
    yield encoded(Seal(len(lines), whole.hexdigest())) + b"\n"


def _findings(store: SqlStore, environments: Sequence[Environment]) -> list[Finding]:
    """Of each kind and machine the newest: the one that counts."""
    chips = {("peaks", kept_under(one.facts)) for one in environments}
    chips |= {("noise", noise_under(one.facts.get("backend"), one.facts)) for one in environments}
    newest: dict[tuple[str, str], Finding] = {}
    for finding in store.findings():
        key = (finding.kind, finding.chip)
        if key in chips and (key not in newest or finding.started >= newest[key].started):
            newest[key] = finding
    return [newest[key] for key in sorted(newest)]


def gzipped(lines: Iterator[bytes]) -> bytes:
    """The same bytes for the same lines, whenever it is done."""
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    return b"".join([*(packer.compress(line) for line in lines), packer.flush()])
