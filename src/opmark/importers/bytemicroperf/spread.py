"""Spread: one object of a file with its axes. Lists multiply in the order of the file, dotted keys go together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from opmark.importers.bytemicroperf.values import Arguments, Refused, shown

MOST_POINTS = 1_000_000
"""Of one object: beyond this a product is a mistake."""

_DEPTH = {"q_lens": 1, "cache_lens": 1, "kv_lens": 1, "slot_mapping": 1, "block_table": 2}
"""Arguments that are lists themselves, however often `arg_type` says so: lists of them are an axis."""


class Axis(NamedTuple):
    key: str
    """As it is written: `dtype`."""
    rows: list[dict[str, Any]]
    """Arguments that change together."""
    numbers: Sequence[int] | None = None
    """Which row of the file each one is; None where the file does not list them one by one."""
    place: str = ""
    """Where it is, if not below its object."""

    def place_of(self, argument: str, value: Any) -> str:
        if self.numbers is None:
            return ""
        found = next((i for i, row in zip(self.numbers, self.rows, strict=True) if row[argument] == value), None)
        return "" if found is None else f"[{found}]"


class Flaw(NamedTuple):
    """A part of an object that is left out."""

    place: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Spread:
    task: str
    place: str
    """`$.cases[0]`"""
    name: str
    """Behind the # of a source."""
    axes: tuple[Axis, ...]
    flaws: tuple[Flaw, ...] = ()

    def __len__(self) -> int:
        return prod(len(axis.rows) for axis in self.axes)

    def points(self) -> Iterator[Arguments]:
        for parts in product(*(axis.rows for axis in self.axes)):
            point: dict[str, Any] = {}
            for part in parts:
                point.update(part)
            yield point

    def place_of(self, argument: str, value: Any) -> str:
        axis = next((axis for axis in self.axes if axis.rows and argument in axis.rows[0]), None)
        if axis is None:
            return self.place
        return self.place_of_axis(axis) + axis.place_of(argument, value)

    def place_of_axis(self, axis: Axis) -> str:
        return axis.place or self.place + step(axis.key)


def spread(task: str, place: str, name: str, written: Mapping[str, Any]) -> Spread:
    """An object of the second or third generation; raises Refused where nothing of it can be used."""
    axes: list[Axis] = []
    flaws: list[Flaw] = []
    for key, value in written.items():
        if not key.startswith("__"):
            axes.append(_axis(key, value, place, flaws))
    _no_name_twice(axes)
    found = Spread(task, place, name, tuple(axes), tuple(flaws))
    not_too_many(len(found))
    return found


def not_too_many(points: int) -> None:
    if points > MOST_POINTS:
        raise Refused(f"expands to {points} points; at most {MOST_POINTS} are taken",
                      hint="use fewer values, or several objects")  # fmt: skip


def step(key: str) -> str:
    """A key as a part of a place."""
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"


def _axis(key: str, value: Any, place: str, flaws: list[Flaw]) -> Axis:
    if "." in key:
        return _zipped(key, value, place, flaws)
    if not isinstance(value, list) or (key in _DEPTH and _depth(value) <= _DEPTH[key]):
        return Axis(key, [{key: value}])
    return Axis(key, [{key: item} for item in value], range(len(value)))


def _depth(value: Any) -> int:
    """Of lists in lists; an empty one counts as one of numbers."""
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else None
    return depth


def _zipped(key: str, value: Any, place: str, flaws: list[Flaw]) -> Axis:
    """A row that does not fit is left out, with those points that it would have had."""
    names = key.split(".")
    rows, numbers = [], []
    for number, row in enumerate(value) if isinstance(value, list) else ():
        if isinstance(row, list) and len(row) == len(names):
            rows.append(dict(zip(names, row, strict=True)))
            numbers.append(number)
        else:
            message = f"expected [{', '.join(names)}], got {shown(row)}"
            flaws.append(
                Flaw(f"{place}{step(key)}[{number}]", message, "each row has a value for each name of the key")
            )
    if not isinstance(value, list) or not value:
        message = f"expected rows of [{', '.join(names)}], got {shown(value)}"
        flaws.append(Flaw(place + step(key), message, "a dotted key holds a list of rows"))
    if len(set(names)) < len(names):
        raise Refused(f"the key `{key}` names an argument twice")
    return Axis(key, rows, numbers)


def _no_name_twice(axes: list[Axis]) -> None:
    seen: set[str] = set()
    for axis in axes:
        for name in axis.rows[0] if axis.rows else ():
            if name in seen:
                raise Refused(f"argument `{name}` stands twice", hint="leave it in one of the keys")
            seen.add(name)
