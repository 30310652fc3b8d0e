"""A table as data: names of columns, and rows of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple


class Grid(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    kinds: Mapping[str, str] = {}
    """What a column is of, where that is known also if nothing is in it: a type of arrow, as `float64`."""

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def distinct(columns: Sequence[str]) -> list[str]:
    """SQL may give two columns one name: the second is then `name_2`."""
    found: list[str] = []
    for name in columns:
        unique, count = name, 1
        while unique in found:
            count += 1
            unique = f"{name}_{count}"
        found.append(unique)
    return found


def plain(value: Any) -> Any:
    """What a database gives, as what every format can hold: numbers, texts, lists, mappings, nothing. A decimal number
    stays one where another would have fewer digits."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _number(value: Decimal) -> int | float | Decimal:
    if not value.is_finite():
        return float(value)
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    return near if Decimal(repr(near)) == value else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
