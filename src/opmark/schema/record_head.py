"""RecordHead: a record without its samples, which is what is read of thousands of records at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from opmark.schema.cost import Cost
from opmark.schema.record import GraphCoverage, Record, Status, StoredFigure
from opmark.schema.task import Settings


class HeadCase(Struct, frozen=True):
    tags: tuple[str, ...] = ()
    count: int = 1
    duration: float | None = None


class HeadTask(Struct, frozen=True):
    case: HeadCase
    settings: Settings


class HeadMemory(Struct, frozen=True):
    peak: int
    source: str = ""
    resolution: int = 1


class HeadCompilation(Struct, frozen=True):
    cold: float
    cached: float | None = None
    graphs: int | None = None
    coverage: GraphCoverage | None = None
    export: float | None = None


class HeadVerification(Struct, frozen=True):
    checked: str


class HeadBody(Struct, frozen=True):
    """The part of a record's JSON that a head has. A whole `Record` has these attributes too."""

    task: HeadTask
    cost: Cost | None = None
    memory: HeadMemory | None = None
    compilation: HeadCompilation | None = None
    verification: HeadVerification | None = None
    called: str = ""
    view: bool = False
    notes: tuple[str, ...] = ()
    stage: str = ""


class RecordHead(NamedTuple):
    """A record without its samples."""

    number: int
    """Records are numbered in the order written; 0 for one that was not read from a store."""
    run: str
    task: str
    case: str
    op: str
    phase: str
    backend: str
    implementation: str
    threads: int
    process: int
    status: Status
    reason: str
    environment: str
    started: str
    duration: float
    figures: Sequence[StoredFigure]
    """One for each measurement."""
    body: HeadBody | Record
