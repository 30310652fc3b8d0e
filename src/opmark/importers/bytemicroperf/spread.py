"""Spread: one object of a file with its axes. Lists multiply in the order of the file; dotted keys vary together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from opmark.importers.bytemicroperf.values import Arguments, Refused, quote

MOST_POINTS = 1_000_000
"""Points of one object; a larger product is taken for a mistake."""

_DEPTH = {"q_lens": 1, "cache_lens": 1, "kv_lens": 1, "slot_mapping": 1, "block_table": 2}
"""Depth of arguments whose values are lists: only a deeper list of them is an axis."""


class Axis(NamedTuple):
    key: str
    """The key as it is written in the file, as in `dtype`."""
    rows: list[dict[str, Any]]
    """The arguments that vary together, for each step of the axis."""
    numbers: Sequence[int] | None = None
    """The row of the file that each of `rows` comes from; None where the file does not list them one by one."""
    place: str = ""
    """The place of the axis, where it is not below its object."""

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
    """The JSON path of the object, as in `$.cases[0]`."""
    name: str
    """The part of a source behind the `#`."""
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
        return axis.place or self.place + path_step(axis.key)


def read_object(task: str, place: str, name: str, written: Mapping[str, Any]) -> Spread:
    """Read an object of the second or third generation; raise Refused if nothing of it can be used."""
    axes: list[Axis] = []
    flaws: list[Flaw] = []
    for key, value in written.items():
        if not key.startswith("__"):
            axes.append(_axis(key, value, place, flaws))
    _check_unique_names(axes)
    found = Spread(task, place, name, tuple(axes), tuple(flaws))
    check_point_count(len(found))
    return found


def check_point_count(points: int) -> None:
    if points > MOST_POINTS:
        raise Refused(f"the object expands to {points} points; expected at most {MOST_POINTS}",
                      hint="use fewer values, or several objects")  # fmt: skip


def path_step(key: str) -> str:
    """Return a key as a step of a JSON path."""
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"


def _axis(key: str, value: Any, place: str, flaws: list[Flaw]) -> Axis:
    if "." in key:
        return _dotted_axis(key, value, place, flaws)
    if not isinstance(value, list) or (key in _DEPTH and _depth(value) <= _DEPTH[key]):
        return Axis(key, [{key: value}])
    return Axis(key, [{key: item} for item in value], range(len(value)))


def _depth(value: Any) -> int:
    """Return how deep lists are nested; an empty list counts as a list of numbers."""
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else None
    return depth


def _dotted_axis(key: str, value: Any, place: str, flaws: list[Flaw]) -> Axis:
    """Read the rows of a dotted key; a row of another length is a flaw and is left out."""
    names = key.split(".")
    rows, numbers = [], []
    for number, row in enumerate(value) if isinstance(value, list) else ():
        if isinstance(row, list) and len(row) == len(names):
            rows.append(dict(zip(names, row, strict=True)))
            numbers.append(number)
        else:
            message = f"expected [{', '.join(names)}], got {quote(row)}"
            flaws.append(
                Flaw(f"{place}{path_step(key)}[{number}]", message, "each row has a value for each name of the key")
            )
    if not isinstance(value, list) or not value:
        message = f"expected rows of [{', '.join(names)}], got {quote(value)}"
        flaws.append(Flaw(place + path_step(key), message, "a dotted key holds a list of rows"))
    if len(set(names)) < len(names):
        raise Refused(f"the key `{key}` names an argument twice")
    return Axis(key, rows, numbers)


def _check_unique_names(axes: list[Axis]) -> None:
    seen: set[str] = set()
    for axis in axes:
        for name in axis.rows[0] if axis.rows else ():
            if name in seen:
                raise Refused(f"argument `{name}` is given twice", hint="leave it in one of the keys")
            seen.add(name)
