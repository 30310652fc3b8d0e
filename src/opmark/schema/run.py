"""Run: one invocation. Its records share a label and a plan."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

from opmark.schema.record import FAILED

CHANGED = "+"
"""Suffix of a revision if files had uncommitted changes."""
_SHORT = 10


def short_revision(revision: str) -> str:
    """Shorten a revision for people, keeping the mark of uncommitted changes."""
    commit = revision.removesuffix(CHANGED)
    return commit[:_SHORT] + (CHANGED if commit != revision else "")


class Run(Struct, frozen=True):
    id: str
    started: str
    """UTC, ISO 8601."""
    plan: str
    """Hash of the ids of its tasks: `--resume` finds the run to continue by this."""
    tasks: int
    label: str = ""
    command: str = ""
    version: str = ""
    """Version of opmark."""
    session: str = ""
    """Shared by runs that were measured in turns: their processes of the same number are pairs."""
    revision: str = ""
    """Git commit of the folder that the run was started in, with a `+` if files had uncommitted changes."""
    description: str = ""


# RunSummary: a run and the counts of its records, without the records.


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
