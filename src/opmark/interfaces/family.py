"""Operators that are made from names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opmark.schema import Operator


class Family(Protocol):
    """Operators that are not listed but made from their names, such as any function of a framework.

    Entry-point group `opmark.families`.
    """

    last: bool
    """Whether it takes almost any name, and is therefore asked when no other knows it."""

    def operator(self, name: str) -> Operator | None:
        """The operator of that name; None where it is no name of this family. No framework is imported."""

    def names(self, pattern: str) -> Sequence[str] | None:
        """The names that a pattern with `*` or `?` stands for; None where it is not for this family to say."""
