"""Bisected: the commit that made something slower, and how it was found."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from opmark.schema.comparison import Compared

Word = Literal["good", "bad", "skip"]
"""What git is told of a commit."""


class Candidate(Struct, frozen=True):
    """A commit that was looked at, or that may be the one."""

    commit: str
    author: str
    date: str
    subject: str
    word: Word
    ratio: float | None = None
    """Over the good one, of the case that is followed."""
    low: float | None = None
    high: float | None = None
    why: str = ""
    """Of what was skipped."""
    runs: tuple[str, str] | None = None


class Bisected(Struct, frozen=True):
    good: str
    bad: str
    """Commits."""
    compared: Compared
    """These two."""
    case: str = ""
    """The id of the one that is followed; empty where none is slower."""
    op: str = ""
    params: str = ""
    margin: float = 0.0
    """A commit that is slower than the good one by more than this has the change that is looked for."""
    steps: tuple[Candidate, ...] = ()
    first: tuple[Candidate, ...] = ()
    """The first bad commit; several where those in between had to be skipped; none where nothing is slower."""
    log: str = ""
    """Git's."""
