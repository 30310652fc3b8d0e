"""PARAM's iterators: what a list of specs expands to, and under which ids.

An iterator is had by its name in the file, through the entry-point group `opmark.param_iterators`. It is called as
PARAM calls its own, so a class of PARAM's fits too:

    def halves(configs, key, device):
        '''Every spec, and the same with half the rows.'''
        for n, spec in enumerate(configs[key]):
            yield f"{n}_0", spec
            yield f"{n}_1", halved(spec)

`configs` holds what the file says under `build` and `input`; for `key` "input", `build` is the one spec that is built.
What it yields are (id, spec); an opmark error in place of a spec is reported, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from opmark.errors import InvalidParameter
from opmark.importers.param.arguments import Misfit, Spec, parts, shown
from opmark.importers.param.ranges import MOST_POINTS, Axis, calls, combined, fixed, one_of, whole_range

GROUP = "opmark.param_iterators"
DEFAULT = "DefaultConfigIterator"


class ConfigIterator(Protocol):
    """How a stranger's looks, and ours."""

    def __call__(self, configs: dict[str, Any], key: str, device: str) -> Iterator[tuple[Any, Any]]: ...


def default(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Each spec as it stands."""
    for i, spec in enumerate(configs[key]):
        yield str(i), spec


def batched(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Each spec of a batch file, under its own `id`."""
    for i, spec in enumerate(configs[key]):
        own = spec.get("id") if isinstance(spec, dict) else None
        yield (str(i) if own is None else str(own)), spec


def dummy(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """One call without arguments."""
    yield "0", {"args": [], "kwargs": {}}


def ranges(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Each point of each spec, numbered `0_0`, `0_1` ... `1_0`."""
    yield from _numbered(configs[key], calls)


def embedding_tables(configs: Spec, key: str, device: str) -> Iterator[tuple[str, Any]]:
    """Batch size and pooling factor, each a number, a range or a list, between what the tables were built with."""
    build, _ = parts(configs.get("build"))
    if len(build) < 6:
        raise Misfit("", f"expected a build of 6 arguments, got {len(build)}", _TABLES)
    yield from _numbered(configs[key], lambda spec: _lookups(spec, build))


_TABLES = "num_tables, rows, dim, pooling, weighted and weights_precision"


def _lookups(spec: Any, build: list[Any]) -> Axis:
    args, _ = parts(spec)
    if len(args) != 2:
        raise Misfit(".args", f"expected batch_size and pooling_factor, got {len(args)} arguments")
    axes = [_table_axis(arg, f".args[{i}]") for i, arg in enumerate(args)]
    return combined(axes, lambda two: {"args": [*build[:3], *two, *build[4:6]], "kwargs": {}})


def _table_axis(arg: Any, path: str) -> Axis:
    """Here the marks stand for the value, whatever they name."""
    if not isinstance(arg, dict) or not ("__range__" in arg or "__list__" in arg):
        return fixed(arg)
    if "value" not in arg:
        raise Misfit(path, f"expected a `value` to take in turn, got {shown(arg)}")
    plain = {key: value for key, value in arg.items() if not key.startswith("__")}
    axis = (whole_range if "__range__" in arg else one_of)(arg["value"], f"{path}.value")
    return combined([axis], lambda value: {**plain, "value": value[0]})


def _numbered(specs: Any, points: Callable[[Any], Axis]) -> Iterator[tuple[str, Any]]:
    for i, spec in enumerate(specs):
        try:
            axis = points(spec)
            if axis.points > MOST_POINTS:
                raise Misfit("", f"expands to {axis.points} points; at most {MOST_POINTS} are taken",
                             "use larger steps, or several files")  # fmt: skip
        except InvalidParameter as error:
            yield f"{i}_0", error
            continue
        for n, point in enumerate(axis):
            yield f"{i}_{n}", point
