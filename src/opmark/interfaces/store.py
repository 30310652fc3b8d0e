"""The store: where records are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from opmark.schema import (
    Case,
    Environment,
    Record,
    Run,
)
from opmark.schema.figure import Figure
from opmark.schema.finding import Finding

Noted = Literal["label", "description"]


class Store(Protocol):
    """Append-only: what was written is never changed, and removed by `remove` alone."""

    def begin(self, run: Run) -> None: ...

    def add_environment(self, environment: Environment) -> None: ...

    def append(self, run_id: str, record: Record) -> None:
        """One record a task: a second one of the same run is left out."""

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        """Many at once, all or none of them; how many were new."""

    def note(self, run_id: str, kind: Noted, text: str) -> None:
        """Set the label or the description of a run from now on."""

    def runs(self, limit: int | None = None) -> list[Run]:
        """The runs begun last come first, with the label and the description that were noted last."""

    def records(self, run_id: str) -> list[Record]:
        """The records of a run, in the order written."""

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        """The figures of these runs, or of one case, or of one case in these runs; in the order written."""

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        """Cases by id, without tags and sources, which belong to the record."""

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]: ...

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        """Keep what was found out about a machine: `peaks` or `noise`."""

    def kept(self, kind: str, chip: str) -> Any:
        """The finding of the latest `started`, as plain data; None if there is none."""

    def findings(self) -> list[Finding]:
        """All findings that were ever kept, oldest first."""

    def remove(self, run_ids: Sequence[str]) -> None:
        """These runs with their records, for good, all or none of them. What was found out of machines stays."""

    def close(self) -> None: ...
