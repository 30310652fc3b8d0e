"""Charts of speed-ups of the same case: between backends, by fusion, and by the number of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    WayNames,
    address,
    doubts,
    ends,
    group_comparable,
    hardware_by_environment,
    is_usable_time,
    name_few,
    needs_log_axis,
    note_one_process,
    row_label,
    speedup_factor,
    unique,
    usable_headline,
)
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine
from opmark.schema.measurement import Cache
from opmark.schema.record import COUNTED, MEASURED
from opmark.stats import log_interval
from opmark.units import count_noun

MOST_CASES = 25
"""Number of cases in a chart: those in which backends differ most."""
ENOUGH = 0.5
"""Share of the cases that a backend needs to be part of the mean, which is over the cases that all have."""

Key = tuple[str, Cache]


class MeasurementMode(NamedTuple):
    """The way of measuring; only rows with the same one are compared."""

    threads: int
    mode: str
    effort: str


class Race(NamedTuple):
    """One case, and its times of the same quantity on several backends."""

    row: Row
    """The first row, which names the case."""
    times: dict[str, tuple[Row, Timing]]
    """Rows and timings by backend and implementation."""

    @property
    def spread(self) -> float:
        found = [timing.median or math.inf for _, timing in self.times.values()]
        return max(found) / min(found)


@dataclass
class _Field:
    """The races of one chart: the same hardware, way of measuring, quantity and state of the caches."""

    place: ChartHardware
    way: MeasurementMode
    key: Key
    name: str = ""
    """Name of the way of measuring, if there are several."""
    without: dict[str, None] = field(default_factory=dict)
    """Backends that ran its cases without this quantity."""
    races: list[Race] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def frameworks(run_view: RunView) -> list[Chart]:
    fields = _fields(run_view)
    return unique(chart for own in fields for chart in (_bars(own), *_summary(own)))


def _fields(run_view: RunView) -> list[_Field]:
    where, ways, found = hardware_by_environment(run_view), WayNames(), dict[tuple[str, MeasurementMode, Key], _Field]()
    unlike: dict[tuple[str, MeasurementMode], list[str]] = {}
    same: dict[tuple[str, MeasurementMode, str], list[Row]] = {}
    for row in run_view.rows:
        if row.status in COUNTED and any(map(is_usable_time, row.timings)):
            place, way = where.get(row.environment, NOWHERE), MeasurementMode(row.threads, row.mode, row.effort)
            same.setdefault((place.key, way, row.case), []).append(row)
    for (key, way, _), rows in same.items():
        if len({row.backend for row in rows}) < 2:
            continue
        place = where.get(rows[0].environment, NOWHERE)
        for shared in (keys := _shared_keys(rows)):
            own = found.setdefault((key, way, shared), _Field(place, way, shared))
            own.races.append(_race(rows, shared, ways, own.without))
        if not keys:
            unlike.setdefault((key, way), []).append(rows[0].name)
    for (key, way, _), own in found.items():
        if names := unlike.pop((key, way), []):
            own.notes.append(f"left out: no quantity that two of them measured of {name_few(names)}")
    fields = list(found.values())
    modes, efforts = {own.way.mode for own in fields}, {own.way.effort for own in fields}
    for own in fields:  # modes and efforts are named if there are several
        own.name = f", {own.way.mode or 'no mode'}" if len(modes) > 1 else ""
        own.name += f", {own.way.effort}" if len(efforts) > 1 else ""
    done = {row.case for row in run_view.rows if row.status in MEASURED}
    failed = [f"{row_label(row)} ({row.status})" for row in run_view.rows if row.failed and row.case in done]
    if fields and failed:
        fields[0].notes.append(f"failed where others did not: {name_few(failed)}")
    return fields


def _shared_keys(rows: Sequence[Row]) -> list[Key]:
    """Return the headlines that at least two backends have, and the first quantity that all have: backends are compared
    in a quantity even if one framework cannot measure it."""
    having: dict[Key, dict[str, None]] = {}
    for row in rows:
        for timing in filter(is_usable_time, row.timings):
            having.setdefault((timing.quantity, timing.cache), {})[row.backend] = None
    every = {row.backend for row in rows}
    firsts = (next((t.quantity, t.cache) for t in row.timings if is_usable_time(t)) for row in rows)
    found = [key for key in firsts if len(having[key]) > 1]
    found += [key for key, backends in having.items() if len(backends) == len(every)][:1]
    return list(dict.fromkeys(found))


def _race(rows: Sequence[Row], key: Key, ways: WayNames, without: dict[str, None]) -> Race:
    """Return the race of a case; of several seeds of one backend, the first counts."""
    times: dict[str, tuple[Row, Timing]] = {}
    for row in rows:
        timing = row.timing(*key)
        if timing is not None and is_usable_time(timing):
            times.setdefault(ways.name(row), (row, timing))
        else:
            without[row.backend] = None
    return Race(next(row for row, _ in times.values()), times)


def _bars(own: _Field) -> Chart:
    races = sorted(own.races, key=lambda race: -race.spread)[:MOST_CASES]
    contenders = list(dict.fromkeys(name for race in races for name in race.times))
    marks: dict[str, list[Mark]] = {name: [] for name in contenders}
    for y, race in enumerate(races):
        for name, (row, timing) in race.times.items():
            marks[name].append(_bar(race, y, row, timing))
    logarithmic = needs_log_axis([mark.x for found in marks.values() for mark in found], LINEAR)
    quantity, cache = own.key
    notes = ["the axis is logarithmic: compare the ends of bars, not their lengths"] if logarithmic else []
    if more := len(own.races) - len(races):
        notes.append(
            f"left out: {units.count_noun(more, 'case')} in which they differ less; choose operators to see all"
        )
    if own.without:
        notes.append(f"no {quantity}, {cache}, of {name_few(list(own.without))}: not in this race")
    notes += note_one_process(timing for race in races for _, timing in race.times.values())
    return Chart(
        id=address("frameworks", own.place.name, str(own.way.threads), quantity, cache, own.name),
        title=f"Backends on {_on(own)}: {quantity}, {cache}{own.name}",
        about="Time a call of the same case on each backend, with intervals; the cases that differ most come first.",
        kind="bars",
        x=Axis(f"{quantity}, {cache}", "s", "log" if logarithmic else "linear"),
        y=Axis("case", "", "category", tuple(race.row.name for race in races)),
        series=tuple(ChartSeries(name, tuple(found), "bars") for name, found in marks.items()),
        notes=(*notes, *own.notes),
    )


def _on(own: _Field) -> str:
    """Return the name of the hardware, with the number of threads if that of its name is another one."""
    named = own.place.name.endswith(f"×{own.way.threads}") or "×" not in own.place.name
    return own.place.name if named else f"{own.place.name} ({units.count_noun(own.way.threads, 'thread')})"


def _bar(race: Race, y: int, row: Row, timing: Timing) -> Mark:
    fastest = min(other.median or math.inf for _, other in race.times.values())
    slower = (timing.median or 0) / fastest
    rank = "the fastest" if slower == 1 else f"{units.significant(slower)} times the fastest"
    low, high = ends(timing)
    note = "; ".join(filter(None, [rank, doubts(timing)]))
    return Mark(timing.median or 0, y, row_label(row), low, high, link=row.key, note=note)


def _summary(own: _Field) -> Iterator[Chart]:
    """Yield the chart of geometric means over the cases that all backends have, if there are two or more."""
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
        x=Axis(f"time relative to {base}", "ratio", "log" if needs_log_axis([*values, 1.0], LINEAR) else "linear"),
        y=Axis("backend", "", "category", tuple(name for _, name in means)),
        series=(ChartSeries("geometric mean", tuple(marks), "bars"),),
        rules=(ReferenceLine("x", 1.0, f"as fast as {base}"),),
        notes=tuple(notes),
    )


def _common(races: Sequence[Race]) -> tuple[list[str], list[Race], list[str]]:
    """Return the names that are compared, the one with the most cases first; the races that all of them are in; and the
    names that are left out."""
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


# Implementations of the same case on the same backend, compared with the unfused one.

_BASE = "unfused"
_MOST_FUSED = 40
"""Number of cases in the chart."""


class _FusionRow(NamedTuple):
    base: Row
    others: list[tuple[Row, Factor]]

    @property
    def effect(self) -> float:
        return max(abs(math.log(factor.value)) for _, factor in self.others)


def fused(run_view: RunView) -> list[Chart]:
    groups = group_comparable(
        run_view.rows,
        same=lambda row: (row.case, row.seed, row.backend, row.threads, row.mode, row.effort),
        apart=lambda row: row.implementation,
    )
    lines = sorted((line for group in groups if (line := _row(group))), key=lambda line: -line.effect)
    if not lines:
        return []
    top = lines[:_MOST_FUSED]
    where, what = {_where(line.base) for line in top}, {_what(line.base) for line in top}
    series = _fused_series(top)
    drawn = [row for line in top for row in (line.base, *(other for other, _ in line.others))]
    shared = f" on {next(iter(where))}" if len(where) == 1 else ""
    same = [*([series[0].name] if len(series) == 1 else []), *(what if len(what) == 1 else [])]
    shared += f": {', '.join(same)}" if same else ""
    logarithmic = needs_log_axis([1.0, *(mark.x for one in series for mark in one.marks)], LINEAR)
    return [
        Chart(
            id="fused",
            title=f"Fused against unfused{shared}",
            about="How many times as fast as its base each way to compute a case is; intervals are those of both.",
            kind="bars",
            x=Axis("times as fast", "ratio", "log" if logarithmic else "linear"),
            y=Axis("", "", "category", tuple(_name(line, len(where) > 1, len(what) > 1) for line in top)),
            series=series,
            rules=(ReferenceLine("x", 1.0, "as fast as the base"),),
            notes=(
                *_notes(lines, len(groups)),
                *note_one_process(row.headline for row in drawn),
            ),
        )
    ]


def _row(group: list[Row]) -> _FusionRow | None:
    """Return a row of the chart, or None if nothing can be compared with the base."""
    numbered = sorted((row for row in group if usable_headline(row)), key=lambda row: row.implementation != _BASE)
    if len(numbered) < 2:
        return None
    base = numbered[0]
    pairs = [(row, speedup_factor(usable_headline(base), usable_headline(row))) for row in numbered[1:]]
    known = [(row, factor) for row, factor in pairs if factor]
    return _FusionRow(base, known) if known else None


def _where(base: Row) -> str:
    """Return the place of a row without its implementation, in which the compared rows differ."""
    way = way_of(base.backend, base.implementation)
    return base.where.replace(f"{base.backend}{way}", base.backend, 1)


def _what(row: Row) -> str:
    return f"{row.headline.quantity}, {row.headline.cache}" if row.headline else ""


def _name(line: _FusionRow, where: bool, what: bool) -> str:
    """Return a short name: backend and quantity only if they differ between lines, and the base if it is not
    `unfused`."""
    base = line.base
    parts = [f" on {_where(base)}" if where else "", f", {_what(base)}" if what else ""]
    return base.name + "".join(parts) + ("" if base.implementation == _BASE else f", against {base.implementation}")


def _fused_series(lines: list[_FusionRow]) -> tuple[ChartSeries, ...]:
    found: dict[str, list[Mark]] = {}
    for place, line in enumerate(lines):
        for row, factor in line.others:
            label = f"{row_label(row)}, against {line.base.implementation}"
            mark = Mark(factor.value, place, label, factor.low, factor.high, link=row.key, note=_what(row))
            found.setdefault(row.implementation, []).append(mark)
    return tuple(ChartSeries(name, tuple(marks), "bars") for name, marks in found.items())


def _notes(lines: list[_FusionRow], groups: int) -> Iterator[str]:
    if len(lines) > _MOST_FUSED:
        yield f"{count_noun(len(lines) - _MOST_FUSED, 'more case')} not drawn: their implementations differ less"
    if groups > len(lines):
        lacking = count_noun(groups - len(lines), "case")
        yield f"{lacking} left out: fewer than two implementations have a usable number of the same quantity"


# Thread scaling: the same case with more threads.

_MOST_THREAD_SERIES = 12
"""Number of series in the chart."""


def threads(run_view: RunView) -> list[Chart]:
    groups = group_comparable(
        (row for row in run_view.rows if usable_headline(row)),
        same=lambda row: (
            row.case, row.seed, row.backend, row.implementation, row.mode, row.effort, row.headline and row.headline.key
        ),
        apart=lambda row: row.threads,
    )  # fmt: skip
    several = len({_what(group[0]) for group in groups}) > 1
    series = (one for group in groups if (one := _thread_series(group, named=several)))
    found = sorted(series, key=lambda one: -len(one.marks))
    if not found:
        return []
    top = found[:_MOST_THREAD_SERIES]
    more = len(found) - _MOST_THREAD_SERIES
    return [
        Chart(
            id="threads",
            title="Thread scaling",
            about="How many times as fast as with the fewest threads; on the ideal line, every thread counts in full.",
            kind="plot",
            x=Axis("threads", "count", "log2"),
            y=Axis("times as fast", "ratio", "log2"),
            series=(*top, *_ideal(top)),
            notes=(
                *(
                    [f"{count_noun(more, 'more case')} not drawn: those with most thread counts are"]
                    if more > 0
                    else []
                ),
                *note_one_process(row.headline for group in groups for row in group),
            ),
        )
    ]


def _thread_series(group: list[Row], *, named: bool) -> ChartSeries | None:
    """Return the speed-up over the number of threads, relative to the fewest threads. `named`: with the quantity, which
    differs between series."""
    ordered = sorted((row for row in group if row.threads > 0), key=lambda row: row.threads)
    if len(ordered) < 2:
        return None
    first = ordered[0]
    pairs = [(row, speedup_factor(first.headline, row.headline)) for row in ordered]
    marks = [Mark(row.threads, factor.value, row_label(row), factor.low, factor.high, link=row.key)
             for row, factor in pairs if factor]  # fmt: skip
    name = f"{first.name} on {first.backend}{way_of(first.backend, first.implementation)}"
    name += f", {_what(first)}" if named else ""
    return ChartSeries(name, tuple(marks), "band")


def _ideal(top: list[ChartSeries]) -> Iterator[ChartSeries]:
    """Yield an ideal line for each number of threads that is a base."""
    reach = {base: max(one.marks[-1].x for one in top if one.marks[0].x == base)
             for base in sorted({one.marks[0].x for one in top})}  # fmt: skip
    for base, most in reach.items():
        name = "ideal" if len(reach) == 1 else f"ideal from {count_noun(int(base), 'thread')}"
        yield ChartSeries(name, (Mark(base, 1.0), Mark(most, most / base)), "line", "guide")
