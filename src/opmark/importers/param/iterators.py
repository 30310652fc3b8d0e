"""PARAM's iterators, which expand a list of specs to points with ids.

A file names an iterator, which is found through the entry-point group `opmark.param_iterators`. It is called as PARAM
calls its own, so that a class of PARAM can be used as well:

    def halves(configs, key, device):
        '''Every spec, and the same with half the rows.'''
        for n, spec in enumerate(configs[key]):
            yield f"{n}_0", spec
            yield f"{n}_1", halved(spec)

`configs` holds `build` and `input` of the file; for `key` "input", `build` is the spec of one build. The iterator
yields (id, spec). An error of opmark in place of a spec is reported, and the other points are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from opmark.errors import InvalidParameter
from opmark.importers.param.arguments import Misfit, Spec, parts, quote
from opmark.importers.param.ranges import MOST_POINTS, Axis, combine, expand_calls, one_of, single, whole_range

ITERATOR_GROUP = "opmark.param_iterators"
DEFAULT_ITERATOR = "DefaultConfigIterator"


class ConfigIterator(Protocol):
    """The signature of iterators, opmark's own and those of plug-ins."""

    def __call__(self, configs: dict[str, Any], key: str, device: str) -> Iterator[tuple[Any, Any]]: ...


def iterate_specs(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Yield each spec as it is."""
    for i, spec in enumerate(configs[key]):
        yield str(i), spec


def iterate_batch(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Yield each spec of a batch file under its own `id`."""
    for i, spec in enumerate(configs[key]):
        own = spec.get("id") if isinstance(spec, dict) else None
        yield (str(i) if own is None else str(own)), spec


def iterate_once(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Yield one call without arguments."""
    yield "0", {"args": [], "kwargs": {}}


def iterate_ranges(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Yield each point of each spec, numbered `0_0`, `0_1` ... `1_0`."""
    yield from _number_points(configs[key], expand_calls)


def iterate_lookups(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Yield lookups in tables: batch size and pooling factor, each a number, a range or a list, beside the build."""
    build, _ = parts(configs.get("build"))
    if len(build) < 6:
        raise Misfit("", f"expected a build of 6 arguments, got {len(build)}", _TABLES)
    yield from _number_points(configs[key], lambda spec: _lookups(spec, build))


_TABLES = "num_tables, rows, dim, pooling, weighted and weights_precision"


def _lookups(spec: Any, build: list[Any]) -> Axis:
    args, _ = parts(spec)
    if len(args) != 2:
        raise Misfit(".args", f"expected batch_size and pooling_factor, got {len(args)} arguments")
    axes = [_table_axis(arg, f".args[{i}]") for i, arg in enumerate(args)]
    return combine(axes, lambda two: {"args": [*build[:3], *two, *build[4:6]], "kwargs": {}})


def _table_axis(arg: Any, path: str) -> Axis:
    """Return the values of an argument; `__range__` and `__list__` always mean its `value`."""
    if not isinstance(arg, dict) or not ("__range__" in arg or "__list__" in arg):
        return single(arg)
    if "value" not in arg:
        raise Misfit(path, f"expected a `value` with a range or list, got {quote(arg)}")
    plain = {key: value for key, value in arg.items() if not key.startswith("__")}
    axis = (whole_range if "__range__" in arg else one_of)(arg["value"], f"{path}.value")
    return combine([axis], lambda value: {**plain, "value": value[0]})


def _number_points(specs: Any, points: Callable[[Any], Axis]) -> Iterator[tuple[str, Any]]:
    for i, spec in enumerate(specs):
        try:
            axis = points(spec)
            if axis.points > MOST_POINTS:
                raise Misfit("", f"the spec expands to {axis.points} points; expected at most {MOST_POINTS}",
                             "use larger steps, or several files")  # fmt: skip
        except InvalidParameter as error:
            yield f"{i}_0", error
            continue
        for n, point in enumerate(axis):
            yield f"{i}_{n}", point
