"""Long lists in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

_Row = TypeVar("_Row")

PageNumber = Annotated[int, Meta(ge=1, le=1_000_000, description="From 1 on.")]


class Page(Struct, frozen=True):
    number: int
    of: int
    """How many pages there are; at least 1."""
    rows: int
    """Number of rows on all pages together."""
    first: int
    """The place of the first row of this page, from 1 on; 0 where there is none."""
    last: int


def paged(rows: Sequence[_Row], number: int, size: int) -> tuple[list[_Row], Page]:
    """A page behind the last one has no rows."""
    start = (number - 1) * size
    shown = list(rows[start : start + size])
    pages = max(1, -(-len(rows) // size))
    return shown, Page(number, pages, len(rows), start + 1 if shown else 0, start + len(shown) if shown else 0)
