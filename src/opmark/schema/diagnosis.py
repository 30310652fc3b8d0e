"""Diagnosis: facts of a machine, the backends that run on it, and what would disturb a measurement."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Finding(Struct, frozen=True):
    name: str
    ok: bool
    found: str
    hint: str = ""
    """What to do if it is not ok."""


class Availability(Struct, frozen=True):
    """Whether a backend can run here."""

    name: str
    summary: str
    reason: str | None
    """Why the backend cannot run; None if it can."""
    facts: dict[str, Any] = {}


class Diagnosis(Struct, frozen=True):
    host: dict[str, Any]
    backends: list[Availability]
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)
