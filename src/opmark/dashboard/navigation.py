"""Addresses of pages, pages of long lists, and times and long texts as pages show them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Meta, Struct
from msgspec.structs import fields

_NAME = re.compile(r"\{(\w+)\}")


def names_in(path: str) -> tuple[str, ...]:
    """Return the names in braces of a path."""
    return tuple(_NAME.findall(path))


def address(path: str, **values: Any) -> str:
    """Return an address with all names quoted; empty values are left out.

    `address("/runs/{run}", run="a b", page=2)` is `/runs/a%20b?page=2`."""
    placed = names_in(path)
    whole = _NAME.sub(lambda found: quote(str(values[found[1]]), safe=""), path)
    given = {key: value for key, value in values.items() if key not in placed and value not in (None, "", ())}
    query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in given.items()}
    return f"{whole}?{urlencode(query, doseq=True)}" if query else whole


def address_with(path: str, query: Struct, **changes: Any) -> str:
    """Return the address of the same page with some values changed; defaults are left out."""
    values: dict[str, Any] = {}
    for field in fields(query):
        value = changes.get(field.name, getattr(query, field.name))
        if field.required or value != field.default:
            values[field.name] = value
    return address(path, **values)


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


def paginate(rows: Sequence[_Row], number: int, size: int) -> tuple[list[_Row], Page]:
    """Return the rows of a page, and its position; a page behind the last one is empty."""
    start = (number - 1) * size
    part = list(rows[start : start + size])
    pages = max(1, -(-len(rows) // size))
    return part, Page(number, pages, len(rows), start + 1 if part else 0, start + len(part) if part else 0)


MOST_LETTERS = 2_000
"""Length of a reason where many stand together; the page of a row has its whole reason."""


def when(started: str) -> str:
    """Return a time of the store, which is UTC, as pages show it: `2030-01-01 03:00:00`."""
    return started[:19].replace("T", " ")


def shorten(text: str) -> str:
    if len(text) <= MOST_LETTERS:
        return text
    return f"{text[:MOST_LETTERS]} … and {len(text) - MOST_LETTERS} more characters"
