"""Axes to cases: lists multiply, dotted keys zip. A mistake is named with its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from math import prod
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.errors import InvalidFile, InvalidParameter, UnknownName
from opmark.schema import Case, Entry, Operator, Param, Workload
from opmark.schema.arguments import filled, placeholders
from opmark.schema.scaling import of_elements

MOST_CASES = 1_000_000
"""Of one entry: beyond this a product is a mistake, and would take hours to print."""

Find = Callable[[str], Operator]
"""The operator of a name; raises UnknownName."""

Match = Callable[[str], list[str]]
"""The names that a name with `*` or `?` stands for; itself for a plain one. Raises UnknownName."""

Axis = list[dict[str, Any]]
"""The values of an axis, each a few parameters that change together."""


def _itself(name: str) -> list[str]:
    return [name]


def expand(workload: Workload, find: Find, where: str | None = None, match: Match = _itself) -> list[Case]:
    """Every case of a workload, each once with all its tags, in the order of the file; `where` is that file."""
    cases: dict[str, Case] = {}
    for index, entry in enumerate(workload.cases):
        place = _Place(where, f"$.cases[{index}]")
        with (place / ".op").named():
            names = match(entry.op)
        for name in names:
            for case in _expand_entry(entry, name, find, place):
                known = cases.setdefault(case.id, case)
                if known is not case and (known.tags, known.sources) != (case.tags, case.sources):
                    cases[case.id] = merged(known, case)
    if not cases:
        raise InvalidFile(f"{where or workload.name}: expands to no case", "it needs at least one entry in `cases`")
    return list(cases.values())


def cases_of(entry: Entry, find: Find) -> list[Case]:
    """Of one entry that no file holds; the same case stands as often as its axes have it."""
    return list(_expand_entry(entry, entry.op, find, _Place(None, "$")))


def merged(case: Case, other: Case) -> Case:
    """The same case, named twice."""
    tags, sources = (*case.tags, *other.tags), (*case.sources, *other.sources)
    return replace(case, tags=tuple(dict.fromkeys(tags)), sources=tuple(dict.fromkeys(sources)))


class _Place(NamedTuple):
    """A spot in a file, to name in complaints; a workload that no file holds has none."""

    where: str | None
    path: str

    def __truediv__(self, step: str) -> _Place:
        return _Place(self.where, self.path + step)

    def complaint(self, message: str, hint: str | None = None) -> InvalidFile:
        return InvalidFile(f"{self.where}: {self.path}: {message}" if self.where else message, hint)

    def named(self) -> _Place:
        """As a context: a complaint from inside is repeated with its place in front."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidParameter | UnknownName):
            raise self.complaint(error.message, error.hint) from None


def _expand_entry(entry: Entry, name: str, find: Find, place: _Place) -> Iterator[Case]:
    with (place / ".op").named():
        operator = find(name)
    if not entry.phases:
        raise (place / ".phases").complaint("expands to no case", "leave it out, or give `forward`")
    if "args" in operator.by_name:
        yield from _expand_callable(entry, operator, place)
        return
    if (entry.args, entry.kwargs, entry.build) != (None, None, None):
        raise place.complaint(
            f"`{operator.name}` takes parameters, not args, kwargs or build",
            f"`opmark describe {operator.name}` lists them; a callable is named with its framework, as torch.add is",
        )
    axes = [_axis(operator, key, value, place / f".params.{key}") for key, value in entry.params.items()]
    _no_name_twice(axes, place / ".params")
    tags, wrt = tuple(entry.tags), _gradients(operator, entry, place / ".wrt")
    presets = _presets(operator, entry, place)
    _not_too_many(len(presets) * prod(len(axis) for axis in axes) * len(entry.phases), place)
    with (place / ".params").named():
        for preset, *point in product(presets, *axes):
            params = _complete(operator, preset, point)
            for phase in entry.phases:
                yield Case.of(operator.name, params, phase, tags, () if phase == "forward" else wrt, _sources(entry))


def _expand_callable(entry: Entry, operator: Operator, place: _Place) -> Iterator[Case]:
    """The parameters of a callable are names of its own choice, used in its arguments as `{name}`."""
    if entry.sizes:
        raise (place / ".sizes").complaint(f"`{operator.name}` has no sizes", "write its arguments as tensors")
    if entry.elements:
        raise (place / ".elements").complaint(f"`{operator.name}` has no sizes", "write its arguments as tensors")
    if entry.args is None and entry.kwargs is None and entry.build is None:
        raise place.complaint(
            f"`{operator.name}` is a callable and needs arguments", "give args, as in args: [8x64 float32, 2]"
        )
    unknown = sorted(set(entry.build) - {"args", "kwargs"}) if isinstance(entry.build, dict) else []
    if unknown:
        raise (place / ".build").complaint(
            f"expected args and kwargs, got `{unknown[0]}`", "as in build: {args: [64, 32], kwargs: {bias: false}}"
        )
    written = {"args": entry.args or [], "kwargs": entry.kwargs or {}, "build": entry.build}
    axes = [_free_axis(key, value, place / f".params.{key}") for key, value in entry.params.items()]
    _no_name_twice(axes, place / ".params")
    unused = [name for axis in axes for name in axis[0] if name not in placeholders(written)]
    if unused:
        raise (place / ".params").complaint(
            f"parameter `{unused[0]}` is used in no argument of `{operator.name}`",
            f'write {{{unused[0]}}} where it belongs, as in args: ["{{M}}x64 {{dtype}}"]',
        )
    _not_too_many(prod(len(axis) for axis in axes) * len(entry.phases), place)
    for point in product(*axes):
        values = {name: value for part in point for name, value in part.items()}
        with place.named():
            given = {name: operator.param(name).check(filled(node, values)) for name, node in written.items()}
            for name in entry.wrt:
                if name not in operator.inputs(given):
                    raise UnknownName(f"tensor among the arguments of `{operator.name}`", name, operator.inputs(given))
        for phase in entry.phases:
            wrt = () if phase == "forward" else tuple(entry.wrt)
            yield Case.of(operator.name, given, phase, tuple(entry.tags), wrt, _sources(entry))


def _sources(entry: Entry) -> tuple[str, ...]:
    return (entry.source,) if entry.source else ()


def _free_axis(key: str, value: Any, place: _Place) -> Axis:
    names = key.split(".")
    if len(names) > 1:
        return [dict(zip(names, row, strict=True)) for row in _rows(value, names, place)]
    values = value if isinstance(value, list) else [value]
    if not values:
        raise place.complaint("an empty list expands to no case", "give at least one value")
    return [{key: item} for item in values]


def _gradients(operator: Operator, entry: Entry, place: _Place) -> tuple[str, ...]:
    """The inputs named, in the operator's order; nothing where they are all that have a gradient."""
    for name in entry.wrt:
        if not any(fnmatchcase(name, known) for known in operator.gradients):
            has = f"it has them for {', '.join(operator.gradients)}" if operator.gradients else "it has none at all"
            raise place.complaint(f"`{operator.name}` has no gradient for `{name}`", has)
    named = tuple(name for known in operator.gradients for name in entry.wrt if fnmatchcase(name, known))
    return () if named == operator.gradients else tuple(dict.fromkeys(named))


def _complete(operator: Operator, preset: Mapping[str, Any], point: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    given = dict(preset)
    for part in point:
        given.update(part)
    params = operator.complete(given)
    operator.check_rules(params)
    return params


def _presets(operator: Operator, entry: Entry, place: _Place) -> list[Mapping[str, Any]]:
    """What `sizes` supply; nothing where there are none."""
    if entry.elements:
        if entry.sizes:
            raise (place / ".elements").complaint("stands beside `sizes`", "give one of them")
        if min(entry.elements) < 1:
            raise (place / ".elements").complaint(f"expected numbers of at least 1, got `{min(entry.elements)}`")
        with (place / ".elements").named():
            return _swept(operator, entry.elements)
    with (place / ".sizes").named():
        return [operator.preset(size) for size in entry.sizes] or [{}]


def _swept(operator: Operator, targets: Sequence[int]) -> list[Mapping[str, Any]]:
    """The typical preset, larger and smaller; sizes that the operator cannot have are left out."""
    typical = operator.complete(operator.preset("typical"))
    found = (of_elements(operator, typical, target) for target in targets)
    given = set(operator.preset("typical"))
    return [{name: value for name, value in params.items() if name in given} for params in found if params]


def _axis(operator: Operator, key: str, value: Any, place: _Place) -> Axis:
    with place.named():
        params = [operator.param(name) for name in key.split(".")]
    if len({param.name for param in params}) < len(params):
        raise place.complaint("names one parameter twice", "each name of a dotted key stands once")
    if len(params) == 1:
        with place.named():
            value = params[0].spread(value)
    if len(params) > 1:
        rows = _rows(value, [param.name for param in params], place)
    elif not isinstance(value, list) or (params[0].is_shape and not any(isinstance(item, list) for item in value)):
        with place.named():
            return [{params[0].name: params[0].check(value)}]
    else:
        with place.named():
            rows = [[item] for part in value for item in _spread(params[0], part)]
    if not rows:
        raise place.complaint("an empty list expands to no case", "give at least one value")
    return [_checked(params, row, place / f"[{i}]") for i, row in enumerate(rows)]


def _spread(param: Param, value: Any) -> list[Any]:
    """A series of sizes within a list is as many values of it."""
    found = param.spread(value)
    return list(found) if found is not value else [value]


def _checked(params: Sequence[Param], row: Sequence[Any], place: _Place) -> dict[str, Any]:
    with place.named():
        return {param.name: param.check(value) for param, value in zip(params, row, strict=True)}


def _rows(value: Any, names: list[str], place: _Place) -> list[list[Any]]:
    """The rows of a dotted key: lists of as many values as there are names."""
    if not isinstance(value, list):
        raise place.complaint(
            f"expected a list of [{', '.join(names)}] rows, got `{value}`",
            "a dotted key holds rows",
        )
    for i, row in enumerate(value):
        if not isinstance(row, list) or len(row) != len(names):
            raise (place / f"[{i}]").complaint(
                f"expected [{', '.join(names)}], got `{row}`", "each row has a value for each name of the key"
            )
    return value


def _not_too_many(cases: int, place: _Place) -> None:
    if cases > MOST_CASES:
        raise place.complaint(
            f"expands to {cases} cases; at most {MOST_CASES} are taken", "use fewer values, or several workloads"
        )


def _no_name_twice(axes: list[Axis], place: _Place) -> None:
    seen: set[str] = set()
    for name in (name for axis in axes for name in axis[0]):
        if name in seen:
            raise place.complaint(f"parameter `{name}` stands on two axes", "leave it on one of them")
        seen.add(name)
