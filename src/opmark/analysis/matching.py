"""What of one side stands opposite what of the other: by case, and by how it was computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from opmark.errors import UserError
from opmark.registry import way_of
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
    """Number of processes that measured nothing."""
    status: Status
    """Status of the process that fared worst: the others may have a number, but the case has none."""

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
    ambiguous: set[str]
    """Cases in common with several ways on a side, none of which is known to be meant. They are in `only`, too."""


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
    """Case by case; None where there is no case in common. UserError where there is one, and nothing can be matched."""
    found = opposite([one.way for one in a], [one.way for one in b])
    if found is None:
        return None
    left, right = ({one.way: one for one in side} for side in (a, b))
    pairs = [(left[one], right[other]) for one, other in found.pairs]
    taken = {one for one, _ in found.pairs}, {other for _, other in found.pairs}
    only = [[one for one in side if one.way not in used] for side, used in zip((a, b), taken, strict=True)]
    return Matched(pairs, (only[0], only[1]), found.ambiguous)


class Opposite(NamedTuple):
    pairs: list[tuple[Way, Way]]
    ambiguous: set[str]


def opposite(a: Sequence[Way], b: Sequence[Way]) -> Opposite | None:
    """The ways that stand opposite each other: as `matched`, known before anything is measured."""
    right = _by_case(b)
    found = {case: _of_case(ways, right[case]) for case, ways in _by_case(a).items() if case in right}
    if not found:
        return None
    place = {way: i for i, way in enumerate(a)}
    pairs = sorted((pair for pairs in found.values() for pair in pairs), key=lambda pair: place[pair[0]])
    if pairs:
        return Opposite(pairs, {case for case, pairs in found.items() if not pairs})
    ways = [", ".join(dict.fromkeys(map(_named, side))) for side in (a, b)]
    raise UserError(
        f"{counted(len(found), 'case')} in common, but no way to compute them: A has {ways[0]}; B has {ways[1]}",
        "`opmark compare BACKEND BACKEND --run RUN` compares backends of one run; of two runs, each has to have one",
    )


def _by_case(ways: Iterable[Way]) -> dict[str, list[Way]]:
    found: dict[str, list[Way]] = {}
    for way in ways:
        found.setdefault(way.case, []).append(way)
    return found


def _of_case(a: Sequence[Way], b: Sequence[Way]) -> list[tuple[Way, Way]]:
    """By the first rule that finds anything and leaves no choice: among all ways, then among the plain ones, which
    stand for a framework where nothing else is said."""
    if len(a) == len(b) == 1 and a[0] == b[0]:
        return [(a[0], b[0])]  # as the first rule has it: so are most
    plain = [[way for way in side if not way_of(way.backend, way.implementation)] for side in (a, b)]
    for one, other in ((a, b), (plain[0], plain[1])):
        for rule in _RULES:
            keys = [[rule(way) for way in side] for side in (one, other)]
            both = set(keys[0]) & set(keys[1])
            if both and not any(_repeated(own, both) for own in keys):
                right = dict(zip(keys[1], other, strict=True))
                return [(way, right[key]) for key, way in zip(keys[0], one, strict=True) if key in both]
    return []


def _repeated(keys: Sequence[object], among: set[tuple[object, ...]]) -> bool:
    return any(count > 1 and key in among for key, count in Counter(keys).items())


def _named(way: Way) -> str:
    return f"{way.backend}/{way.implementation} ×{way.threads}"
