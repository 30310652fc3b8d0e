"""The result of `opmark bisect`: the commit that made a case slower, and how it was found."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from opmark.schema.comparison import Compared

Word = Literal["good", "bad", "skip"]
"""The verdict on a commit that is passed to git."""


class Candidate(Struct, frozen=True):
    """A commit that was measured, or that may be the first bad one."""

    commit: str
    author: str
    date: str
    subject: str
    word: Word
    ratio: float | None = None
    """Time of the followed case at this commit over its time at the good commit."""
    low: float | None = None
    high: float | None = None
    why: str = ""
    """Why the commit was skipped."""
    runs: tuple[str, str] | None = None


class Bisected(Struct, frozen=True):
    good: str
    bad: str
    compared: Compared
    """Comparison of the good and the bad commit."""
    case: str = ""
    """Id of the case that is followed; empty if no case is slower."""
    op: str = ""
    params: str = ""
    margin: float = 0.0
    """A commit is bad if it is slower than the good one by more than this fraction."""
    steps: tuple[Candidate, ...] = ()
    first: tuple[Candidate, ...] = ()
    """The first bad commit; several if commits in between were skipped; none if nothing is slower."""
    log: str = ""
    """Output of `git bisect log`."""
