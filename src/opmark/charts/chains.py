"""Chains: cases of one operator that differ in one size only, or in sizes that grow together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import combinations
from math import gcd
from typing import Any, NamedTuple

from opmark.analysis.rows import Row
from opmark.registry import parameters_of
from opmark.schema.param import Param

FEWEST = 3
"""Sizes of a chain: two points are always a line."""
_MOST_PAIRED = 4
"""Sizes that vary, up to which each two of them are tried together: it costs a look at all cases."""
_SIZES = ("size", "bytes")
_WHOLE = "shape"
"""Kinds of parameters that say how much."""

Sizes = dict[str, int]
"""By parameter, of a shape by parameter and place: `M`, `shape.0`."""


class Chain(NamedTuple):
    op: str
    phase: str
    """With the inputs whose gradients are computed, where these are chosen."""
    dtype: str
    moving: tuple[str, ...]
    """The sizes that differ, named as in `Sizes`."""
    fixed: str
    """The other sizes and parameters, as people read them."""
    cases: tuple[str, ...]
    """Ids, by what they move."""
    values: tuple[tuple[int, ...], ...]
    """Values of the moving sizes, one case each."""


class _Case(NamedTuple):
    row: Row
    sizes: Sizes
    rest: tuple[str, ...]
    """Parameters that are no sizes."""


def chains(rows: Iterable[Row]) -> list[Chain]:
    """The longest first within each operator; a case is in one of them at most."""
    alike: dict[tuple[Any, ...], list[_Case]] = {}
    known: dict[str, dict[str, Param]] = {}
    for row in {row.case: row for row in rows}.values():
        if row.op not in known:
            known[row.op] = parameters_of(row.op)
        sizes, rest = _split(row.params, known[row.op])
        key = (row.op, row.phase_text, rest, tuple(sizes))
        alike.setdefault(key, []).append(_Case(row, sizes, rest))
    return [chain for group in alike.values() if len(group) >= FEWEST for chain in _of_group(group)]


def _split(params: dict[str, Any], known: dict[str, Param]) -> tuple[Sizes, tuple[str, ...]]:
    """The sizes, and everything else as texts."""
    sizes: Sizes = {}
    rest = []
    for name, value in params.items():
        kind = known[name].kind if name in known else _guessed(value)
        if kind in _SIZES and _is_size(value):
            sizes[name] = value
        elif kind == _WHOLE and isinstance(value, list) and all(map(_is_size, value)):
            sizes.update((f"{name}.{i}", size) for i, size in enumerate(value))
        else:
            rest.append(f"{name}={value}")
    return sizes, tuple(rest)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _guessed(value: object) -> str:
    """For an operator that is not installed, whole numbers may be sizes."""
    if isinstance(value, list):
        return _WHOLE
    return _SIZES[0] if _is_size(value) else ""


def _of_group(cases: Sequence[_Case]) -> list[Chain]:
    """What has the most sizes is taken first, and what is left is looked at again."""
    names = list(cases[0].sizes)
    varying = [name for name in names if len({case.sizes[name] for case in cases}) > 1]
    found: list[tuple[tuple[str, ...], list[_Case]]] = []
    for moving in _candidates(varying):
        found += [(moving, own) for own in _along(cases, moving, varying) if len(own) >= FEWEST]
    found.sort(key=lambda pair: -len(pair[1]))
    taken: set[str] = set()
    made = []
    for moving, own in found:
        free = [case for case in own if case.row.case not in taken]
        if len(free) >= FEWEST:
            made.append(_chain(free, moving, varying))
            taken.update(case.row.case for case in free)
    return made


def _candidates(varying: Sequence[str]) -> list[tuple[str, ...]]:
    """Which sizes may be the ones that move: one, all, and two where there are few."""
    singles: list[tuple[str, ...]] = [(name,) for name in varying]
    pairs: list[tuple[str, ...]] = list(combinations(varying, 2)) if 2 < len(varying) <= _MOST_PAIRED else []
    return [*singles, *([tuple(varying)] if len(varying) > 1 else []), *pairs]


def _along(cases: Sequence[_Case], moving: tuple[str, ...], varying: Sequence[str]) -> list[list[_Case]]:
    """Cases that are the same but for the moving sizes, which keep their proportions."""
    fixed = [name for name in varying if name not in moving]
    found: dict[tuple[int, ...], list[_Case]] = {}
    alone = len(moving) == 1
    for case in cases:
        key = tuple([case.sizes[name] for name in fixed])
        if not alone:
            key = (*key, *_proportions([case.sizes[name] for name in moving]))
        found.setdefault(key, []).append(case)
    return list(found.values())


def _proportions(values: list[int]) -> list[int]:
    common = reduce(gcd, values)
    return [value // common for value in values]


def _chain(cases: Sequence[_Case], moving: tuple[str, ...], varying: Sequence[str]) -> Chain:
    first, order = cases[0], sorted(cases, key=lambda case: case.sizes[moving[0]])
    fixed = [f"{_called(name)}={first.sizes[name]}" for name in varying if name not in moving]
    others = [part for part in first.rest if not part.startswith("dtype=")]
    return Chain(
        first.row.op,
        first.row.phase_text,
        first.row.dtype,
        moving,
        " ".join([*fixed, *others]),
        tuple(case.row.case for case in order),
        tuple(tuple(case.sizes[name] for name in moving) for case in order),
    )


def _called(name: str) -> str:
    """`shape[0]`, as programs write it."""
    parameter, dot, place = name.partition(".")
    return f"{parameter}[{place}]" if dot else name


def whole(moving: Sequence[str]) -> str | None:
    """The parameter whose places all moving sizes are, if it is a shape."""
    found = {name.partition(".")[0] for name in moving if "." in name}
    return found.pop() if len(found) == 1 and all("." in name for name in moving) else None
