"""Addresses of pages: made in one place, so that whatever a name contains stays one piece of one."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import fields

_NAME = re.compile(r"\{(\w+)\}")


def names_in(path: str) -> tuple[str, ...]:
    """The names in braces."""
    return tuple(_NAME.findall(path))


def address(path: str, **values: Any) -> str:
    """`address("/runs/{run}", run="a b", page=2)` is `/runs/a%20b?page=2`. What is None or empty is left out."""
    placed = names_in(path)
    whole = _NAME.sub(lambda found: quote(str(values[found[1]]), safe=""), path)
    query = {key: _text(value) for key, value in values.items() if key not in placed and value not in (None, "", ())}
    return f"{whole}?{urlencode(query, doseq=True)}" if query else whole


def again(path: str, asked: Struct, **changed: Any) -> str:
    """The same page asked for otherwise; what is as it would be anyway is left out."""
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
