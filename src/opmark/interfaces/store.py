"""Where records are kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from opmark.schema import (
    Environment,
    Record,
    Run,
)


class Store(Protocol):
    """Append-only: what was written is never changed and never removed."""

    def begin(self, run: Run) -> None: ...

    def add_environment(self, environment: Environment) -> None: ...

    def append(self, run_id: str, record: Record) -> None:
        """One record a task: a second one of the same run is left out."""

    def runs(self, limit: int | None = None) -> list[Run]:
        """Newest first."""

    def records(self, run_id: str) -> list[Record]:
        """In the order written."""

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]: ...

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        """What was found out about a machine: `peaks` or `noise`."""

    def kept(self, kind: str, chip: str) -> Any:
        """The newest of that, as plain data; None if there is none."""

    def close(self) -> None: ...
