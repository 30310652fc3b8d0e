"""The chart of a comparison: the ratio of the times of B and A for each case, the slowest first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.charts.elements import end, name_few, positive
from opmark.report.comparison import mean_cases
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine, Role
from opmark.schema.comparison import Compared, Geomean, Pairing, Verdict
from opmark.schema.record import FAILED, MEASURED
from opmark.units import count_noun, percent

MOST = 60
_VERDICTS: tuple[tuple[Verdict, Role], ...] = (
    ("slower", "alarm"),
    ("faster", "data"),
    ("undecided", "data"),
    ("same", "data"),
)


_RANK = {"slower": 0, "faster": 1}


class _CaseRatio(NamedTuple):
    pair: Pairing
    ratio: float


def ratios(compared: Compared, *, most: int = MOST) -> Chart:
    """Return the chart, without a series if no case has a ratio. Marks link to cases, because a pair has two rows."""
    known = [_CaseRatio(pair, pair.ratio) for pair in compared.pairs if positive(pair.ratio)]
    cases = _most_important(known, most)
    mean = compared.geomean if compared.geomean and positive(compared.geomean.ratio) else None
    mean_name = f"geometric mean of {mean_cases(compared, mean)}" if mean else ""
    names = [*_names(compared.pairs, [one.pair for one in cases]), *([mean_name] if mean else [])]
    return Chart(
        id="ratios",
        title=f"{compared.b} against {compared.a}",
        about=f"How many times as long {compared.b} takes as {compared.a}: to the right of 1 is slower.",
        kind="bars",
        x=Axis("B over A", "ratio", "log"),
        y=Axis("", "", "category", tuple(names)),
        series=(*_series(cases), *([_mean(mean, mean_name, len(cases))] if mean else [])),
        rules=(ReferenceLine("x", 1.0, "as fast"), *_same_range(compared)),
        notes=(*_not_drawn(known, cases), *_without(compared)),
    )


def _most_important(known: Sequence[_CaseRatio], most: int) -> list[_CaseRatio]:
    """Return `most` cases, slowest first: slower ones are preferred to faster and undecided ones, and large effects to
    small ones."""
    order = sorted(known, key=lambda one: (_RANK.get(one.pair.verdict, 2), -abs(math.log(one.ratio))))
    return sorted(order[:most], key=lambda one: -one.ratio)


def _names(pairs: Sequence[Pairing], subset: Sequence[Pairing]) -> list[str]:
    """Return the names of pairs, with backend and quantity if these differ."""
    where = len({pair.where for pair in pairs}) > 1
    quantity = len({(pair.quantity, pair.cache) for pair in pairs if pair.quantity}) > 1
    return [_name(pair, where=where, quantity=quantity) for pair in subset]


def _name(pair: Pairing, *, where: bool = False, quantity: bool = False) -> str:
    phase = "" if pair.phase == "forward" else pair.phase
    parts = [pair.op, pair.params, phase]
    if where:
        a, b = pair.where
        parts += ["on", a if a == b else f"{a} -> {b}"]
    parts += [pair.quantity, pair.cache or ""] if quantity else []
    return " ".join(filter(None, parts))


def _series(cases: Sequence[_CaseRatio]) -> Iterator[ChartSeries]:
    for verdict, role in _VERDICTS:
        marks = tuple(_mark(one, place) for place, one in enumerate(cases) if one.pair.verdict == verdict)
        if marks:
            yield ChartSeries(verdict, marks, "points", role)


def _mark(one: _CaseRatio, place: int) -> Mark:
    pair = one.pair
    label = _name(pair, where=True, quantity=True)
    low, high = end(pair.low), end(pair.high)
    unsure = low is None or high is None
    return Mark(one.ratio, place, label, low, high, link=pair.case, note=pair.note, unsure=unsure)


def _mean(mean: Geomean, name: str, place: int) -> ChartSeries:
    return ChartSeries(
        "geometric mean", (Mark(mean.ratio, place, name, end(mean.low), end(mean.high)),), "points", "guide"
    )


def _same_range(compared: Compared) -> Iterator[ReferenceLine]:
    """Yield the range of ratios that counts as the same, of equal width to both sides by factor."""
    width = compared.resolution if compared.resolution is not None else compared.margin
    if positive(width):
        yield ReferenceLine("x", 1 / (1 + width), f"called the same: up to {percent(width)}", 1 + width)


def _not_drawn(known: Sequence[_CaseRatio], cases: Sequence[_CaseRatio]) -> Iterator[str]:
    more = Counter(one.pair.verdict for one in known)
    more.subtract(one.pair.verdict for one in cases)
    counts = [f"{count} {verdict}" for verdict, _ in _VERDICTS if (count := more[verdict])]
    if counts:
        more_cases = count_noun(len(known) - len(cases), "more case")
        yield f"{more_cases} not drawn, as slower ones come first, then faster ones: {', '.join(counts)}"
    if unsure := sum(_mark(one, 0).unsure for one in cases):
        yield f"{count_noun(unsure, 'case')} without an interval, hollow: one process says nothing of the next"


def _without(compared: Compared) -> Iterator[str]:
    """Yield the cases without a ratio by their outcome, then those of one side only."""
    found: dict[str, list[str]] = {}
    for pair in compared.pairs:
        if not positive(pair.ratio):
            why = f" ({pair.note})" if pair.note else ""
            found.setdefault(_outcome(pair), []).append(f"{_name(pair, where=True)}{why}")
    for fate, names in found.items():
        yield f"{count_noun(len(names), 'case')} without a ratio, {fate}: {name_few(names)}"
    for side, lone in zip((compared.a, compared.b), compared.only, strict=True):
        if lone:
            yield f"{count_noun(len(lone), 'case')} in {side} only: {name_few(lone)}"


def _outcome(pair: Pairing) -> str:
    """Return the reason why a pair has no ratio, from its statuses."""
    bad = [any(status in FAILED for status in pair.statuses), "skipped" in pair.statuses]
    word = "failed" if bad[0] else "skipped" if bad[1] else "no usable number"
    sides = [name for name, status in zip("AB", pair.statuses, strict=True) if status not in MEASURED]
    if len(sides) > 1:
        return f"{word} on both sides"
    return f"{word} in {sides[0]}" if sides else word
