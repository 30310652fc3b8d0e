"""The result of `opmark check`: a run against a baseline, with each slowdown measured a second time."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import Struct

from opmark.schema.comparison import Compared, Pairing

Outcome = Literal[
    "slower", "failed", "unconfirmed", "missing", "undecided", "cleared", "faster", "same", "mended", "broken"
]
"""
slower       slower by more than the margin, also when measured again in turns with the baseline
failed       failed now and when measured again, but not in the baseline
unconfirmed  slower than the stored numbers twice, but the baseline itself could not be measured again: the machine
             may have become slower
missing      in the baseline, but now skipped or not asked for
undecided    no verdict after all measurements
cleared      slower or failed at first, but not when measured again
mended       failed in the baseline, but not now
broken       failed in the baseline and now
"""

FAIL_ON = ("slower", "failed", "unconfirmed", "missing", "undecided")
"""Outcomes that may fail a build; an improvement never does."""


class Finding(Struct, frozen=True):
    """One case of both sides, and its outcome."""

    pair: Pairing
    """The first comparison."""
    outcome: Outcome
    again: Pairing | None = None
    """The comparison of the second measurement, if there was one."""
    why: str = ""
    """How the case was measured again, or why it was not."""


class Checked(Struct, frozen=True):
    compared: Compared
    """The first comparison: A is the baseline."""
    findings: tuple[Finding, ...]
    missing: tuple[str, ...]
    """Cases of the baseline that were not asked for."""
    fail_on: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """How cases were measured again."""
    again: tuple[tuple[str, str], ...] = ()
    """Runs of the second measurement: (baseline, now)."""

    def counts(self) -> Counter[Outcome]:
        found: Counter[Outcome] = Counter(finding.outcome for finding in self.findings)
        if self.missing:
            found["missing"] += len(self.missing)
        return found

    @property
    def failing(self) -> int:
        """Number of cases whose outcome fails the build."""
        counts = self.counts()
        return sum(count for outcome, count in counts.items() if outcome in self.fail_on)

    @property
    def exit_code(self) -> int:
        return 1 if self.failing else 0
