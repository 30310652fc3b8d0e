"""Charts of time and rate over size, for chains of cases that differ in their sizes only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations
from math import gcd
from statistics import median
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.rows import Row, RunView, Timing
from opmark.plugin.param import Param
from opmark.plugin.registry import parameters_of
from opmark.report.charts.elements import (
    LeftOutCounter,
    WayNames,
    address,
    doubts,
    ends,
    is_usable_time,
    name_few,
    note_one_process,
    row_label,
    unique,
    why_left_out,
)
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark

# Chains: cases of one operator that differ in one size only, or in sizes that grow together.

FEWEST = 3
"""Least number of sizes of a chain, because two points are always a line."""
_MOST_PAIRED = 4
"""Number of varying sizes up to which all pairs of them are tried, each of which takes a pass over all cases."""
_SIZES = ("size", "bytes")
_WHOLE = "shape"
"""Kinds of parameters that are sizes."""

Sizes = dict[str, int]
"""Sizes by parameter; those of a shape by parameter and position: `M`, `shape.0`."""


class Chain(NamedTuple):
    op: str
    phase: str
    """Phase, with the inputs whose gradients are computed if only some are."""
    dtype: str
    moving: tuple[str, ...]
    """The sizes that differ, named as in `Sizes`."""
    fixed: str
    """The other sizes and parameters as text."""
    cases: tuple[str, ...]
    """Ids of cases in the order of their sizes."""
    values: tuple[tuple[int, ...], ...]
    """Values of the moving sizes of each case."""


class _ChainCase(NamedTuple):
    row: Row
    sizes: Sizes
    rest: tuple[str, ...]
    """Parameters other than sizes, as texts."""


def chains(rows: Iterable[Row]) -> list[Chain]:
    """Return chains, the longest of each operator first; a case belongs to one chain at most."""
    alike: dict[tuple[Any, ...], list[_ChainCase]] = {}
    known: dict[str, dict[str, Param]] = {}
    for row in {row.case: row for row in rows}.values():
        if row.op not in known:
            known[row.op] = parameters_of(row.op)
        sizes, rest = _split(row.params, known[row.op])
        key = (row.op, row.phase_text, rest, tuple(sizes))
        alike.setdefault(key, []).append(_ChainCase(row, sizes, rest))
    return [chain for group in alike.values() if len(group) >= FEWEST for chain in _find_chains(group)]


def _split(params: dict[str, Any], known: dict[str, Param]) -> tuple[Sizes, tuple[str, ...]]:
    """Split parameters into sizes, and all others as texts."""
    sizes: Sizes = {}
    rest = []
    for name, value in params.items():
        kind = known[name].kind if name in known else _guess_kind(value)
        if kind in _SIZES and _is_size(value):
            sizes[name] = value
        elif kind == _WHOLE and isinstance(value, list) and all(map(_is_size, value)):
            sizes.update((f"{name}.{i}", size) for i, size in enumerate(value))
        else:
            rest.append(f"{name}={value}")
    return sizes, tuple(rest)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _guess_kind(value: object) -> str:
    """Return the likely kind of a parameter of an operator that is not installed: whole numbers may be sizes."""
    if isinstance(value, list):
        return _WHOLE
    return _SIZES[0] if _is_size(value) else ""


def _find_chains(cases: Sequence[_ChainCase]) -> list[Chain]:
    """Return the chains of a group: the longest first, then those that its remaining cases form."""
    names = list(cases[0].sizes)
    varying = [name for name in names if len({case.sizes[name] for case in cases}) > 1]
    found: list[tuple[tuple[str, ...], list[_ChainCase]]] = []
    for moving in _candidates(varying):
        found += [(moving, own) for own in _group_along(cases, moving, varying) if len(own) >= FEWEST]
    found.sort(key=lambda pair: -len(pair[1]))
    used: set[str] = set()
    made = []
    for moving, own in found:
        free = [case for case in own if case.row.case not in used]
        if len(free) >= FEWEST:
            made.append(_chain(free, moving, varying))
            used.update(case.row.case for case in free)
    return made


def _candidates(varying: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the sets of sizes that may move together: each one, all, and all pairs if there are few."""
    singles: list[tuple[str, ...]] = [(name,) for name in varying]
    pairs: list[tuple[str, ...]] = list(combinations(varying, 2)) if 2 < len(varying) <= _MOST_PAIRED else []
    return [*singles, *([tuple(varying)] if len(varying) > 1 else []), *pairs]


def _group_along(
    cases: Sequence[_ChainCase], moving: tuple[str, ...], varying: Sequence[str]
) -> list[list[_ChainCase]]:
    """Return groups of cases that differ only in the moving sizes, which keep their proportions."""
    fixed = [name for name in varying if name not in moving]
    found: dict[tuple[int, ...], list[_ChainCase]] = {}
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


def _chain(cases: Sequence[_ChainCase], moving: tuple[str, ...], varying: Sequence[str]) -> Chain:
    first, order = cases[0], sorted(cases, key=lambda case: case.sizes[moving[0]])
    fixed = [f"{_size_name(name)}={first.sizes[name]}" for name in varying if name not in moving]
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


def _size_name(name: str) -> str:
    """Return the name of a size as programs write it: `shape[0]`."""
    parameter, dot, place = name.partition(".")
    return f"{parameter}[{place}]" if dot else name


def shape_of(moving: Sequence[str]) -> str | None:
    """Return the shape parameter of which all moving sizes are elements, or None."""
    found = {name.partition(".")[0] for name in moving if "." in name}
    return found.pop() if len(found) == 1 and all("." in name for name in moving) else None


MOST_OPERATORS = 12
"""Number of operators that get figures: those with the most sizes."""
MOST_SERIES = 8
"""Number of series in a figure, the longest ones; more cannot be distinguished."""
MOST_SIZES = 40
"""Number of points of a series; of more, points at equal distances are taken, always with both ends."""
_LARGEST = 10**300
"""Upper bound on the number of elements on an axis; a shape may contain any numbers."""
COMPUTES = 4.0
"""Operations per byte above which the rate that is shown is that of arithmetic."""

_Marker = Callable[[float, "_Point"], "Mark | None"]

_TIME = Axis("time per call", "s", "log")
_BANDWIDTH = Axis("bandwidth", "B/s", "log")
_ARITHMETIC = Axis("floating-point operations per second", "flop/s", "log")


class _Point(NamedTuple):
    row: Row
    timing: Timing
    size: tuple[int, ...]
    """Values of the moving sizes."""


class _SweepLine(NamedTuple):
    """The measurements of a chain by one backend in one state of the caches."""

    chain: Chain
    row: Row
    timing: Timing
    points: list[_Point]


def sweep(run_view: RunView) -> list[Chart]:
    """Return two figures for each operator and phase: time, and the rate of its limit, arithmetic or bandwidth."""
    usable, left = [], LeftOutCounter()
    for row in run_view.rows:
        if reason := why_left_out(row):
            left.add(reason)
        else:
            usable.append(row)
    operators = sorted(_lines(usable).items(), key=lambda pair: _length(pair[1]), reverse=True)
    cases = Counter((row.op, row.phase_text) for row in {row.case: row for row in usable}.values())
    charts = [chart for (op, phase), lines in operators[:MOST_OPERATORS]
              for chart in _charts(op, phase, lines, cases[op, phase])]  # fmt: skip
    if charts:
        more = [" ".join(key) for key, _ in operators[MOST_OPERATORS:]]
        operators_left = units.count_noun(len(more), "operator")
        note = f"{operators_left} with fewer sizes left out: {name_few(more)}; choose one to see it"
        charts[0] = replace(charts[0], notes=(*charts[0].notes, *([note] if more else []), *left.notes()))
    return unique(charts)


def _lines(rows: Sequence[Row]) -> dict[tuple[str, str], list[_SweepLine]]:
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    found: dict[tuple[str, str], list[_SweepLine]] = {}
    for chain in chains(rows):
        own = [line for line in _chain_lines(chain, by_case) if len(line.points) >= FEWEST]
        if own:
            found.setdefault((chain.op, chain.phase), []).extend(own)
    return found


def _chain_lines(chain: Chain, by_case: dict[str, list[Row]]) -> list[_SweepLine]:
    """Return the headline in each state of the caches, by backend and the way of measuring."""
    found: dict[tuple[object, ...], _SweepLine] = {}
    for case, size in zip(chain.cases, chain.values, strict=True):
        repeated: Counter[tuple[object, ...]] = Counter()
        for row in by_case[case]:
            quantity = row.timings[0].quantity
            for timing in row.timings:
                if timing.quantity != quantity or not is_usable_time(timing):
                    continue
                how = (row.backend, row.implementation, row.threads, row.effort, row.mode, row.seed, quantity,
                       timing.cache)  # fmt: skip
                line = found.setdefault((*how, repeated[how]), _SweepLine(chain, row, timing, []))
                line.points.append(_Point(row, timing, size))
                repeated[how] += 1
    return list(found.values())


def _length(lines: Sequence[_SweepLine]) -> tuple[int, int]:
    return max(len(line.points) for line in lines), sum(len(line.points) for line in lines)


def _charts(op: str, phase: str, lines: Sequence[_SweepLine], cases: int) -> Iterator[Chart]:
    chosen, others = _choose_lines(lines)
    thin_lines = [line._replace(points=pick_evenly(line.points)) for line in chosen]
    every = _names([*chosen, *others])
    names = every[: len(thin_lines)]
    lone = cases - len({case for line in lines for case in line.chain.cases})
    notes = (*_left_out(every[len(thin_lines) :], chosen, thin_lines, lone), *note_one_process(_timings(thin_lines)))
    across = _SizeAxis(thin_lines)
    title = op if phase == "forward" else f"{op} {phase}"
    times = [_series(name, across.place_points(line), _time) for name, line in zip(names, thin_lines, strict=True)]
    yield Chart(address("sweep", op, phase), f"{title}: time over size",
                "Time a call over size; the area is the interval of the median. Where it is flat, the launch is all.",
                "plot", across.axis, _TIME, _without_empty(times), notes=notes)  # fmt: skip
    computing = _computes(thin_lines)
    rates = [_series(name, across.place_points(line), _flops if computing else _bytes)
             for name, line in zip(names, thin_lines, strict=True)]  # fmt: skip
    if rate_series := _without_empty(rates):
        axis = _ARITHMETIC if computing else _BANDWIDTH
        yield Chart(address("sweep", op, phase, "rate"), f"{title}: {axis.title} over size",
                    "What was reached at each size, with the interval of the median; it levels off at the limit.",
                    "plot", across.axis, axis, rate_series, notes=notes)  # fmt: skip


def _choose_lines(lines: Sequence[_SweepLine]) -> tuple[list[_SweepLine], list[_SweepLine]]:
    """Return the lines that are drawn, and the others. The longest are preferred, but one of each backend and element
    type comes before a second of any."""
    ordered = sorted(lines, key=lambda line: -len(line.points))
    turns: Counter[tuple[str, str, str]] = Counter()
    ranked = []
    for place, line in enumerate(ordered):
        kind = (line.row.backend, line.row.implementation, line.chain.dtype)
        ranked.append((turns[kind], place))
        turns[kind] += 1
    first = sorted(place for _, place in sorted(ranked)[:MOST_SERIES])
    others = sorted(place for _, place in sorted(ranked)[MOST_SERIES:])
    return [ordered[i] for i in first], [ordered[i] for i in others]


def _timings(lines: Sequence[_SweepLine]) -> Iterator[Timing]:
    return (point.timing for line in lines for point in line.points)


def _left_out(
    others: Sequence[str], chosen: Sequence[_SweepLine], thin_lines: Sequence[_SweepLine], lone: int
) -> Iterator[str]:
    if others:
        yield f"left out: {len(others)} more series: {name_few(others)}"
    if lone:
        yield f"left out: {units.count_noun(lone, 'case')} with fewer than {FEWEST} sizes that differ in one thing only"
    if skipped := sum(len(line.points) for line in chosen) - sum(len(line.points) for line in thin_lines):
        points = units.count_noun(skipped, "point")
        yield f"left out: {points} between others, of series with more than {MOST_SIZES} sizes"


def pick_evenly(points: Sequence[_Point]) -> list[_Point]:
    """Return at most `MOST_SIZES` points at equal distances, always with the first and the last."""
    last = len(points) - 1
    if last < MOST_SIZES:
        return list(points)
    return [points[round(i * last / (MOST_SIZES - 1))] for i in range(MOST_SIZES)]


def _without_empty(found: Sequence[ChartSeries]) -> tuple[ChartSeries, ...]:
    return tuple(series for series in found if series.marks)


def _computes(lines: Sequence[_SweepLine]) -> bool:
    found = [point.row for line in lines for point in line.points]
    known = [row.flops / row.bytes for row in found if row.flops is not None and row.bytes]
    return bool(known) and median(known) > COMPUTES


class _SizeAxis:
    """The axis of sizes: the parameter if all series move the same one, else the bytes moved."""

    def __init__(self, lines: Sequence[_SweepLine]) -> None:
        movers = {line.chain.moving for line in lines}
        shapes = {shape_of(moving) for moving in movers}
        equal = all(len(set(size)) == 1 for line in lines for size in line.chain.values)
        self._shape = shapes.pop() if len(shapes) == 1 else None
        self._equal = not self._shape and len(movers) == 1 and equal
        if self._shape:
            title = "elements" if self._shape == "shape" else f"elements of {self._shape}"
            self.axis = Axis(title, "count", "log2")
        elif self._equal:
            self.axis = Axis(" = ".join(movers.pop()), "count", "log2")
        else:
            self.axis = Axis("bytes moved", "B", "log2")

    def place_points(self, line: _SweepLine) -> list[tuple[float, _Point]]:
        found = ((self._place(point), point) for point in line.points)
        return sorted(((x, point) for x, point in found if x > 0), key=lambda pair: pair[0])

    def _place(self, point: _Point) -> float:
        if self._shape:
            return float(min(math.prod(point.row.params[self._shape]), _LARGEST))
        return float(point.size[0] if self._equal else point.row.bytes or 0)


def _series(name: str, placed: Sequence[tuple[float, _Point]], mark: _Marker) -> ChartSeries:
    found = (mark(x, point) for x, point in placed)
    return ChartSeries(name, tuple(one for one in found if one is not None), "band")


def _time(x: float, point: _Point) -> Mark | None:
    low, high = ends(point.timing)
    return Mark(x, point.timing.median or 0, row_label(point.row), low, high, link=point.row.key, note=_note(point))


def _bytes(x: float, point: _Point) -> Mark | None:
    return _rate(x, point, point.row.bytes)


def _flops(x: float, point: _Point) -> Mark | None:
    return _rate(x, point, point.row.flops)


def _rate(x: float, point: _Point, work: int | None) -> Mark | None:
    """Return the mark of a rate, or None if the work is unknown. The longest time is the lowest rate."""
    seconds = point.timing.median
    if not work or not seconds:
        return None
    low, high = ends(point.timing)
    slow, quick = (work / high if high else None), (work / low if low else None)
    return Mark(x, work / seconds, row_label(point.row), slow, quick, link=point.row.key, note=_note(point))


def _note(point: _Point) -> str:
    return "; ".join(filter(None, [f"{point.timing.quantity}, {point.timing.cache}", doubts(point.timing)]))


def _names(lines: Sequence[_SweepLine]) -> list[str]:
    """Return the names of series: backend, state of the caches, and the properties in which they differ; equal names
    get numbers."""
    ways = WayNames()
    parts = [
        [ways.name(line.row), line.timing.cache, line.chain.dtype, line.chain.fixed, line.timing.quantity,
         units.count_noun(line.row.threads, "thread"), line.row.mode, line.row.effort]
        for line in lines
    ]  # fmt: skip
    apart = [i < 2 or len({own[i] for own in parts}) > 1 for i in range(len(parts[0]))]
    names = [", ".join(part for part, tells in zip(own, apart, strict=True) if tells and part) for own in parts]
    times: Counter[str] = Counter()
    for i, name in enumerate(names):
        times[name] += 1
        names[i] = name if times[name] == 1 else f"{name} ({times[name]})"
    return names
