"""Framework against framework: the same case on several backends of the same hardware."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opmark import units
from opmark.analysis.rows import Row, RunView, Timing
from opmark.charts.common import LINEAR, NOWHERE, Place, Ways, alone, doubts, ends, places, timed, unique, wide
from opmark.charts.parts import address, called, listed
from opmark.schema.chart import Axis, Chart, Mark, Rule, Series
from opmark.schema.quantity import Cache
from opmark.stats import log_interval

MOST_CASES = 25
"""In one picture: those that backends differ most in."""
ENOUGH = 0.5
"""Who has less than this part of the cases is left out of the mean: only what all have counts there."""

Key = tuple[str, Cache]


class Way(NamedTuple):
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

    place: Place
    way: Way
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
    where, ways, found = places(run_view), Ways(), dict[tuple[str, Way, Key], _Field]()
    unlike: dict[tuple[str, Way], list[str]] = {}
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


def _same_case(run_view: RunView, where: dict[str, Place]) -> dict[tuple[str, Way, str], list[Row]]:
    """What went well, by place, way and case; the hardware is the same, so that it is a race of frameworks."""
    found: dict[tuple[str, Way, str], list[Row]] = {}
    for row in run_view.rows:
        if row.status == "ok" and any(map(timed, row.timings)):
            place, way = where.get(row.environment, NOWHERE), Way(row.threads, row.mode, row.effort)
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
    several = [len({own.way[i] for own in fields}) > 1 for i in range(len(Way._fields))]
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
        notes.append(f"left out: {units.counted(more, 'case')} in which they differ less; choose operators to see all")
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
        series=tuple(Series(name, tuple(found), "bars") for name, found in marks.items()),
        notes=(*notes, *own.notes),
    )


def _names(races: Sequence[Race]) -> tuple[str, ...]:
    return tuple(race.row.name for race in races)


def _on(own: _Field) -> str:
    """A processor's name tells its threads; where these are not those of the case, it is said."""
    said = own.place.name.endswith(f"×{own.way.threads}") or "×" not in own.place.name
    return own.place.name if said else f"{own.place.name} ({units.counted(own.way.threads, 'thread')})"


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
    notes = [f"over {len(races)} of {units.counted(len(own.races), 'case')}: those that all of them have"]
    notes += [f"left out: {name}, which has too few of the cases" for name in dropped]
    yield Chart(
        id=address("frameworks", own.place.name, str(own.way.threads), quantity, cache, own.name, "mean"),
        title=f"Backends on {_on(own)} in the mean: {quantity}, {cache}{own.name}",
        about=f"Geometric mean of the time relative to {base}: above 1 is slower. Intervals are of the mean, were "
        "these cases drawn from many; single ones spread further, see the numbers.",
        kind="bars",
        x=Axis(f"time relative to {base}", "ratio", "log" if wide([*values, 1.0], LINEAR) else "linear"),
        y=Axis("backend", "", "category", tuple(name for _, name in means)),
        series=(Series("geometric mean", tuple(marks), "bars"),),
        rules=(Rule("x", 1.0, f"as fast as {base}"),),
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
