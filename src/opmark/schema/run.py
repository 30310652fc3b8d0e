"""Run: one invocation. Its records share a label and a plan."""

from __future__ import annotations

from msgspec import Struct


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
