"""Makes the addresses of pages in one place, so that all names are quoted."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import fields

_NAME = re.compile(r"\{(\w+)\}")


def names_in(path: str) -> tuple[str, ...]:
    """Return the names in braces of a path."""
    return tuple(_NAME.findall(path))


def address(path: str, **values: Any) -> str:
    """`address("/runs/{run}", run="a b", page=2)` is `/runs/a%20b?page=2`. Empty values are left out."""
    placed = names_in(path)
    whole = _NAME.sub(lambda found: quote(str(values[found[1]]), safe=""), path)
    query = {key: _text(value) for key, value in values.items() if key not in placed and value not in (None, "", ())}
    return f"{whole}?{urlencode(query, doseq=True)}" if query else whole


def again(path: str, asked: Struct, **changed: Any) -> str:
    """Return the address of the same page with some values changed; defaults are left out."""
    values: dict[str, Any] = {}
    for field in fields(asked):
        value = changed.get(field.name, getattr(asked, field.name))
        if field.required or value != field.default:
            values[field.name] = value
    return address(path, **values)


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
