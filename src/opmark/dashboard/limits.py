"""How much one upload may be. A client of ours stays far below: it sends large runs in parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    wire: int = 32 << 20
    """Bytes as they arrive. All of them are in memory, and so is what they become: a server may get several at once."""
    unpacked: int = 256 << 20
    """Bytes after inflating. Records shrink to a fifth or so; what shrinks to a thousandth is no measurement."""
    line: int = 8 << 20
    """Bytes of a record: 60 ranks with a thousand samples each are one or two million."""
    records: int = 50_000
    environments: int = 1_000
    """A run has one for each backend, and a new one where something changed in between."""
    findings: int = 1_000
    notes: int = 1_000
    text: int = 100_000
    """Characters: the longest are commands, and what a framework said of a failure."""
    name: int = 1_000
    """Characters of what is shown in tables and searched for: operators, backends, labels."""
    depth: int = 24
    """Of lists and objects in each other: whoever walks over them again must not run out of stack."""
    values: int = 500_000
    """Numbers, texts, lists and objects of a line: each takes far more memory than its bytes."""
    held: int = 1_000_000
    """The same of all lines but the records, which are packed one by one: the others are in memory together."""


LIMITS = Limits()
