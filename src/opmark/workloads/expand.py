"""Axes to cases: lists multiply, dotted keys zip. A mistake is named with its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

from opmark.errors import InvalidFile, InvalidParameter, UnknownName
from opmark.schema import Case, Entry, Operator, Param, Workload

Find = Callable[[str], Operator]
"""The operator of a name; raises UnknownName."""

Axis = list[dict[str, Any]]
"""The values of an axis, each a few parameters that change together."""


def expand(workload: Workload, find: Find, where: str = "") -> list[Case]:
    """Every case of a workload, each once, in the order of the file."""
    cases: dict[str, Case] = {}
    for index, entry in enumerate(workload.cases):
        place = f"{where or workload.name}: $.cases[{index}]"
        for case in _expand_entry(entry, find, place):
            cases.setdefault(case.id, case)
    if not cases:
        raise InvalidFile(f"{where or workload.name}: expands to no case", "it needs at least one entry in `cases`")
    return list(cases.values())


def _expand_entry(entry: Entry, find: Find, place: str) -> Iterator[Case]:
    with _at(f"{place}.op"):
        operator = find(entry.op)
    if not entry.phases:
        raise InvalidFile(f"{place}.phases: expands to no case", "leave it out, or give `forward`")
    axes = [_axis(operator, key, value, f"{place}.params.{key}") for key, value in entry.params.items()]
    _no_name_twice(axes, f"{place}.params")
    tags = tuple(entry.tags)
    for preset in _presets(operator, entry, place):
        for point in product(*axes):
            params = _complete(operator, [preset, *point], f"{place}.params")
            for phase in entry.phases:
                yield Case.of(operator.name, params, phase, tags)


def _complete(operator: Operator, parts: Sequence[Mapping[str, Any]], place: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in parts:
        given.update(part)
    with _at(place):
        params = operator.complete(given)
        operator.check_rules(params)
    return params


def _presets(operator: Operator, entry: Entry, place: str) -> list[Mapping[str, Any]]:
    """What `sizes` supply; nothing where there are none."""
    with _at(f"{place}.sizes"):
        return [operator.preset(size) for size in entry.sizes] or [{}]


def _axis(operator: Operator, key: str, value: Any, place: str) -> Axis:
    with _at(place):
        params = [operator.param(name) for name in key.split(".")]
    if len(params) > 1:
        rows = _rows(value, [param.name for param in params], place)
    elif not isinstance(value, list) or (params[0].is_shape and not any(isinstance(item, list) for item in value)):
        with _at(place):
            return [{params[0].name: params[0].check(value)}]
    else:
        rows = [[item] for item in value]
    if not rows:
        raise InvalidFile(f"{place}: an empty list expands to no case")
    return [_checked(params, row, f"{place}[{i}]") for i, row in enumerate(rows)]


def _checked(params: Sequence[Param], row: Sequence[Any], place: str) -> dict[str, Any]:
    with _at(place):
        return {param.name: param.check(value) for param, value in zip(params, row, strict=True)}


def _rows(value: Any, names: list[str], place: str) -> list[list[Any]]:
    """The rows of a dotted key: lists of as many values as there are names."""
    if not isinstance(value, list):
        raise InvalidFile(f"{place}: expected a list of [{', '.join(names)}] rows, got `{value}`")
    for i, row in enumerate(value):
        if not isinstance(row, list) or len(row) != len(names):
            raise InvalidFile(f"{place}[{i}]: expected [{', '.join(names)}], got `{row}`")
    return value


def _no_name_twice(axes: list[Axis], place: str) -> None:
    seen: set[str] = set()
    for name in (name for axis in axes for name in axis[0]):
        if name in seen:
            raise InvalidFile(f"{place}: parameter `{name}` stands on two axes")
        seen.add(name)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """A complaint from inside is repeated with its place in front."""
    try:
        yield
    except (InvalidParameter, UnknownName) as error:
        raise InvalidFile(f"{place}: {error.message}", error.hint) from None
