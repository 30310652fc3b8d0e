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
    """Number of pages, at least 1."""
    rows: int
    """Rows of all pages together."""
    first: int
    """Position of the first row of this page, from 1 on; 0 if it has none."""
    last: int


def paged(rows: Sequence[_Row], number: int, size: int) -> tuple[list[_Row], Page]:
    """Return the rows of a page, and its position; a page behind the last one is empty."""
    start = (number - 1) * size
    shown = list(rows[start : start + size])
    pages = max(1, -(-len(rows) // size))
    return shown, Page(number, pages, len(rows), start + 1 if shown else 0, start + len(shown) if shown else 0)
