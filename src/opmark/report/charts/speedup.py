"""Framework against framework: the same case on several backends of the same hardware."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opmark import units
from opmark.analysis.rows import Row, RunView, Timing
from opmark.plugin.registry import way_of
from opmark.report.charts.elements import (
    LINEAR,
    NOWHERE,
    ChartHardware,
    Factor,
    Ways,
    address,
    alone,
    beside,
    called,
    doubts,
    ends,
    faster,
    listed,
    measured,
    places,
    timed,
    unique,
    wide,
)
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine
from opmark.schema.measurement import Cache
from opmark.stats import log_interval
from opmark.units import count_noun

MOST_CASES = 25
"""In one picture: those that backends differ most in."""
ENOUGH = 0.5
"""Who has less than this part of the cases is left out of the mean: only what all have counts there."""

Key = tuple[str, Cache]


class MeasurementMode(NamedTuple):
    """How it was measured: what differs in this is no race of frameworks."""

    threads: int
    mode: str
    effort: str


class Race(NamedTuple):
    """One case, and who measured the same quantity of it."""

    row: Row
    """The first, after which it is named."""
    times: dict[str, tuple[Row, Timing]]
    """By backend and implementation."""

    @property
    def spread(self) -> float:
        found = [timing.median or math.inf for _, timing in self.times.values()]
        return max(found) / min(found)


@dataclass
class _Field:
    """Races that can stand in one picture: one place and way to measure, one quantity and state of the caches."""

    place: ChartHardware
    way: MeasurementMode
    key: Key
    name: str = ""
    """Name of the way, where there are several."""
    without: dict[str, None] = field(default_factory=dict)
    """Who ran its cases and has no such quantity."""
    races: list[Race] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def frameworks(run_view: RunView) -> list[Chart]:
    fields = _fields(run_view)
    return unique(chart for own in fields for chart in (_bars(own), *_summary(own)))


def _fields(run_view: RunView) -> list[_Field]:
    where, ways, found = places(run_view), Ways(), dict[tuple[str, MeasurementMode, Key], _Field]()
    unlike: dict[tuple[str, MeasurementMode], list[str]] = {}
    for (key, way, _), rows in _same_case(run_view, where).items():
        if len({row.backend for row in rows}) < 2:
            continue
        place = where.get(rows[0].environment, NOWHERE)
        for shared in (keys := _shared(rows)):
            own = found.setdefault((key, way, shared), _Field(place, way, shared))
            own.races.append(_race(rows, shared, ways, own.without))
        if not keys:
            unlike.setdefault((key, way), []).append(rows[0].name)
    for (key, way, _), own in found.items():
        if names := unlike.pop((key, way), []):
            own.notes.append(f"left out: no quantity that two of them measured of {listed(names)}")
    _name_ways(list(found.values()))
    _tell_failures(run_view, list(found.values()))
    return list(found.values())


def _same_case(run_view: RunView, where: dict[str, ChartHardware]) -> dict[tuple[str, MeasurementMode, str], list[Row]]:
    """What went well, by place, way and case; the hardware is the same, so that it is a race of frameworks."""
    found: dict[tuple[str, MeasurementMode, str], list[Row]] = {}
    for row in run_view.rows:
        if row.status == "ok" and any(map(timed, row.timings)):
            place, way = where.get(row.environment, NOWHERE), MeasurementMode(row.threads, row.mode, row.effort)
            found.setdefault((place.key, way, row.case), []).append(row)
    return found


def _shared(rows: Sequence[Row]) -> list[Key]:
    """What is the first number of anybody and two backends have, and the first that all have: where one framework
    cannot tell what others can, these are still held against each other."""
    having: dict[Key, dict[str, None]] = {}
    for row in rows:
        for timing in filter(timed, row.timings):
            having.setdefault((timing.quantity, timing.cache), {})[row.backend] = None
    every = {row.backend for row in rows}
    firsts = (next((t.quantity, t.cache) for t in row.timings if timed(t)) for row in rows)
    found = [key for key in firsts if len(having[key]) > 1]
    found += [key for key, backends in having.items() if len(backends) == len(every)][:1]
    return list(dict.fromkeys(found))


def _race(rows: Sequence[Row], key: Key, ways: Ways, without: dict[str, None]) -> Race:
    """Where one backend measured with several seeds, the first is taken."""
    times: dict[str, tuple[Row, Timing]] = {}
    for row in rows:
        timing = row.timing(*key)
        if timing is not None and timed(timing):
            times.setdefault(ways.name(row), (row, timing))
        else:
            without[row.backend] = None
    return Race(next(row for row, _ in times.values()), times)


def _name_ways(fields: Sequence[_Field]) -> None:
    """Modes and efforts are told where there are several."""
    several = [len({own.way[i] for own in fields}) > 1 for i in range(len(MeasurementMode._fields))]
    for own in fields:
        told = [own.way.mode or "no mode"] if several[1] else []
        told += [own.way.effort] if several[2] else []
        own.name = "".join(f", {word}" for word in told)


def _tell_failures(run_view: RunView, fields: Sequence[_Field]) -> None:
    """A backend that fails what others do is no faster: it is named, beneath the first picture."""
    done = {row.case for row in run_view.rows if row.status == "ok"}
    failed = [f"{called(row)} ({row.status})" for row in run_view.rows if row.failed and row.case in done]
    if fields and failed:
        fields[0].notes.append(f"failed where others did not: {listed(failed)}")


def _bars(own: _Field) -> Chart:
    races = sorted(own.races, key=lambda race: -race.spread)[:MOST_CASES]
    contenders = list(dict.fromkeys(name for race in races for name in race.times))
    marks: dict[str, list[Mark]] = {name: [] for name in contenders}
    for y, race in enumerate(races):
        for name, (row, timing) in race.times.items():
            marks[name].append(_bar(race, y, row, timing))
    logarithmic = wide([mark.x for found in marks.values() for mark in found], LINEAR)
    quantity, cache = own.key
    notes = ["the axis is logarithmic: compare the ends of bars, not their lengths"] if logarithmic else []
    if more := len(own.races) - len(races):
        notes.append(
            f"left out: {units.count_noun(more, 'case')} in which they differ less; choose operators to see all"
        )
    if own.without:
        notes.append(f"no {quantity}, {cache}, of {listed(list(own.without))}: not in this race")
    notes += alone(timing for race in races for _, timing in race.times.values())
    return Chart(
        id=address("frameworks", own.place.name, str(own.way.threads), quantity, cache, own.name),
        title=f"Backends on {_on(own)}: {quantity}, {cache}{own.name}",
        about="Time a call of the same case on each backend, with intervals; the cases that differ most come first.",
        kind="bars",
        x=Axis(f"{quantity}, {cache}", "s", "log" if logarithmic else "linear"),
        y=Axis("case", "", "category", _names(races)),
        series=tuple(ChartSeries(name, tuple(found), "bars") for name, found in marks.items()),
        notes=(*notes, *own.notes),
    )


def _names(races: Sequence[Race]) -> tuple[str, ...]:
    return tuple(race.row.name for race in races)


def _on(own: _Field) -> str:
    """A processor's name tells its threads; where these are not those of the case, it is said."""
    said = own.place.name.endswith(f"×{own.way.threads}") or "×" not in own.place.name
    return own.place.name if said else f"{own.place.name} ({units.count_noun(own.way.threads, 'thread')})"


def _bar(race: Race, y: int, row: Row, timing: Timing) -> Mark:
    fastest = min(other.median or math.inf for _, other in race.times.values())
    slower = (timing.median or 0) / fastest
    said = "the fastest" if slower == 1 else f"{units.significant(slower)} times the fastest"
    low, high = ends(timing)
    note = "; ".join(filter(None, [said, doubts(timing)]))
    return Mark(timing.median or 0, y, called(row), low, high, link=row.key, note=note)


def _summary(own: _Field) -> Iterator[Chart]:
    """Geometric means over the cases that all have; of fewer than two cases there is nothing to sum up."""
    names, races, dropped = _common(own.races)
    if len(names) < 2 or len(races) < 2:
        return
    base, (quantity, cache) = names[0], own.key
    means = sorted(((_mean(name, base, races), name) for name in names), key=lambda pair: (pair[0][0], pair[1]))
    marks = [Mark(mean, y, f"{name} against {base}", low, high, note=_reach(name, base, races))
             for y, ((mean, low, high), name) in enumerate(means)]  # fmt: skip
    values = [mark.x for mark in marks]
    notes = [f"over {len(races)} of {units.count_noun(len(own.races), 'case')}: those that all of them have"]
    notes += [f"left out: {name}, which has too few of the cases" for name in dropped]
    yield Chart(
        id=address("frameworks", own.place.name, str(own.way.threads), quantity, cache, own.name, "mean"),
        title=f"Backends on {_on(own)} in the mean: {quantity}, {cache}{own.name}",
        about=f"Geometric mean of the time relative to {base}: above 1 is slower. Intervals are of the mean, were "
        "these cases drawn from many; single ones spread further, see the numbers.",
        kind="bars",
        x=Axis(f"time relative to {base}", "ratio", "log" if wide([*values, 1.0], LINEAR) else "linear"),
        y=Axis("backend", "", "category", tuple(name for _, name in means)),
        series=(ChartSeries("geometric mean", tuple(marks), "bars"),),
        rules=(ReferenceLine("x", 1.0, f"as fast as {base}"),),
        notes=tuple(notes),
    )


def _common(races: Sequence[Race]) -> tuple[list[str], list[Race], list[str]]:
    """Who is compared, the one with the most cases first; the races that all of them are in; who is left out."""
    counts: dict[str, int] = {}
    for race in races:
        for name in race.times:
            counts[name] = counts.get(name, 0) + 1
    order = sorted(counts, key=lambda name: -counts[name])
    names = [name for name in order if counts[name] >= ENOUGH * counts[order[0]]]
    while names:
        found = [race for race in races if all(name in race.times for name in names)]
        if found:
            return names, found, [name for name in order if name not in names]
        names.pop()
    return [], [], order


def _ratios(name: str, base: str, races: Sequence[Race]) -> list[float]:
    return [(race.times[name][1].median or 1) / (race.times[base][1].median or 1) for race in races]


def _reach(name: str, base: str, races: Sequence[Race]) -> str:
    if name == base:
        return ""
    found = _ratios(name, base, races)
    return f"single cases from {units.significant(min(found))} to {units.significant(max(found))} times"


def _mean(name: str, base: str, races: Sequence[Race]) -> tuple[float, float | None, float | None]:
    if name == base:
        return 1.0, None, None
    ratios = _ratios(name, base, races)
    low, high, _ = log_interval(ratios)
    return math.exp(sum(map(math.log, ratios)) / len(ratios)), low, high


# Ways to compute the same case on the same backend: how many times as fast as the unfused one.

_BASE = "unfused"
_MOST_FUSED = 40
"""Rows."""


class _FusionRow(NamedTuple):
    base: Row
    others: list[tuple[Row, Factor]]

    @property
    def effect(self) -> float:
        return max(abs(math.log(factor.value)) for _, factor in self.others)


def fused(run_view: RunView) -> list[Chart]:
    groups = beside(run_view.rows, _same_but_fusion, lambda row: row.implementation)
    lines = sorted((line for group in groups if (line := _row(group))), key=lambda line: -line.effect)
    if not lines:
        return []
    drawn = lines[:_MOST_FUSED]
    where, what = {_where(line.base) for line in drawn}, {_what(line.base) for line in drawn}
    series = _fused_series(drawn)
    told = f" on {next(iter(where))}" if len(where) == 1 else ""
    same = [*([series[0].name] if len(series) == 1 else []), *(what if len(what) == 1 else [])]
    told += f": {', '.join(same)}" if same else ""
    logarithmic = wide([1.0, *(mark.x for one in series for mark in one.marks)], LINEAR)
    return [
        Chart(
            id="fused",
            title=f"Fused against unfused{told}",
            about="How many times as fast as its base each way to compute a case is; intervals are those of both.",
            kind="bars",
            x=Axis("times as fast", "ratio", "log" if logarithmic else "linear"),
            y=Axis("", "", "category", tuple(_name(line, len(where) > 1, len(what) > 1) for line in drawn)),
            series=series,
            rules=(ReferenceLine("x", 1.0, "as fast as the base"),),
            notes=(*_notes(lines, len(groups)), *alone(_timings(drawn))),
        )
    ]


def _same_but_fusion(row: Row) -> Hashable:
    return row.case, row.seed, row.backend, row.threads, row.mode, row.effort


def _row(group: list[Row]) -> _FusionRow | None:
    """None where nothing can be held against the base."""
    numbered = sorted((row for row in group if measured(row)), key=lambda row: row.implementation != _BASE)
    if len(numbered) < 2:
        return None
    base = numbered[0]
    pairs = [(row, faster(measured(base), measured(row))) for row in numbered[1:]]
    known = [(row, factor) for row, factor in pairs if factor]
    return _FusionRow(base, known) if known else None


def _where(base: Row) -> str:
    """What is beside each other differs in its implementation, so that it is told without."""
    way = way_of(base.backend, base.implementation)
    return base.where.replace(f"{base.backend}{way}", base.backend, 1)


def _what(row: Row) -> str:
    return f"{row.headline.quantity}, {row.headline.cache}" if row.headline else ""


def _name(line: _FusionRow, where: bool, what: bool) -> str:
    """Short, as there is little room: where and what is in the title, if it is the same for all. The base is told where
    it is not the usual one."""
    base = line.base
    parts = [f" on {_where(base)}" if where else "", f", {_what(base)}" if what else ""]
    return base.name + "".join(parts) + ("" if base.implementation == _BASE else f", against {base.implementation}")


def _timings(lines: list[_FusionRow]) -> Iterator[Timing | None]:
    for line in lines:
        yield from (row.headline for row in (line.base, *(other for other, _ in line.others)))


def _fused_series(lines: list[_FusionRow]) -> tuple[ChartSeries, ...]:
    found: dict[str, list[Mark]] = {}
    for place, line in enumerate(lines):
        for row, factor in line.others:
            label = f"{called(row)}, against {line.base.implementation}"
            mark = Mark(factor.value, place, label, factor.low, factor.high, link=row.key, note=_what(row))
            found.setdefault(row.implementation, []).append(mark)
    return tuple(ChartSeries(name, tuple(marks), "bars") for name, marks in found.items())


def _notes(lines: list[_FusionRow], groups: int) -> Iterator[str]:
    if len(lines) > _MOST_FUSED:
        yield f"{count_noun(len(lines) - _MOST_FUSED, 'more case')} not drawn: their implementations differ less"
    if groups > len(lines):
        lacking = count_noun(groups - len(lines), "case")
        yield f"{lacking} left out: fewer than two implementations have a usable number of the same quantity"


# The same case with more threads: how many times as fast.

_MOST_THREAD_SERIES = 12
"""Series."""


def threads(run_view: RunView) -> list[Chart]:
    groups = beside((row for row in run_view.rows if measured(row)), _same_but_threads, lambda row: row.threads)
    found = sorted((series for group in groups if (series := _thread_series(group))), key=lambda one: -len(one.marks))
    if not found:
        return []
    drawn = found[:_MOST_THREAD_SERIES]
    more = len(found) - _MOST_THREAD_SERIES
    return [
        Chart(
            id="threads",
            title="Thread scaling",
            about="How many times as fast as with the fewest threads; on the ideal line, every thread counts in full.",
            kind="plot",
            x=Axis("threads", "count", "log2"),
            y=Axis("times as fast", "ratio", "log2"),
            series=(*drawn, *_ideal(drawn)),
            notes=(
                *(
                    [f"{count_noun(more, 'more case')} not drawn: those with most thread counts are"]
                    if more > 0
                    else []
                ),
                *alone(row.headline for group in groups for row in group),
            ),
        )
    ]


def _same_but_threads(row: Row) -> Hashable:
    first = row.headline
    what = (first.quantity, first.cache) if first else None
    return row.case, row.seed, row.backend, row.implementation, row.mode, row.effort, what


def _thread_series(group: list[Row]) -> ChartSeries | None:
    """By the number of threads; the first is what the others are held against."""
    ordered = sorted((row for row in group if row.threads > 0), key=lambda row: row.threads)
    if len(ordered) < 2:
        return None
    first = ordered[0]
    pairs = [(row, faster(first.headline, row.headline)) for row in ordered]
    marks = [Mark(row.threads, factor.value, called(row), factor.low, factor.high, link=row.key)
             for row, factor in pairs if factor]  # fmt: skip
    name = f"{first.name} on {first.backend}{way_of(first.backend, first.implementation)}"
    return ChartSeries(name, tuple(marks), "band")


def _ideal(drawn: list[ChartSeries]) -> Iterator[ChartSeries]:
    """One for each number of threads that is a base here."""
    reach = {base: max(one.marks[-1].x for one in drawn if one.marks[0].x == base)
             for base in sorted({one.marks[0].x for one in drawn})}  # fmt: skip
    for base, most in reach.items():
        name = "ideal" if len(reach) == 1 else f"ideal from {count_noun(int(base), 'thread')}"
        yield ChartSeries(name, (Mark(base, 1.0), Mark(most, most / base)), "line", "guide")
