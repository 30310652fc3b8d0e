"""Expand the axes of a workload into cases (lists multiply, dotted keys zip), and select a part of them.

Errors name their place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from math import prod
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.errors import InvalidFile, InvalidParameter, UnknownName, UserError
from opmark.plugin import Operator
from opmark.plugin.operator import resize_to_elements
from opmark.schema import Case, Entry, Workload
from opmark.schema.arguments import WEIGHTS, fill_placeholders, placeholders

MOST_CASES = 1_000_000
"""Limit for one entry: a larger product is a mistake, and would take hours to print."""

Find = Callable[[str], Operator]
"""Returns the operator of a name; raises UnknownName."""

Match = Callable[[str], list[str]]
"""Returns the names that a pattern with `*` or `?` matches; a plain name alone. Raises UnknownName."""

Axis = list[dict[str, Any]]
"""The values of an axis: each sets one or several parameters that change together."""


def expand(workload: Workload, find: Find, where: str | None = None, match: Match = lambda name: [name]) -> list[Case]:
    """Return every case of a workload once, with all its tags, in the order of the file; `where` is that file."""
    cases: dict[str, Case] = {}
    for index, entry in enumerate(workload.cases):
        place = _Place(where, f"$.cases[{index}]")
        with place / ".op":
            names = match(entry.op)
        for name in names:
            for case in _expand_entry(entry, name, find, place):
                known = cases.setdefault(case.id, case)
                if known is not case:
                    cases[case.id] = merge_cases(known, case)
    if not cases:
        raise InvalidFile(f"{where or workload.name}: expands to no case", "it needs at least one entry in `cases`")
    return list(cases.values())


def cases_of(entry: Entry, find: Find) -> list[Case]:
    """Return the cases of one entry that is in no file; a case appears as often as the axes produce it."""
    return list(_expand_entry(entry, entry.op, find, _Place(None, "$")))


def merge_cases(case: Case, other: Case) -> Case:
    """Join the tags, sources and foreign words of two mentions of the same case, and add their counts."""
    joined: dict[str, Any] = {
        name: tuple(dict.fromkeys((*getattr(case, name), *getattr(other, name))))
        for name in ("tags", "sources", "written_as")
        if getattr(case, name) != getattr(other, name)
    }
    return replace(case, **joined, count=case.count + other.count, duration=_mean_duration(case, other))


def _mean_duration(*cases: Case) -> float | None:
    """Return the seconds of one call over all calls whose duration is known."""
    known = [(case.count, case.duration) for case in cases if case.duration is not None]
    return sum(count * each for count, each in known) / sum(count for count, _ in known) if known else None


class _Place(NamedTuple):
    """A place in a file, for error messages; a workload that is in no file has none.

    As a context manager it adds the place to errors that are raised inside.
    """

    where: str | None
    path: str

    def __truediv__(self, step: str) -> _Place:
        return _Place(self.where, self.path + step)

    def error(self, message: str, hint: str | None = None) -> InvalidFile:
        return InvalidFile(f"{self.where}: {self.path}: {message}" if self.where else message, hint)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidParameter | UnknownName):
            raise self.error(error.message, error.hint) from None


def _expand_entry(entry: Entry, name: str, find: Find, place: _Place) -> Iterator[Case]:
    with place / ".op":
        operator = find(name)
    if not entry.phases:
        raise (place / ".phases").error("expands to no case", "leave it out, or give `forward`")
    if "args" in operator.by_name:
        yield from _expand_callable(entry, operator, place)
        return
    if (entry.args, entry.kwargs, entry.build) != (None, None, None):
        raise place.error(
            f"`{operator.name}` takes parameters, not args, kwargs or build",
            f"`opmark describe {operator.name}` lists them; a callable is named with its framework, as torch.add is",
        )
    axes = [_axis(operator, key, value, place / f".params.{key}") for key, value in entry.params.items()]
    presets = _presets(operator, entry, place)
    _check_axes(axes, len(presets) * len(entry.phases), place)
    tags, wrt = tuple(entry.tags), _gradients(operator, entry, place / ".wrt")
    sources, written_as = (entry.source,) if entry.source else (), (entry.written_as,) if entry.written_as else ()
    with place / ".params":
        for preset, *point in product(presets, *axes):
            given = dict(preset)
            for part in point:
                given.update(part)
            params = operator.complete(given)
            operator.check_rules(params)
            for phase in entry.phases:
                gradients = () if phase == "forward" else wrt
                yield Case.of(
                    operator.name, params, phase, tags, gradients, sources, written_as, entry.count, entry.duration
                )


def _expand_callable(entry: Entry, operator: Operator, place: _Place) -> Iterator[Case]:
    """Expand an entry for a callable: its parameters have free names, which its arguments use as `{name}`."""
    if entry.sizes:
        raise (place / ".sizes").error(f"`{operator.name}` has no sizes", "write its arguments as tensors")
    if entry.elements:
        raise (place / ".elements").error(f"`{operator.name}` has no sizes", "write its arguments as tensors")
    if entry.args is None and entry.kwargs is None and entry.build is None:
        raise place.error(
            f"`{operator.name}` is a callable and needs arguments", "give args, as in args: [8x64 float32, 2]"
        )
    built = entry.build if isinstance(entry.build, dict) else {}
    unknown = sorted(set(built) - {"args", "kwargs", "train"})
    if unknown:
        raise (place / ".build").error(
            f"expected args, kwargs and train, got `{unknown[0]}`",
            "as in build: {args: [64, 32], kwargs: {bias: false}}",
        )
    if not isinstance(built.get("train", False), bool):
        raise (place / ".build.train").error(
            f"expected true or false, got {built['train']!r}", "true measures a module in training mode"
        )
    written = {"args": entry.args or [], "kwargs": entry.kwargs or {}, "build": entry.build}
    axes = [_free_axis(key, value, place / f".params.{key}") for key, value in entry.params.items()]
    _check_axes(axes, len(entry.phases), place)
    sources = (entry.source,) if entry.source else ()
    unused = [name for axis in axes for name in axis[0] if name not in placeholders(written)]
    if unused:
        raise (place / ".params").error(
            f"parameter `{unused[0]}` is used in no argument of `{operator.name}`",
            f'write {{{unused[0]}}} where it belongs, as in args: ["{{M}}x64 {{dtype}}"]',
        )
    for point in product(*axes):
        values = {name: value for part in point for name, value in part.items()}
        with place:
            given = {
                name: operator.param(name).check(fill_placeholders(node, values)) for name, node in written.items()
            }
            for name in entry.wrt:
                known = [*operator.inputs(given), WEIGHTS]
                if name not in known:
                    raise UnknownName(f"tensor among the arguments of `{operator.name}`", name, known)
        for phase in entry.phases:
            wrt = () if phase == "forward" else tuple(entry.wrt)
            yield Case.of(
                operator.name, given, phase, tuple(entry.tags), wrt, sources,
                count=entry.count, duration=entry.duration,
            )  # fmt: skip


def _free_axis(key: str, value: Any, place: _Place) -> Axis:
    names = key.split(".")
    if len(names) > 1:
        return [dict(zip(names, row, strict=True)) for row in _rows(value, names, place)]
    values = value if isinstance(value, list) else [value]
    if not values:
        raise place.error("an empty list expands to no case", "give at least one value")
    return [{key: item} for item in values]


def _gradients(operator: Operator, entry: Entry, place: _Place) -> tuple[str, ...]:
    """Return the chosen inputs in the operator's order; empty if they are all that have a gradient."""
    for name in entry.wrt:
        if not any(fnmatchcase(name, known) for known in operator.gradients):
            has = (
                f"it has gradients for {', '.join(operator.gradients)}"
                if operator.gradients
                else "it has no gradients at all"
            )
            raise place.error(f"`{operator.name}` has no gradient for `{name}`", has)
    named = tuple(name for known in operator.gradients for name in entry.wrt if fnmatchcase(name, known))
    return () if named == operator.gradients else tuple(dict.fromkeys(named))


def _presets(operator: Operator, entry: Entry, place: _Place) -> list[Mapping[str, Any]]:
    """Return the parameters that `sizes` or `elements` supply; one empty set if neither is given."""
    if entry.elements:
        if entry.sizes:
            raise (place / ".elements").error("cannot be combined with `sizes`", "give one of them")
        if min(entry.elements) < 1:
            raise (place / ".elements").error(f"expected numbers of at least 1, got `{min(entry.elements)}`")
        with place / ".elements":
            return _sweep(operator, entry.elements)
    with place / ".sizes":
        return [operator.preset(size) for size in entry.sizes] or [{}]


def _sweep(operator: Operator, targets: Sequence[int]) -> list[Mapping[str, Any]]:
    """Resize the typical preset to each target; targets that the operator does not reach are left out."""
    typical = operator.complete(operator.preset("typical"))
    found = (resize_to_elements(operator, typical, target) for target in targets)
    given = set(operator.preset("typical"))
    return [{name: value for name, value in params.items() if name in given} for params in found if params]


def _axis(operator: Operator, key: str, value: Any, place: _Place) -> Axis:
    with place:
        params = [operator.param(name) for name in key.split(".")]
    if len({param.name for param in params}) < len(params):
        raise place.error("names one parameter twice", "each name may appear only once in a dotted key")
    if len(params) == 1:
        with place:
            value = params[0].spread(value)
    if len(params) > 1:
        rows = _rows(value, [param.name for param in params], place)
    elif not isinstance(value, list) or (params[0].is_shape and not any(isinstance(item, list) for item in value)):
        with place:
            return [{params[0].name: params[0].check(value)}]
    else:
        rows = []
        for part in value:
            with place:
                series = params[0].spread(part)
            rows += [[part]] if series is part else [[item] for item in series]
    if not rows:
        raise place.error("an empty list expands to no case", "give at least one value")
    axis = []
    for i, row in enumerate(rows):
        with place / f"[{i}]":
            axis.append({param.name: param.check(value) for param, value in zip(params, row, strict=True)})
    return axis


def _rows(value: Any, names: list[str], place: _Place) -> list[list[Any]]:
    """Check the rows of a dotted key: lists of as many values as there are names."""
    if not isinstance(value, list):
        raise place.error(
            f"expected a list of [{', '.join(names)}] rows, got `{value}`",
            "a dotted key holds rows",
        )
    for i, row in enumerate(value):
        if not isinstance(row, list) or len(row) != len(names):
            raise (place / f"[{i}]").error(
                f"expected [{', '.join(names)}], got `{row}`", "each row has a value for each name of the key"
            )
    return value


def _check_axes(axes: list[Axis], times: int, place: _Place) -> None:
    """Refuse a parameter on two axes, and axes that make more cases than are allowed. Each point is used `times`."""
    seen: set[str] = set()
    for name in (name for axis in axes for name in axis[0]):
        if name in seen:
            raise (place / ".params").error(f"parameter `{name}` is on two axes", "leave it on one of them")
        seen.add(name)
    cases = times * prod(len(axis) for axis in axes)
    if cases > MOST_CASES:
        raise place.error(
            f"expands to {cases} cases; at most {MOST_CASES} are allowed", "use fewer values, or several workloads"
        )


# A part of a workload, selected by size, name, category or tag.

_MOST_TAGS = 40


@dataclass(frozen=True)
class WorkloadFilter:
    """Filters over a workload. An empty filter selects everything; several values of one kind are alternatives."""

    names: Sequence[str] = ()
    """Names of operators, or patterns with `*` and `?`."""
    categories: Sequence[str] = ()
    tags: Sequence[str] = ()
    sizes: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.categories or self.tags or self.sizes)

    def filter_workload(self, workload: Workload) -> Workload:
        """Return the workload without the entries that do not have these sizes."""
        if not self.sizes:
            return workload
        kept = [replace(entry, sizes=[s for s in entry.sizes if s in self.sizes]) for entry in workload.cases]
        return replace(workload, cases=[entry for entry in kept if entry.sizes])

    def filter_cases(self, cases: Sequence[Case], find: Callable[[str], Operator]) -> list[Case]:
        """Return the cases that have one of these names, categories and tags; a name may be another system's."""
        return [
            case
            for case in cases
            if (
                not self.names
                or any(fnmatchcase(own, name) for name in self.names for own in (case.op, *find(case.op).aliases))
            )
            and (not self.categories or find(case.op).category in self.categories)
            and (not self.tags or set(self.tags) & set(case.tags))
        ]

    def empty_error(self, of: str, cases: Sequence[Case] = ()) -> UserError:
        """Return the error for a selection that is empty; `cases` is what it selected from."""
        filters = (("op", self.names), ("category", self.categories), ("tag", self.tags), ("size", self.sizes))
        listed = ", ".join(f"--{kind} {','.join(values)}" for kind, values in filters if values)
        tags = sorted({tag for case in cases for tag in case.tags})
        hint = "`--dry-run` without these options lists all cases"
        if self.sizes and not cases:
            hint = "--size selects entries that have `sizes`; the entries of this workload set parameters instead"
        elif self.tags and tags:
            hint = f"its tags are {', '.join(tags[:_MOST_TAGS])}" + (", ..." if len(tags) > _MOST_TAGS else "")
        return UserError(f"{of} has no case for {listed}", hint)
