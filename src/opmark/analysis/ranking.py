"""Rank the implementations of every case over stored runs: which is fastest, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from opmark.analysis.noise_floor import floor_of_few
from opmark.analysis.pairs import Rules, Values, judge
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import backend_or_none
from opmark.plugin.registry import operator as find_operator
from opmark.schema import CACHES, QUANTITIES, Cache, Measurement, Numerics, Record, Run
from opmark.schema.machine import NoiseFloor, chip
from opmark.schema.ranking import (
    SCHEMA,
    Accuracy,
    Best,
    LeftOut,
    OperatorDefaults,
    RankedCase,
    RankedImplementation,
    Ranking,
    RankingGroup,
    Tally,
)
from opmark.schema.record import severity
from opmark.stats.measurement import Summary, summarize
from opmark.stats.verdict import ALPHA, CLOCKED_SESSIONS, FEWEST, MARGIN, UNKNOWN_SESSIONS
from opmark.store.protocol import Store
from opmark.version import VERSION

Key = tuple[str, Cache]
"""A quantity and the state of the caches."""

_CONFIDENCE = 0.95


class Contender(NamedTuple):
    """The measurements of one way to compute a case."""

    records: tuple[Record, ...]
    """At least one; records of the same task in several processes."""
    run: str = ""
    noise: NoiseFloor | None = None
    """How much identical code differs from itself there, if it was measured."""

    def measurements(self, key: Key) -> dict[int, Measurement]:
        """Return the measurements by process."""
        found = ((r.task.settings.process, r.measurement(*key)) for r in self.records)
        return {process: measurement for process, measurement in found if measurement}

    @property
    def keys(self) -> list[Key]:
        return list(dict.fromkeys((m.quantity, m.cache) for record in self.records for m in record.measurements))

    def summary(self, key: Key) -> Summary | None:
        found = list(self.measurements(key).values())
        return summarize(found) if found else None

    def why_out(self, key: Key) -> str:
        """Return why its number cannot be used for a choice, or an empty text."""
        worst = min(self.records, key=lambda record: severity(record.status))
        if worst.status != "ok":
            return ": ".join(filter(None, (worst.status, worst.reason)))
        unchecked = next((r for r in self.records if not verified(r)), None)
        if unchecked:
            note = unchecked.verification.note if unchecked.verification else ""
            return f"not verified: {note}" if note else "not verified"
        found = self.measurements(key).values()
        if len(found) < len(self.records):
            return f"{' '.join(key)} was not measured"
        if any(measurement.disturbed for measurement in found):
            return "preempted: the number is the scheduler's"
        return "" if all(median(m.samples) > 0 for m in found) else "below what can be measured"


def verified(record: Record) -> bool:
    """Return whether the outputs were verified, in full or at a smaller size."""
    measured = record.status in ("ok", "disturbed")
    return measured and record.verification is not None and record.verification.checked != "none"


def leads(first: Contender, second: Contender, key: Key, contenders: int = 2) -> bool:
    """Return whether the first is faster beyond doubt, by the rules of a comparison: of all pairs of so many contenders
    that are equally fast, at most one of a hundred has such a lead.

    Processes of one run are compared in pairs, round by round; two runs are two sessions. Few processes say nothing
    about the next one: then the largest noise floor of the machine takes the place of their spread, or else one that is
    assumed, which is higher if the machine was not quiet. Besides, the intervals of both must not overlap.
    """
    one, other = first.measurements(key), second.measurements(key)
    ahead, behind = first.summary(key), second.summary(key)
    if not ahead or not behind or min(ahead.median, behind.median) <= 0:
        return False
    noises = [noise for noise in (first.noise, second.noise) if noise]
    if min(len(one), len(other)) < FEWEST:
        if min(ahead.coverage, behind.coverage) < _CONFIDENCE or ahead.high >= behind.low:
            return False
        cautions = {c.code for found in (one, other) for m in found.values() for c in m.cautions}
        floor = floor_of_few([noise.largest_for(*key) for noise in noises], cautions)
    else:
        floor = max([noise.floor_for(ahead.median, *key) or 0.0 for noise in noises], default=0.0)
    together = first.run == second.run
    rules = Rules(
        MARGIN, 0.0, together, sessions=None if together else UNKNOWN_SESSIONS,
        clocked=None if together else CLOCKED_SESSIONS, alpha=ALPHA / math.comb(contenders, 2),
    )  # fmt: skip
    return judge(Values.of_measurements(one, other), floor, rules).found.verdict == "slower"


def ordered(contenders: Sequence[Contender], key: Key) -> list[int]:
    """Return the indices of the contenders that count, the fastest first."""
    summaries = ((i, contender.summary(key)) for i, contender in enumerate(contenders) if not contender.why_out(key))
    return [i for _, i in sorted((summary.median, i) for i, summary in summaries if summary)]


def winner(contenders: Sequence[Contender], key: Key) -> int | None:
    """Return the index of the contender that leads all others; None if none does, or there is no other."""
    order = ordered(contenders, key)
    if len(order) < 2 or challenged(contenders, key) or mixed(contenders, key):
        return None
    first = contenders[order[0]]
    return order[0] if all(leads(first, contenders[i], key, len(order)) for i in order[1:]) else None


def challenged(contenders: Sequence[Contender], key: Key) -> bool:
    """Return whether a verified contender whose number does not count was as fast as the fastest that does: preemption
    can only make it look slower."""
    order = ordered(contenders, key)
    fastest = contenders[order[0]].summary(key) if order else None
    doubted = [one for one in contenders if one.why_out(key) and all(map(verified, one.records))]
    return fastest is not None and any((s := one.summary(key)) and s.fastest <= fastest.median for one in doubted)


def mixed(contenders: Sequence[Contender], key: Key) -> bool:
    """Return whether some contenders return views and others copy, so that their times are not comparable."""
    order = ordered(contenders, key)
    return len({any(record.view for record in contenders[i].records) for i in order}) > 1


BY = ("operator", "dtype", "size", "case")


class Source(NamedTuple):
    """Runs to rank, the newest first, and their environments."""

    runs: Sequence[tuple[str, Sequence[Record]]]
    environments: Mapping[str, dict[str, Any]]
    """Facts by id."""
    noise: Mapping[str, NoiseFloor] = {}
    """Measured noise floor by environment id."""


def source_of(store: Store, runs: Sequence[Run]) -> Source:
    """Read the records and environments of these runs, the newest first."""
    wanted = {run.id for run in runs}
    found = [(run.id, store.records(run.id)) for run in store.runs() if run.id in wanted]
    ids = {record.environment for _, records in found for record in records if record.environment}
    environments = {key: environment.facts for key, environment in store.environments(ids).items()}
    from opmark.store.runs import noise_of  # loads the database only where it is asked

    floors = {key: noise_of(store, facts) for key, facts in environments.items()}
    return Source(found, environments, {key: floor for key, floor in floors.items() if floor})


def rank(source: Source, by: str = "case", quantity: str = "", cache: str = "") -> Ranking:
    """Rank the implementations of every case by `quantity` in the state `cache` of the caches; if one is not given, by
    the first of `_keys_by_preference` that all contenders of the case have. Chips, phases, numbers of threads,
    quantities and states of the caches are never mixed.

    If a way was measured more than once, its newest verified number counts, unless it was found wrong since.
    """
    if by not in BY:
        raise UnknownName("grouping", by, BY)
    keys = _keys_by_preference(quantity, cache)
    places: list[RankedCase] = []
    without: list[list[Key]] = []
    for ways in _entrants(source).values():
        if key := _choose_key(ways, keys):
            places.append(_place(ways, key, source))
        elif measured := [key for found in ways.values() for key in _measured(found)]:
            without.append(measured)
    if without and not places:
        known = dict.fromkeys(" ".join(key) for measured in without for key in measured)
        raise UserError(
            f"no verified {quantity or 'number'}{f' with {cache} caches' if cache else ''} in these runs to rank by",
            f"measured: {', '.join(known)}; --quantity and --cache choose among them",
        )
    used = {ranked.environment for place in places for ranked in place.order}
    return Ranking(
        schema=SCHEMA,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        opmark=VERSION,
        runs=[run for run, _ in source.runs],
        chips=list(dict.fromkeys(place.chip for place in places)),
        environments={key: facts for key, facts in source.environments.items() if key in used},
        operators={op: _defaults_of(op) for op in dict.fromkeys(place.op for place in places)},
        cases=places,
        summary=_groups(places, "all"),
        groups=[] if by == "case" else _groups(places, by),
        quantity=quantity,
        cache=cache,
        without=len(without),
    )


_LEAD, _NEXT = "device_time", "latency"
"""Quantities to rank by: the work of a device, or else what a caller waits for."""


def _keys_by_preference(quantity: str, cache: str) -> list[Key]:
    """Return the keys to rank by, the preferred one first: device_time, latency, then the others; what a device did
    with cold caches before warm ones, all else warm. `quantity` and `cache` leave those that were asked for."""
    if quantity not in ("", *QUANTITIES):
        raise UnknownName("quantity", quantity, QUANTITIES)
    if cache not in ("", *CACHES):
        raise UnknownName("state of the caches", cache, CACHES)
    names = [name for name in dict.fromkeys((_LEAD, _NEXT, *QUANTITIES)) if quantity in ("", name)]
    states: dict[bool, tuple[Cache, ...]] = {True: ("cold", "warm", "rotated"), False: ("warm", "cold", "rotated")}
    pairs = [(name, state) for name in names for state in states[QUANTITIES[name].on == "device"]]
    return [key for key in pairs if cache in ("", key[1])]


def read(path: Path) -> Ranking:
    """Read a file that `opmark rank -o FILE` wrote."""
    try:
        text = path.read_bytes()
        written = msgspec.json.decode(text)
        if not isinstance(written, dict) or written.get("schema") != SCHEMA:
            raise UserError(f"{path}: is no ranking of version {SCHEMA}", "`opmark rank -o FILE` writes one")
        return msgspec.json.decode(text, type=Ranking)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise UserError(f"{path}: is no ranking: {error}", "`opmark rank -o FILE` writes one") from None


def _defaults_of(op: str) -> OperatorDefaults:
    """Return aliases and defaults of an operator. One that is not installed has none, so that callers have to give all
    parameters."""
    try:
        operator = find_operator(op)
    except UserError:
        return OperatorDefaults((), {})
    return OperatorDefaults(operator.aliases, {p.name: p.default for p in operator.params if not p.required})


Ways = dict[tuple[str, str], list[Contender]]
"""Contenders by backend and implementation; of one that was measured in several runs, the newest first."""


def _measured(found: Sequence[Contender]) -> Iterator[Key]:
    """Yield the keys of one way that have a number to choose by."""
    return (key for key in dict.fromkeys(key for one in found for key in one.keys) if _is_usable(found, key))


def _is_usable(found: Sequence[Contender], key: Key) -> bool:
    return not _newest(found, key).why_out(key)


def _choose_key(ways: Ways, keys: Sequence[Key]) -> Key | None:
    """Return the first of `keys` that all ways with a number have. If there is none, return one that some have, latency
    before others; None if no way has any."""
    contending = [found for found in ways.values() if any(_measured(found))]
    shared = (key for key in keys if contending and all(_is_usable(found, key) for found in contending))
    seen_by_callers = sorted(keys, key=lambda key: key[0] != _NEXT)
    some = (key for key in seen_by_callers if any(_is_usable(found, key) for found in contending))
    return next(shared, None) or next(some, None)


def _newest(found: Sequence[Contender], key: Key) -> Contender:
    """Return the newest contender that has a usable number or was found wrong, after which older numbers do not count;
    without any, the newest."""
    settled = (one for one in found if not one.why_out(key) or any(r.status == "wrong" for r in one.records))
    return next(settled, found[0])


def _entrants(source: Source) -> dict[tuple[Any, ...], Ways]:
    """Group contenders by case, threads and chip. A record without a chip is listed with every chip of the case."""
    found: dict[tuple[Any, ...], Ways] = {}
    nowhere: list[tuple[str, Record]] = []
    for run, records in source.runs:
        for one in _by_task(records):
            record = one[0]
            facts = source.environments.get(record.environment)
            if facts is None:
                nowhere.append((run, record))
                continue
            key = (record.task.case.id, record.task.settings.threads, chip(facts))
            ways, way = found.setdefault(key, {}), (record.task.backend, record.task.implementation)
            ways.setdefault(way, []).append(Contender(one, run, source.noise.get(record.environment)))
    for run, record in nowhere:
        for (case, threads, _), ways in found.items():
            if (case, threads) == (record.task.case.id, record.task.settings.threads):
                ways.setdefault((record.task.backend, record.task.implementation), [Contender((record,), run)])
    return found


def _by_task(records: Iterable[Record]) -> list[tuple[Record, ...]]:
    """Group records that differ only in the process. Those under load, in company or on a part of
    the machine are left out: none of these is a way to compute."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.task.settings.conditions:
            continue
        found.setdefault(record.task.across_processes.id, []).append(record)
    return [tuple(group) for group in found.values()]


def _place(ways: Ways, key: Key, source: Source) -> RankedCase:
    """Rank one case by a key of which at least one way has a usable number."""
    names, contenders = list(ways), [_newest(found, key) for found in ways.values()]
    order = ordered(contenders, key)
    first = contenders[order[0]]
    behind = {i: leads(first, contenders[i], key, len(order)) for i in order[1:]}
    ranked = [_rank_one(contenders[i], first, key, behind=behind.get(i, False)) for i in order]
    task, facts = first.records[0].task, source.environments[first.records[0].environment]
    top = ranked[0]
    return RankedCase(
        op=task.case.op,
        params=task.case.params,
        dtype=str(task.case.params.get("dtype", "")),
        phase=task.case.phase,
        wrt=task.case.wrt,
        threads=task.settings.threads,
        device=str(facts.get("device") or "cpu"),
        chip=chip(facts),
        quantity=key[0],
        cache=key[1],
        case=task.case.id,
        best=Best(
            top.backend, top.implementation, top.variant, top.python, top.median, winner(contenders, key) == order[0]
        ),
        order=ranked,
        left_out=[
            LeftOut(*names[i], contenders[i].why_out(key), contenders[i].run)
            for i in range(len(contenders))
            if i not in order
        ],
    )


def _rank_one(contender: Contender, best: Contender, key: Key, *, behind: bool) -> RankedImplementation:
    record, summary, top = contender.records[0], contender.summary(key), best.summary(key)
    assert summary is not None
    assert top is not None
    info = backend_or_none(record.task.backend)
    plain, _, python = record.task.backend.partition("@")
    compiled = [r.compilation for r in contender.records if r.compilation]
    cached = [one.cached for one in compiled if one.cached is not None]
    check = record.verification
    return RankedImplementation(
        backend=record.task.backend,
        implementation=record.task.implementation,
        variant=info.way if info else plain.partition("/")[2],
        python=python,
        median=summary.median,
        interval=(summary.low, summary.high),
        processes=summary.processes,
        ratio=summary.median / top.median,
        behind=behind,
        checked=check.checked if check else "none",
        numerics=_accuracy(check.numerics if check else ()),
        compile_cold=median([one.cold for one in compiled]) if compiled else None,
        compile_cached=median(cached) if cached else None,
        run=contender.run,
        environment=record.environment,
    )


def _accuracy(outputs: Sequence[Numerics]) -> Accuracy:
    """Return the worst values over the outputs; a value that one output lacks is unknown."""
    if not outputs:
        return Accuracy()
    names = ("max_abs", "mean_abs", "max_rel", "max_ulp")
    largest = {name: _worst([getattr(one, name) for one in outputs], max) for name in names}
    return Accuracy(
        **largest,
        cosine=_worst([one.cosine for one in outputs], min),
        nan=sum(max(0, one.nan - one.nan_expected) for one in outputs),
        inf=sum(max(0, one.inf - one.inf_expected) for one in outputs),
    )


def _worst(values: Sequence[float | None], of: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return of(known) if len(known) == len(values) else None


def _groups(places: Sequence[RankedCase], by: str) -> list[RankingGroup]:
    """Group cases of one chip, phase, number of threads, quantity and state of the caches by the given property."""
    found: dict[str, list[RankedCase]] = {}
    for place in places:
        alike = (place.chip, place.threads, place.phase, place.quantity, place.cache, _common(place, by))
        found.setdefault(repr(alike), []).append(place)
    return [_group(among, by) for among in found.values()]


def _common(place: RankedCase, by: str) -> dict[str, Any]:
    size = {name: value for name, value in place.params.items() if name != "dtype"}
    keys: dict[str, dict[str, Any]] = {
        "all": {},
        "operator": {"op": place.op},
        "dtype": {"dtype": place.dtype},
        "size": {"op": place.op, "params": size},
    }
    return keys[by]


def _group(places: Sequence[RankedCase], by: str) -> RankingGroup:
    ways = list(dict.fromkeys((one.backend, one.implementation) for place in places for one in place.order))
    ratios = [{(one.backend, one.implementation): one.ratio for one in place.order} for place in places]
    shared = [each for each in ratios if len(each) == len(ways)]
    tallies = [_tally(way, places, ratios, shared if len(ways) > 1 else []) for way in ways]
    contested = [place for place in places if len(place.order) > 1]
    first = places[0]
    return RankingGroup(
        by=by,
        key=_common(first, by),
        chip=first.chip,
        threads=first.threads,
        phase=first.phase,
        cases=len(places),
        contested=len(contested),
        undecided=sum(not place.best.decided for place in contested),
        common=len(shared),
        backends=sorted(tallies, key=lambda tally: (-tally.wins, tally.ratio or math.inf, -tally.cases)),
        quantity=first.quantity,
        cache=first.cache,
    )


def _tally(
    way: tuple[str, str],
    places: Sequence[RankedCase],
    ratios: Sequence[Mapping[tuple[str, str], float]],
    shared: Sequence[Mapping[tuple[str, str], float]],
) -> Tally:
    wins = sum(place.best.decided and (place.best.backend, place.best.implementation) == way for place in places)
    own = [each[way] for each in ratios if way in each]
    return Tally(*way, len(own), wins, _mean([each[way] for each in shared]) if shared else None, _mean(own))


def _mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean: twice as fast and twice as slow average to 1."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
