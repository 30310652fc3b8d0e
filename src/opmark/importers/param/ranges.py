"""Expands `__range__` and `__copy__` of PARAM specs, in PARAM's order: the last argument changes fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import product
from math import prod
from typing import Any

from opmark.importers.param.arguments import Misfit, Spec, is_number, is_whole, parts, quote

MOST_POINTS = 1_000_000
"""Points of one file; more are taken for a mistake, and would take hours to run."""

_META = ("__range__", "__copy__", "__list__")
_NESTED = ("genericlist", "list", "tuple")


class Axis:
    """Values to iterate over, whose number is known before they are made."""

    def __init__(self, points: int, values: Callable[[], Iterable[Any]]) -> None:
        self.points = points
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())


def combine(axes: list[Axis], make: Callable[[tuple[Any, ...]], Any]) -> Axis:
    """Return an axis of all combinations, the last axis fastest, each turned into one value by `make`."""
    return Axis(prod(axis.points for axis in axes), lambda: map(make, product(*axes)))


def single(value: Any) -> Axis:
    return Axis(1, lambda: (value,))


def expand_calls(spec: Any) -> Axis:
    """Expand a spec with ranges to specs without `__range__` and `__copy__`."""
    args, kwargs = parts(spec)
    axes = [alternatives(arg, f".args[{i}]") for i, arg in enumerate(args)]
    axes += [alternatives(arg, f".kwargs.{name}") for name, arg in kwargs.items()]
    copies = list(_copies(args, kwargs))
    rest = {key: value for key, value in spec.items() if key not in ("args", "kwargs")}

    def make(values: tuple[Any, ...]) -> Spec:
        made = {
            **rest,
            "args": list(values[: len(args)]),
            "kwargs": dict(zip(kwargs, values[len(args) :], strict=True)),
        }
        made = _apply_copies(made, copies) if copies else made
        if not kwargs:
            del made["kwargs"]  # PARAM yields none either
        return made

    return combine(axes, make)


def alternatives(arg: Any, path: str) -> Axis:
    """Expand an argument with ranges; anything that is not an argument is left to be refused later."""
    if not isinstance(arg, dict) or not any(key in arg for key in _META):
        return single(arg)
    plain = {key: value for key, value in arg.items() if key not in _META}
    ranged = arg.get("__range__", [])
    if not isinstance(ranged, list) or not all(isinstance(key, str) for key in ranged):
        raise Misfit(f"{path}.__range__", f'expected names, as in ["value"], got {quote(ranged)}')
    missing = next((key for key in ranged if key not in plain), None)
    if missing is not None:
        raise Misfit(f"{path}.__range__", f"the argument has no `{missing}` to take a range of")
    keys = [key for key in plain if key in ranged]
    axes = [_values(plain, key, f"{path}.{key}") for key in keys]
    return combine(axes, lambda values: {**plain, **dict(zip(keys, values, strict=True))})


def whole_range(ends: Any, path: str) -> Axis:
    """Return the values of [first, last] or [first, last, step], with the last included."""
    if not isinstance(ends, list) or len(ends) not in (2, 3) or not all(map(is_whole, ends)):
        raise Misfit(path, f"expected [first, last, step] in whole numbers, got {quote(ends)}")
    first, last, step = (*ends, 1)[:3]
    if step < 1 or last < first:
        raise Misfit(path, f"expected first <= last and a step of at least 1, got {quote(ends)}")
    steps = range(first, last + 1, step)
    return Axis((last - first) // step + 1, lambda: steps)


def one_of(values: Any, path: str) -> Axis:
    if not isinstance(values, list) or not values:
        raise Misfit(path, f"expected a list of values, got {quote(values)}")
    return Axis(len(values), lambda: values)


def _real_range(ends: Any, path: str) -> Axis:
    if not isinstance(ends, list) or len(ends) != 3 or not all(map(is_number, ends)):
        raise Misfit(path, f"expected [first, last, step] in numbers, got {quote(ends)}")
    first, last, step = ends
    if not step > 0 or last < first:
        raise Misfit(path, f"expected first <= last and a step above 0, got {quote(ends)}")
    ratio = (last - first) / step
    if ratio > MOST_POINTS:
        raise Misfit(path, f"the range has more than {MOST_POINTS} values: {quote(ends)}", "use a larger step")
    points = int(ratio * (1 + 1e-9) + 1e-9) + 1  # the tolerance makes 0 to 1 in steps of 0.1 eleven points
    return Axis(points, lambda: (float(f"{first + i * step:.15g}") for i in range(points)))


def _shape(sizes: Any, path: str) -> Axis:
    if not isinstance(sizes, list):
        raise Misfit(path, f"expected a list of sizes and [first, last, step], got {quote(sizes)}")
    axes = [
        whole_range(size, f"{path}[{i}]") if isinstance(size, list) else single(size) for i, size in enumerate(sizes)
    ]
    return combine(axes, list)


def _items(items: Any, path: str) -> Axis:
    if not isinstance(items, list):
        raise Misfit(path, f"expected a list of arguments, got {quote(items)}")
    return combine([alternatives(item, f"{path}[{i}]") for i, item in enumerate(items)], list)


_RANGES: dict[tuple[str, str], Callable[[Any, str], Axis]] = {
    ("tensor", "shape"): _shape,
    ("tensor", "dtype"): one_of,
    ("tensor", "requires_grad"): one_of,
    **{(kind, "value"): whole_range for kind in ("int", "long")},
    **{(kind, "value"): _real_range for kind in ("float", "double")},
    **{(kind, "value"): one_of for kind in ("str", "bool", "device")},
    **{(kind, "value"): _items for kind in _NESTED},
}


def _values(arg: Spec, key: str, path: str) -> Axis:
    kind = arg.get("type")
    make = _RANGES.get((kind, key)) if isinstance(kind, str) else None
    if make is None:
        raise Misfit(path, f"an argument of type {quote(kind)} has no range of `{key}`")
    return make(arg[key], path)


Copy = tuple[str | int, str, int, str | int, int]
"""Argument, attribute, element; and the argument and element that the value is copied from."""


def _copies(args: list[Any], kwargs: Spec) -> Iterator[Copy]:
    """Yield each copy in the order of the arguments, checked as far as possible without values."""
    known = _by_place(args, kwargs)
    for name, arg in known.items():
        if not isinstance(arg, dict) or "__copy__" not in arg:
            continue
        path = (f".args[{name}]" if isinstance(name, int) else f".kwargs.{name}") + ".__copy__"
        if not isinstance(arg["__copy__"], list):
            raise Misfit(path, f"expected a list, got {quote(arg['__copy__'])}", _COPY_HINT)
        for i, mapping in enumerate(arg["__copy__"]):
            if not isinstance(mapping, dict):
                raise Misfit(f"{path}[{i}]", f"expected an attribute, got {quote(mapping)}", _COPY_HINT)
            for attribute, places in mapping.items():
                yield _copy(name, attribute, places, known, f"{path}[{i}].{attribute}")


_COPY_HINT = 'as in [{"shape": [0, [1, 2]]}]: element 0 of this shape is element 2 of the shape of argument 1'


def _copy(name: str | int, attribute: str, places: Any, known: dict[str | int, Any], path: str) -> Copy:
    if attribute != "shape":
        raise Misfit(path, f"only elements of a shape can be copied, not of `{attribute}`", _COPY_HINT)
    fits = isinstance(places, list) and len(places) == 2 and isinstance(places[1], list) and len(places[1]) == 2
    if not fits:
        raise Misfit(path, f"expected [element, [argument, element]], got {quote(places)}", _COPY_HINT)
    element, (source, taken) = places
    if not isinstance(source, str | int) or isinstance(source, bool) or source not in known:
        raise Misfit(path, f"there is no argument {quote(source)}", _COPY_HINT)
    for who, index in ((name, element), (source, taken)):
        values = known[who].get(attribute) if isinstance(known[who], dict) else None
        if not isinstance(values, list) or not is_whole(index) or not -len(values) <= index < len(values):
            raise Misfit(path, f"argument {quote(who)} has no element {quote(index)} of `{attribute}`", _COPY_HINT)
    return name, attribute, element, source, taken


def _by_place(args: list[Any], kwargs: Spec) -> dict[str | int, Any]:
    found: dict[str | int, Any] = dict(enumerate(args))
    found.update(kwargs.items())
    return found


def _apply_copies(spec: Spec, copies: list[Copy]) -> Spec:
    made = deepcopy(spec)
    found = _by_place(made["args"], made["kwargs"])
    for name, attribute, element, source, taken in copies:
        found[name][attribute][element] = found[source][attribute][taken]
    return made
