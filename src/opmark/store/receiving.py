"""A run from elsewhere, checked already, written into a store: all of it in one transaction, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from opmark.errors import UserError
from opmark.schema import Environment, Run
from opmark.schema.finding import Finding
from opmark.schema.pushed import Note, Received
from opmark.store.merge import add_findings, add_notes
from opmark.store.pack import encoded, from_row, pack_samples, storable, storable_json
from opmark.store.sql import SqlStore, run_row
from opmark.store.tables import ENVIRONMENT, FINDING, RECORD, RUN

_AT_ONCE = 500
"""Ids in one statement: databases limit how many values one takes."""
_CONSTANT = tuple(column for column in RUN.c if column.name not in ("number", "label"))
"""What never changes of a run. Its label does, in the words of people; there are notes for that."""


class Taken(UserError):
    """Something else is in the store under the same id. It stays."""


@dataclass
class Arrived:
    run: Run
    notes: tuple[Note, ...]
    environments: list[Environment] = field(default_factory=list)
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows of the table, by id."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the table."""
    findings: list[Finding] = field(default_factory=list)


def take_in(store: SqlStore, arrived: Arrived) -> Received:
    """What is there already is left out. `Taken`, and nothing is written, where it is there and not the same."""
    run_id = arrived.run.id
    with store.writing() as here:
        store.database.lock(here)  # two of the same run come one after the other
        begun = _begin(store, here, arrived.run)
        _add_environments(store, here, arrived.environments)
        if arrived.cases:
            store.add_cases(here, list(arrived.cases.values()))
        missing = _missing(here, run_id, arrived.records)
        for some in _parts(missing):
            store.add_records(here, list(some))
        add_notes(here, run_id, [_note_row(note) for note in arrived.notes])
        findings = add_findings(here, [_finding_row(finding) for finding in _unknown(here, arrived.findings)])
        stored = here.execute(select(func.count()).where(RECORD.c.run_id == run_id)).scalar_one()
    return Received(run_id, begun, len(arrived.records), len(missing), findings, stored)


def _begin(store: SqlStore, here: Connection, run: Run) -> bool:
    """Whether it is new."""
    row = run_row(run)
    new = here.execute(store.database.insert_new(RUN).execution_options(preserve_rowcount=True), row).rowcount == 1
    there = here.execute(select(*_CONSTANT).where(RUN.c.id == run.id)).one()
    other = [column.name for column, value in zip(_CONSTANT, there, strict=True) if value != row[column.name]]
    if other:
        raise Taken(
            f"run {run.id}: another run of this id is there already: it differs in {', '.join(other)}",
            "nothing was changed; is it the right dashboard?",
        )
    return new


def _add_environments(store: SqlStore, here: Connection, environments: Sequence[Environment]) -> None:
    rows = [{"id": one.id, "facts": storable_json(encoded(one.facts).decode())} for one in environments]
    if rows:  # in the order of their ids, as everybody inserts them
        here.execute(store.database.insert_new(ENVIRONMENT), sorted(rows, key=lambda row: row["id"]))


def _missing(here: Connection, run_id: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are not there yet. What is there must be the same: a record is never changed."""
    there: set[str] = set()
    columns = (RECORD.c.task_id, RECORD.c.body, RECORD.c.samples)
    for some in _parts(rows):
        wanted = {row["task_id"]: row for row in some}
        query = select(*columns).where(RECORD.c.run_id == run_id, RECORD.c.task_id.in_(wanted))
        for found in here.execute(query):
            _check_same(run_id, found, wanted[found.task_id])
            there.add(found.task_id)
    return [row for row in rows if row["task_id"] not in there]


def _check_same(run_id: str, there: Any, row: dict[str, Any]) -> None:
    if there.body == row["body"] and there.samples == row["samples"]:
        return
    # Another version may have packed the same in another way, or may have known fewer fields.
    if _comparable(there.body, there.samples) != _comparable(row["body"], row["samples"]):
        raise Taken(
            f"run {run_id}: task {there.task_id} of {row['op']} on {row['backend']} has another record there already",
            "nothing was changed; records are never overwritten",
        )


def _comparable(body: bytes | str, samples: bytes) -> tuple[bytes, bytes]:
    """By bytes: NaN is not equal to itself."""
    record = from_row(body, samples)
    return encoded(record), pack_samples([m.samples for m in record.measurements])


def _unknown(here: Connection, findings: Sequence[Finding]) -> list[Finding]:
    """Those of machines of which nothing of the kind is known here. All verdicts about a machine rest on one finding:
    what a stranger says of it must not take the place of what was found out before."""
    known = {tuple(row) for row in here.execute(select(FINDING.c.kind, FINDING.c.chip).distinct())}
    return [finding for finding in findings if (finding.kind, storable(finding.chip)) not in known]


def _note_row(note: Note) -> dict[str, Any]:
    return {"kind": note.kind, "text": storable(note.text), "noted": note.noted}


def _finding_row(finding: Finding) -> dict[str, Any]:
    body = encoded(finding.body).decode()
    return {"kind": finding.kind, "chip": storable(finding.chip), "started": finding.started, "body": body}


def _parts(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]
