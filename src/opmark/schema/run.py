"""Run: one invocation. Its records share a label and a plan."""

from __future__ import annotations

from msgspec import Struct

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
