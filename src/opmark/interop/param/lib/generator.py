"""PARAM's lib.generator: products of ranges and lists, for iterators that a user writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any


def full_range(a: int, b: int, s: int = 1) -> range:
    """Return the numbers from `a` to `b`, both included, in steps of `s`."""
    return range(a, b + 1, s)


class IterableList:
    """A list whose items are alternatives in a product; any other list is one value."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class ListProduct:
    """All combinations of the items of a list, the last item fastest. Each is a new list: PARAM changes one list."""

    def __init__(self, iter_list: Sequence[Any]) -> None:
        self.iter_list = iter_list

    def __iter__(self) -> Iterator[list[Any]]:
        return map(list, product(*map(_alternatives, self.iter_list)))


class TableProduct:
    """All combinations of the values of a dictionary, the last key fastest. Each is a new dictionary."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        self.table = table

    def __iter__(self) -> Iterator[dict[Any, Any]]:
        return (dict(zip(self.table, values, strict=True)) for values in ListProduct(list(self.table.values())))


iterable_types: set[Any] = {range, IterableList, ListProduct, TableProduct}
"""Types whose values are alternatives; a value of any other type stands for itself."""


def _alternatives(value: Any) -> Any:
    return value if type(value) in iterable_types else (value,)
