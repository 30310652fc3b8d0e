"""Checked: a run against a baseline, each slowdown looked at twice."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import Struct

from opmark.schema.comparison import Compared, Pairing

Outcome = Literal[
    "slower", "failed", "unconfirmed", "missing", "undecided", "cleared", "faster", "same", "mended", "broken"
]
"""
slower       when it was measured again in turns with the baseline, by more than the margin
failed       now, again when it was measured again, and not in the baseline
unconfirmed  slower twice than the stored numbers, while the baseline itself could not be measured again: the machine
             may have become slower
missing      the baseline has it, and now it was skipped or not asked for
undecided    after all looks
cleared      slower or failed at first, and not when it was measured again
mended       failed in the baseline, and not now
broken       failed in the baseline and now
"""

FAIL_ON = ("slower", "failed", "unconfirmed", "missing", "undecided")
"""What may fail a build: an improvement never does."""


class Finding(Struct, frozen=True):
    """A case of both sides."""

    pair: Pairing
    """The first look."""
    outcome: Outcome
    again: Pairing | None = None
    """The second look, where there was one."""
    why: str = ""
    """How it was looked at again, or why not."""


class Checked(Struct, frozen=True):
    compared: Compared
    """The first look: A is the baseline."""
    findings: tuple[Finding, ...]
    missing: tuple[str, ...]
    """Cases of the baseline that were not asked for."""
    fail_on: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """How what was looked at again was measured."""
    again: tuple[tuple[str, str], ...] = ()
    """Runs of the second look, baseline and now."""

    def counts(self) -> Counter[Outcome]:
        found: Counter[Outcome] = Counter(finding.outcome for finding in self.findings)
        if self.missing:
            found["missing"] += len(self.missing)
        return found

    @property
    def failing(self) -> int:
        """How many of those that are to fail the build."""
        counts = self.counts()
        return sum(count for outcome, count in counts.items() if outcome in self.fail_on)

    @property
    def exit_code(self) -> int:
        return 1 if self.failing else 0
