"""What of one side stands opposite what of the other: by case, and by how it was computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from opmark.errors import UserError
from opmark.schema.figure import Figure
from opmark.schema.quantity import Cache
from opmark.schema.record import Status
from opmark.units import counted

Key = tuple[str, Cache]
"""A quantity and the state of the caches."""


class Way(NamedTuple):
    """One way to compute a case."""

    case: str
    backend: str
    implementation: str
    threads: int


class Measured(NamedTuple):
    """What became of one way on one side, over its processes."""

    way: Way
    figures: Mapping[Key, Mapping[int, Figure]]
    """By process; in the order of measuring, so that the first is the headline."""
    without: Sequence[Figure]
    """Of processes that measured nothing."""
    status: Status
    """That of the process that fared worst: of the others there may be a number, but not of the case."""

    @property
    def op(self) -> str:
        return self.any.op

    @property
    def any(self) -> Figure:
        """One that stands for all, one that failed first."""
        return self.without[0] if self.without else next(iter(next(iter(self.figures.values())).values()))


class Matched(NamedTuple):
    pairs: list[tuple[Measured, Measured]]
    only: tuple[list[Measured], list[Measured]]


# From the strictest: what has the same name everywhere, the same in another interpreter, the same implementation
# elsewhere, the same number of threads, the case alone.
_RULES: tuple[Callable[[Way], tuple[object, ...]], ...] = (
    lambda way: way,
    lambda way: (way.case, way.backend.partition("@")[0], way.implementation, way.threads),
    lambda way: (way.case, way.implementation, way.threads),
    lambda way: (way.case, way.threads),
    lambda way: (way.case,),
)


def measured(figures: Iterable[Figure]) -> list[Measured]:
    """In the order of the first of each."""
    found: dict[tuple[str, str, str, int], tuple[dict[Key, dict[int, Figure]], list[Figure]]] = {}
    bad: dict[tuple[str, str, str, int], Status] = {}
    for figure in figures:
        way = (figure.case, figure.backend, figure.implementation, figure.threads)
        kept = found.get(way)
        if kept is None:
            kept = found[way] = ({}, [])
        if figure.quantity and figure.cache:
            by_process = kept[0].setdefault((figure.quantity, figure.cache), {})
            by_process[figure.process] = figure
        else:
            kept[1].append(figure)
        if figure.status != "ok":
            bad.setdefault(way, figure.status)
    return [Measured(Way(*way), *rest, bad.get(way, "ok")) for way, rest in found.items()]


def matched(a: Sequence[Measured], b: Sequence[Measured]) -> Matched | None:
    """By the first rule that finds anything and leaves no choice; None where there is no case in common.

    UserError where there is a case in common, and several ways to compute it that have no name in common.
    """
    shared = {one.way.case for one in a} & {one.way.case for one in b}
    if not shared:
        return None
    for rule in _RULES:
        keys_a, keys_b = ([rule(one.way) for one in side] for side in (a, b))
        both = set(keys_a) & set(keys_b)
        if both and not any(_repeated(keys, both) for keys in (keys_a, keys_b)):
            right = dict(zip(keys_b, b, strict=True))
            pairs = [(one, right[key]) for key, one in zip(keys_a, a, strict=True) if key in both]
            lone = [[one for key, one in zip(keys, side, strict=True) if key not in both]
                    for keys, side in ((keys_a, a), (keys_b, b))]  # fmt: skip
            return Matched(pairs, (lone[0], lone[1]))
    ways = [", ".join(dict.fromkeys(_named(one.way) for one in side)) for side in (a, b)]
    raise UserError(
        f"{counted(len(shared), 'case')} in common, but no way to compute them: A has {ways[0]}; B has {ways[1]}",
        "`opmark compare BACKEND BACKEND --run RUN` compares backends of one run; of two runs, each has to have one",
    )


def _repeated(keys: Sequence[object], among: set[tuple[object, ...]]) -> bool:
    return any(count > 1 and key in among for key, count in Counter(keys).items())


def _named(way: Way) -> str:
    return f"{way.backend}/{way.implementation} ×{way.threads}"
