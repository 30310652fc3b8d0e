"""What `opmark push` sends and a dashboard answers: a run, or a part of one, as lines of JSON.

    header        format, who sent it, the run, what was said of it, how many lines of each kind follow
    environments  one a line; their ids are hashes of their content
    records       one a line, in the order in which they were stored
    findings      peaks and noise of the machines above, so that rooflines can be drawn there too
    seal          how many lines came before, and the SHA-256 of all of them

Samples stand beside their record as base64 of little-endian float64, one text a measurement: JSON has no NaN.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from opmark.schema.case import content_id
from opmark.schema.environment import Environment
from opmark.schema.finding import Finding
from opmark.schema.record import Record
from opmark.schema.run import Run

FORMAT = 1
"""A dashboard refuses others than its own: what it does not know it would lose."""
PATH = "/api/runs"
"""Where it is sent to, by POST, below the address of a dashboard."""
MEDIA_TYPE = "application/x-ndjson"


class Note(Struct, frozen=True, forbid_unknown_fields=True):
    """What was said of a run after it began. The newest of a kind counts."""

    kind: Literal["label", "description"]
    text: str
    noted: str
    """UTC, ISO 8601."""


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    opmark_push: int
    """`FORMAT`."""
    version: str
    """Of the opmark that sends."""
    run: Run
    """As it began: its label and its description may have been changed by notes."""
    environments: int
    records: int
    findings: int
    notes: tuple[Note, ...] = ()


class EnvironmentLine(Struct, frozen=True, forbid_unknown_fields=True):
    environment: Environment


class RecordLine(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    """The same as in the header: a line of another run is told from one of this."""
    task: str
    """The id of its task, as the content says it."""
    record: Record
    """Its measurements have no samples."""
    samples: tuple[bytes, ...] = ()
    """Of each measurement."""


class FindingLine(Struct, frozen=True, forbid_unknown_fields=True):
    finding: Finding


class Seal(Struct, frozen=True, forbid_unknown_fields=True):
    lines: int
    sha256: str


class Received(Struct, frozen=True):
    """The answer: what is new, and what there is now."""

    run: str
    begun: bool
    """Whether the run itself is new."""
    records: int
    """That were sent."""
    new: int
    """Of these, those that were not there yet."""
    findings: int
    """New ones."""
    stored: int
    """Records of this run that are there now."""


class _CaseTold(Struct):
    id: str


class _TaskTold(Struct):
    case: _CaseTold
    backend: str
    implementation: str
    settings: dict[str, Any]


class RecordTold(Struct):
    """Of a record, just what its task's id is made of, as it is written: with the settings that there were when it was
    measured. A later version may know more of them, and has other ids for that."""

    task: _TaskTold

    @property
    def task_id(self) -> str:
        task = self.task
        return content_id([task.case.id, task.backend, task.implementation, task.settings])


class LineTold(Struct):
    record: RecordTold


class SentRecord(Struct, frozen=True):
    """A line of a record as it is written: its content is JSON already, just as it was stored."""

    run: str
    task: str
    record: Any
    samples: list[bytes]
