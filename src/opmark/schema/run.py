"""Run: one invocation. Its records share a label and a plan."""

from __future__ import annotations

from msgspec import Struct

CHANGED = "+"
"""Behind a commit: files had been changed since."""
_SHORT = 10


def short_revision(revision: str) -> str:
    """For people: enough of the commit to know it by, and whether files had been changed since."""
    commit = revision.removesuffix(CHANGED)
    return commit[:_SHORT] + (CHANGED if commit != revision else "")


class Run(Struct, frozen=True):
    id: str
    started: str
    """UTC, ISO 8601."""
    plan: str
    """Hash of the ids of its tasks: `--resume` finds the run that it continues by this."""
    tasks: int
    label: str = ""
    command: str = ""
    version: str = ""
    """Of opmark."""
    session: str = ""
    """Runs that were measured in turns, process by process, share it: those of one number are pairs."""
    revision: str = ""
    """Git's commit of the folder that it was started in, with a `+` where files had been changed since."""
    description: str = ""
