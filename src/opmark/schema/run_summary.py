"""RunSummary: a run and the counts of its records, without the records."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

from opmark.schema.record import FAILED
from opmark.schema.run import Run


class RunSummary(Struct, frozen=True):
    run: Run
    statuses: dict[str, int]
    """Number of records by status."""
    backends: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def label(self) -> str:
        return self.run.label

    @property
    def records(self) -> int:
        return sum(self.statuses.values())

    @property
    def missing(self) -> int:
        """Number of tasks without a record: the run was interrupted or is still going on."""
        return max(0, self.run.tasks - self.records)

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if status in FAILED)

    def row(self) -> dict[str, Any]:
        """Return the plain data that `opmark runs --json` prints."""
        return {
            **to_builtins(self.run),
            "records": self.records,
            "missing": self.missing,
            "failed": self.failed,
            "statuses": self.statuses,
            "backends": list(self.backends),
            "machines": list(self.machines),
            "chips": list(self.chips),
        }
