"""Limits of one upload. opmark's own client stays far below: it sends large runs in parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    wire: int = 32 << 20
    """Bytes as they arrive. They are in memory together with their decoded form, for several uploads at once."""
    unpacked: int = 256 << 20
    """Bytes after inflating. Records shrink to about a fifth; data that shrinks to a thousandth is not measurements."""
    line: int = 8 << 20
    """Bytes of a record: 60 ranks with a thousand samples each are one or two million."""
    records: int = 50_000
    environments: int = 1_000
    """A run has one for each backend, and a new one where something changed in between."""
    findings: int = 1_000
    notes: int = 1_000
    text: int = 100_000
    """Characters of a text; the longest are commands and error messages of frameworks."""
    name: int = 1_000
    """Characters of names that are shown in tables and searched for: operators, backends, labels."""
    depth: int = 24
    """Depth of nested lists and objects, so that recursive code does not run out of stack."""
    values: int = 500_000
    """Numbers, texts, lists and objects of a line; each takes far more memory than its bytes."""
    held: int = 1_000_000
    """The same for all lines but records, which are in memory together; records are packed one by one."""


LIMITS = Limits()
