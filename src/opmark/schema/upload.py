"""The format of `opmark push` and the dashboard's answer: a run, or a part of one, as lines of JSON.

    header        format, version of the sender, the run, its notes, the number of lines of each kind
    environments  one per line; their ids are hashes of their content
    records       one per line, in the order in which they were stored
    findings      peaks and noise of the machines above, so that the dashboard can draw rooflines too
    tuned         what a tuning has found whose candidates are the records of this run
    seal          the number of lines before it, and the SHA-256 of all of them

Samples stand beside their record as base64 of little-endian float64, one text per measurement: JSON has no NaN.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from opmark.schema.case import content_id
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Environment, Record
from opmark.schema.run import Run
from opmark.schema.task import written_identity
from opmark.schema.tuned import TunedEntry

FORMAT = 1
"""A dashboard refuses any other format: it would lose fields that it does not know."""
PATH = "/api/runs"
"""Path of the POST request below the address of a dashboard."""
MEDIA_TYPE = "application/x-ndjson"


class Note(Struct, frozen=True, forbid_unknown_fields=True):
    """A label or description that was set after the run began. The newest of each kind counts."""

    kind: Literal["label", "description"]
    text: str
    noted: str
    """UTC, ISO 8601."""


class Header(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    opmark_push: int
    """`FORMAT`."""
    version: str
    """Version of the sender's opmark."""
    run: Run
    """The run as it began; notes may have changed its label and description since."""
    environments: int
    records: int
    findings: int
    notes: tuple[Note, ...] = ()
    tuned: int = 0
    """Left out where it is 0, because an older dashboard does not know it."""


class EnvironmentLine(Struct, frozen=True, forbid_unknown_fields=True):
    environment: Environment


class RecordLine(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    """Run id of the header, repeated so that a line of another run is noticed."""
    task: str
    """Id of the task, computed from the content of the record."""
    record: Record
    """The record, with its measurements' samples taken out."""
    samples: tuple[bytes, ...] = ()
    """Samples of each measurement."""


class FindingLine(Struct, frozen=True, forbid_unknown_fields=True):
    finding: MachineFinding


class TunedLine(Struct, frozen=True, forbid_unknown_fields=True):
    tuned: TunedEntry


class Seal(Struct, frozen=True, forbid_unknown_fields=True):
    lines: int
    sha256: str


class PushReply(Struct, frozen=True):
    """The dashboard's answer: what is new, and what it has stored now."""

    run: str
    begun: bool
    """Whether the run was new."""
    records: int
    """Number of records that were sent."""
    new: int
    """Number of sent records that were new."""
    findings: int
    """Number of new findings."""
    stored: int
    """Number of records of this run that are stored now."""


class _CaseId(Struct):
    id: str


class _TaskParts(Struct):
    case: _CaseId
    backend: str
    implementation: str
    settings: dict[str, Any]


class RecordIdParts(Struct):
    """The parts of a record that make its task's id, as the sender wrote them.

    Settings stay as they were at the time of measuring: a later version may have more of them, and so other ids.
    """

    task: _TaskParts

    @property
    def task_id(self) -> str:
        task = self.task
        return content_id([task.case.id, task.backend, task.implementation, written_identity(task.settings)])


class RecordLineIdParts(Struct):
    record: RecordIdParts


class SentRecord(Struct, frozen=True):
    """A record line when sending: `record` is the stored JSON itself."""

    run: str
    task: str
    record: Any
    samples: list[bytes]
