"""Compare two sides of the same cases: ratios, verdicts and their geometric mean. A side is a run or a part of one."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opmark.analysis.agreement import nodes_of
from opmark.analysis.compared_side import ComparedSide
from opmark.analysis.environment import Facts, differing, refuse, software
from opmark.analysis.noise_floor import floor_of_few
from opmark.analysis.pairs import CaseVerdict, Key, Matched, Measured, Rules, Values, Way, judge, measured, pair_sides
from opmark.analysis.step import step_changes
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.plugin.param import format_params, param_options
from opmark.plugin.registry import parameters_of, way_of
from opmark.schema import CACHES, QUANTITIES, Case
from opmark.schema.case import shown_case
from opmark.schema.comparison import Compared, Geomean, PairCycles, Pairing
from opmark.schema.load import parse_load_text
from opmark.schema.machine import chip
from opmark.schema.measurement import PREEMPTED, is_clocked
from opmark.schema.record import MEASURED, Figure
from opmark.schema.run import CHANGED
from opmark.stats.interval import Interval, geometric_mean, log_interval
from opmark.stats.verdict import (
    ALPHA,
    DRIFT,
    FEWEST,
    MARGIN,
    STAGES,
    Comparison,
    Spread,
    compare_groups,
    compare_pairs,
    control_false_discoveries,
    same_limit,
)
from opmark.units import count_noun

ALL = "all"
_FEW = 3


def compare(
    a: ComparedSide,
    b: ComparedSide,
    cases: Mapping[str, Case],
    *,
    quantity: str = "",
    margin: float = MARGIN,
    drift: float | None = None,
    unlike: bool = False,
) -> Compared:
    """Compare B with A. `cases` maps ids to cases; `quantity` replaces the headline (`latency`, `latency:cold`, `all`);
    `drift` is how far apart two sessions may be, by default estimated from stored runs; `unlike` allows machines that
    differ."""
    sides = measured(a.figures), measured(b.figures)
    found = pair_sides(*sides)
    if found is None:
        raise _no_common_case((a, b), sides, cases)
    one_run = a.run.id == b.run.id
    in_turns = not one_run and bool(a.run.session and a.run.session == b.run.session)
    together = one_run or in_turns
    differ = differing(_opposite_environments(a, b, found))
    if not (unlike or one_run):
        refuse((a.name, b.name), differ)
    rules = Rules(margin, 0.0 if together else drift or 0.0, together, looked=in_turns, mixed=unlike or in_turns)
    drafts = list(_drafts(found, a, b, quantity, rules, estimated=not together and drift is None))
    if not drafts:
        raise UserError(f"`{quantity}` was not measured on both sides", f"measured: {_quantities(found)}")
    settled = _correct_verdicts(drafts)
    names = _CaseNames(cases, found.ambiguous)
    judged = [draft.judged for draft in settled if draft.judged]
    clocked = not together and bool(judged) and all(one.clocked for one in judged)
    spreads = [draft.sessions for draft in settled if draft.sessions]
    allowed = max((one.deviation for one in spreads), default=0.0 if clocked else rules.drift)
    alike = same_limit(margin, DRIFT if spreads else allowed)
    pairs = [_with_cycles(_pairing(_with_reasons(draft, a, b), names), draft, (a, b)) for draft in settled]
    if not together:
        pairs = [_with_command(pair, draft, (a, b), cases) for pair, draft in zip(pairs, settled, strict=True)]
    return Compared(
        a=a.name,
        b=b.name,
        runs=(a.run.id, b.run.id),
        paired=in_turns or (one_run and any(_in_rounds(draft) for draft in settled)),
        margin=margin,
        drift=allowed,
        pairs=tuple(sorted(pairs, key=_by_effect)),
        geomean=_mean_of_most(settled, rules),
        only=(tuple(map(names.lone, found.only[0])), tuple(map(names.lone, found.only[1]))),
        differing=differ,
        resolution=alike if alike > margin else None,
        clocked=clocked,
        sessions=min((draft.stored for draft in settled if draft.sessions), default=None),
        steps=step_changes(pairs, b.counts() or a.counts()),
    )


def _in_rounds(draft: _Draft) -> bool:
    """Return whether two ways of one run were measured by turns; a run that is compared with itself was not."""
    a, b = draft.pair
    return a.way != b.way and draft.judged is not None and len(draft.judged.used.rounds) > 1


class _Draft(NamedTuple):
    """A case on both sides. Verdicts are final only after all cases are judged."""

    pair: tuple[Measured, Measured]
    key: Key | None
    judged: CaseVerdict | None
    floor: float = 0.0
    note: str = ""
    sessions: Spread | None = None
    """How far sessions spread, if that was estimated."""
    stored: int = 0
    """Number of stored runs that it was estimated from."""


def _drafts(
    found: Matched, a: ComparedSide, b: ComparedSide, quantity: str, rules: Rules, *, estimated: bool
) -> Iterator[_Draft]:
    wanted = _quantity_filter(quantity)
    for pair in found.pairs:
        if any(one.status not in MEASURED for one in pair):
            yield _Draft(pair, None, None)
            continue
        keys = [key for key in pair[0].figures if key in pair[1].figures and wanted(key)]
        if not keys and not quantity:
            yield _Draft(pair, None, None, note=_no_common_quantity(pair))
        for key in keys if quantity else keys[:1]:
            yield _judge_pair(pair, key, (a, b), rules, estimated=estimated)


def _judge_pair(
    pair: tuple[Measured, Measured],
    key: Key,
    sides: tuple[ComparedSide, ComparedSide],
    rules: Rules,
    *,
    estimated: bool,
) -> _Draft:
    a, b = (_drop_preempted(one.figures[key], side) for one, side in zip(pair, sides, strict=True))
    if not rules.mixed:
        a, b = (_keep_one_node(one, side) for one, side in zip((a, b), sides, strict=True))
    notes = "; ".join(filter(None, (a.note, b.note)))
    if not a.figures or not b.figures:
        return _Draft(pair, key, None, note=notes)
    if not rules.mixed and (apart := _nodes_apart((a.figures, b.figures), sides)):
        return _Draft(pair, key, None, note="; ".join(filter(None, (apart, notes))))
    floor = _floor(key, (a.figures, b.figures), sides, rules)
    stored = 0
    if estimated:
        found = [
            (side.sessions(one.environment, frozenset(side.run.id for side in sides)), one)
            for side, one in zip(sides, (next(iter(a.figures.values())), next(iter(b.figures.values()))), strict=True)
        ]
        by_clock = [
            max(known.spread_for(one.series, one.median or 1.0, clocked=clocked) for known, one in found)
            for clocked in (False, True)
        ]
        rules = rules._replace(sessions=by_clock[0], clocked=by_clock[1])
        stored = min(known.runs for known, _ in found)
    judged = judge(Values.of(a.figures, b.figures), floor, rules)
    note = "; ".join(filter(None, (judged.note, notes)))
    return _Draft(pair, key, judged, floor, note, rules.clocked if judged.clocked else rules.sessions, stored)


def _quantity_filter(quantity: str) -> Callable[[Key], bool]:
    """Return a test for keys that `latency`, `latency:cold` or `all` selects; an empty text selects every key."""
    name, _, cache = quantity.partition(":")
    if name not in ("", ALL, *QUANTITIES):
        raise UnknownName("quantity", name, [*QUANTITIES, ALL])
    if cache not in ("", *CACHES):
        raise InvalidParameter(
            f"quantity `{quantity}`: expected one of {', '.join(CACHES)} behind the colon, got `{cache}`"
        )
    return lambda key: (name in ("", ALL) or key[0] == name) and cache in ("", key[1])


class _SoundFigures(NamedTuple):
    figures: Mapping[int, Figure]
    """By process; empty: there is no number to judge by."""
    note: str = ""


def _drop_preempted(by_process: Mapping[int, Figure], side: ComparedSide) -> _SoundFigures:
    """Return the figures without preempted processes; none if more than half of them were preempted, or a time is below
    the resolution of the clock."""
    if all(map(_is_sound, by_process.values())):
        return _SoundFigures(by_process)
    bad = [process for process, figure in by_process.items() if PREEMPTED in figure.cautions]
    if 2 * len(bad) > len(by_process):
        return _SoundFigures({}, f"preempted in {side.name}: the number is the scheduler's")
    if any(not figure.median or figure.median <= 0 for figure in by_process.values()):
        return _SoundFigures({}, f"below what can be measured in {side.name}")
    if not bad:
        return _SoundFigures(by_process)
    rest = {process: figure for process, figure in by_process.items() if process not in bad}
    return _SoundFigures(rest, f"without {len(bad)} of {len(by_process)} processes that were preempted in {side.name}")


def _keep_one_node(found: _SoundFigures, side: ComparedSide) -> _SoundFigures:
    """Return the figures of one node of a fleet, the one that has most of them, unless all nodes agree: a node that was
    lost in the middle of a case leaves the rest to another one."""
    nodes = {process: nodes_of([figure.environment], side.facts) for process, figure in found.figures.items()}
    several = set.union(set(), *nodes.values())
    if len(several) < 2 or side.agreement(_any_environment(found.figures), several):
        return found
    most = max(sorted(several), key=lambda node: sum(node in own for own in nodes.values()))
    kept = {process: figure for process, figure in found.figures.items() if most in nodes[process]}
    left = len(found.figures) - len(kept)
    note = f"without {left} of {len(found.figures)} processes of {side.name} that were measured on another node"
    return _SoundFigures(kept, "; ".join(filter(None, (note, found.note))))


def _nodes_apart(
    figures: tuple[Mapping[int, Figure], Mapping[int, Figure]], sides: tuple[ComparedSide, ComparedSide]
) -> str:
    """Return why two sides cannot be compared: they are of different nodes, which are not known to agree."""
    a, b = (nodes_of([_any_environment(own)], side.facts) for own, side in zip(figures, sides, strict=True))
    if not a or not b or a == b:
        return ""
    if any(side.agreement(_any_environment(own), a | b) for own, side in zip(figures, sides, strict=True)):
        return ""
    return (
        f"measured on different nodes, {', '.join(a)} and {', '.join(b)}, which are not known to agree: "
        "`opmark fleet agree`"
    )


def _any_environment(figures: Mapping[int, Figure]) -> str:
    return next(iter(figures.values())).environment


def _is_sound(figure: Figure) -> bool:
    return figure.median is not None and figure.median > 0 and PREEMPTED not in figure.cautions


def _floor(
    key: Key,
    figures: tuple[Mapping[int, Figure], Mapping[int, Figure]],
    sides: tuple[ComparedSide, ComparedSide],
    rules: Rules,
) -> float:
    """Return the larger noise floor of both sides, as far as it is known. Only times have one.

    If it replaces the spread of few processes, it is the largest floor of any case, because spread depends more on the
    case than on its duration, or one that is assumed. A session in turns measures enough processes and needs none.
    """
    if key[0] in QUANTITIES and QUANTITIES[key[0]].unit != "s":
        return 0.0
    few = not rules.looked and any(len(by_process) < FEWEST for by_process in figures)
    found: list[float | None] = []
    for by_process, side in zip(figures, sides, strict=True):
        first = next(iter(by_process.values()))
        noise, own = side.noise.get(first.environment), None
        if first.median is None:
            continue
        if noise:
            own = noise.largest_for(*key) if few else noise.floor_for(first.median, *key)
        if own is None and few and (learnt := side.learnt(first.environment)):
            own = learnt.floor_for(first.series, first.median)
        found.append(own)
    if few:
        return floor_of_few(found, {code for by in figures for figure in by.values() for code in figure.cautions})
    return max(filter(None, found), default=0.0)


def _correct_verdicts(drafts: Sequence[_Draft]) -> list[_Draft]:
    """Correct the verdicts for the number of cases that are judged at once."""
    places = [i for i, draft in enumerate(drafts) if draft.judged]
    corrected = control_false_discoveries([draft.judged.found for draft in drafts if draft.judged])
    settled = list(drafts)
    for i, found in zip(places, corrected, strict=True):
        judged = drafts[i].judged
        assert judged is not None
        settled[i] = drafts[i]._replace(judged=judged._replace(found=found))
    return settled


def _with_reasons(draft: _Draft, a: ComparedSide, b: ComparedSide) -> _Draft:
    """Return the draft with a note on the sides that failed, or whose results nothing has verified."""
    sides = list(zip(draft.pair, (a, b), strict=True))
    told = [_failure(one, side) for one, side in sides if one.status not in MEASURED]
    if told:
        return draft._replace(note="; ".join(told))
    unchecked = [f"unchecked in {side.name}" for one, side in sides if one.status == "unchecked"]
    return draft._replace(note="; ".join(filter(None, (*unchecked, draft.note))))


def _failure(one: Measured, side: ComparedSide) -> str:
    status, reason = one.status, side.why(one.way)
    verb = "skipped" if status == "skipped" else "failed"
    total = len(one.without) + max((len(by_process) for by_process in one.figures.values()), default=0)
    some = (
        f" ({len(one.without)} of {count_noun(total, 'process', 'processes')})" if one.figures and one.without else ""
    )
    what = [] if status == "skipped" else [status]
    return ": ".join((f"{verb} in {side.name}{some}", *what, *filter(None, [reason])))


def _opposite_environments(a: ComparedSide, b: ComparedSide, found: Matched) -> list[tuple[Facts, Facts]]:
    """Return the pairs of environments that are compared with each other."""
    ids = dict.fromkeys((_environment(one), _environment(other)) for one, other in found.pairs)
    return [(a.facts[one], b.facts[other]) for one, other in ids if one in a.facts and other in b.facts]


def _environment(one: Measured) -> str:
    for by_process in one.figures.values():
        for figure in by_process.values():
            return figure.environment
    return one.any.environment


def _pairing(draft: _Draft, names: _CaseNames) -> Pairing:
    one, other = draft.pair
    op, params, phase = names.of(one)
    judged = draft.judged
    numbers = judged.found if judged else None
    return Pairing(
        case=one.way.case,
        op=op,
        params=params,
        phase=phase,
        where=(names.where(one.way), names.where(other.way)),
        quantity=draft.key[0] if draft.key else "",
        cache=draft.key[1] if draft.key else None,
        a=judged.used.centre("a") if judged else None,
        b=judged.used.centre("b") if judged else None,
        processes=judged.used.processes if judged else (0, 0),
        ratio=numbers.ratio if numbers else None,
        low=numbers.low if numbers else None,
        high=numbers.high if numbers else None,
        p=numbers.p if numbers else None,
        verdict=numbers.verdict if numbers else "undecided",
        floor=draft.floor,
        note=draft.note,
        statuses=(one.status, other.status),
    )


def _with_cycles(pair: Pairing, draft: _Draft, sides: tuple[ComparedSide, ComparedSide]) -> Pairing:
    """Return the pair in cycles too, where both sides ran on the same kind of chip and every process knows its
    clock."""
    chips = {chip(dict(side.facts.get(_environment(one), {}))) for side, one in zip(sides, draft.pair, strict=True)}
    if draft.judged is None or draft.key is None or not is_clocked(draft.key[0]) or len(chips) > 1:
        return pair
    used = draft.judged.used
    counted = [
        [one.figures[draft.key][process].cycles for process in medians]
        for one, medians in zip(draft.pair, (used.a, used.b), strict=True)
    ]
    known = [[count for count in counts if count] for counts in counted]
    if known != counted:
        return pair
    a, b = map(geometric_mean, known)
    return replace(pair, cycles=PairCycles(a, b, b / a, (a / used.centre("a"), b / used.centre("b"))))


def _with_command(
    pair: Pairing, draft: _Draft, sides: tuple[ComparedSide, ComparedSide], cases: Mapping[str, Case]
) -> Pairing:
    """Return the pair with the command that measures it in turns, if it is undecided and something can be typed."""
    case = cases.get(pair.case)
    if draft.judged is None or pair.verdict != "undecided" or case is None:
        return pair
    differs = _difference_options(draft, sides)
    if differs is None:
        return pair
    phase = [] if case.phase == "forward" else ["--phase", case.phase]
    phase += ["--wrt", ",".join(case.wrt)] if case.wrt else []
    load = _load_options(draft.pair[0].way.load)
    words = ["opmark", "ab", case.op, *param_options(case, parameters_of(case.op)), *phase, *differs, *load]
    return replace(pair, in_turns=shlex.join(words))


def _load_options(load: str) -> list[str]:
    if not load:
        return []
    clients, arrival, rate = parse_load_text(load)
    return ["--clients", str(clients), *(["--arrival", arrival, "--rate", f"{rate:g}"] if rate else [])]


def _difference_options(draft: _Draft, sides: tuple[ComparedSide, ComparedSide]) -> list[str] | None:
    """Return the options of `opmark ab` that make these two sides; None if it cannot, as for two versions of a
    framework in one interpreter, or if nothing is known that differs."""
    a, b = (one.way for one in draft.pair)
    backend = ["--backend", a.backend if a.backend == b.backend else f"{a.backend},{b.backend}"]
    threads = ["--threads", str(a.threads) if a.threads == b.threads else f"{a.threads},{b.threads}"]
    ways = [way_of(one.backend, one.implementation) for one in (a, b)]
    if (a.backend != b.backend) + (a.threads != b.threads) + (ways[0] != ways[1]) > 1:
        return None
    if ways[0] != ways[1]:
        return [*backend, *threads, "--impl", f"{a.implementation},{b.implementation}"]
    if a.backend != b.backend or a.threads != b.threads:
        return [*backend, *threads]
    facts = [side.facts.get(_environment(one), {}) for side, one in zip(sides, draft.pair, strict=True)]
    if software(differing([(facts[0], facts[1])])):
        pythons = [str(own.get("interpreter", "")) for own in facts]
        known = all(pythons) and pythons[0] != pythons[1] and "@" not in a.backend
        return [*backend, "--python", ",".join(pythons), *threads] if known else None
    earlier, later = (side.run.revision for side in sides)
    if earlier == later or not earlier or not later or earlier.endswith(CHANGED):
        return None
    revisions = ["--rev", earlier, *([] if later.endswith(CHANGED) else ["--rev", later])]
    return [*backend, *threads, *revisions]


def _by_effect(pair: Pairing) -> tuple[int, float]:
    """Sort key: failures on B only, on A only, then the largest ratio first, then cases without a ratio."""
    measured = [status in MEASURED for status in pair.statuses]
    if measured == [True, False]:
        return 0, 0.0
    if measured == [False, True]:
        return 1, 0.0
    return (2, -pair.ratio) if pair.ratio is not None else (3, 0.0)


def where(backend: str, implementation: str, threads: int, load: str = "") -> str:
    """Return the name of a way as in `Pairing.where`."""
    return ", ".join(filter(None, (f"{backend}{way_of(backend, implementation)} ×{threads}", load)))


class _CaseNames:
    """Names of cases and ways, each made once."""

    def __init__(self, cases: Mapping[str, Case], ambiguous: Collection[str] = ()) -> None:
        self._cases = cases
        self._ambiguous = ambiguous
        self._where: dict[tuple[str, str, int, str], str] = {}

    def of(self, one: Measured) -> tuple[str, str, str]:
        """Return (operator, parameters, phase)."""
        case = self._cases.get(one.way.case)
        if case is None:
            return one.op, f"case {one.way.case}", ""
        shown = shown_case(case)
        return shown.op, format_params(shown, parameters_of(case.op)), " d".join((case.phase, *case.wrt))

    def where(self, way: Way) -> str:
        key = way[1:]
        if key not in self._where:
            self._where[key] = where(*key)
        return self._where[key]

    def lone(self, one: Measured) -> str:
        op, params, phase = self.of(one)
        unclear = ": several ways, and none opposite" if one.way.case in self._ambiguous else ""
        parts = (op, params, "" if phase == "forward" else phase, f"({self.where(one.way)}{unclear})")
        return " ".join(filter(None, parts))


def _no_common_quantity(pair: tuple[Measured, Measured]) -> str:
    a, b = (", ".join(" ".join(key) for key in one.figures) for one in pair)
    return f"nothing was measured on both sides: {a} in A, {b} in B"


def _quantities(found: Matched) -> str:
    every = dict.fromkeys(":".join(key) for a, b in found.pairs for key in a.figures if key in b.figures)
    return ", ".join(every) or "nothing on both sides"


def _no_common_case(
    sides: tuple[ComparedSide, ComparedSide], found: tuple[list[Measured], list[Measured]], cases: Mapping[str, Case]
) -> UserError:
    names = _CaseNames(cases)
    told = [f"`{side.name}` has {_list_first(own, names)}" for side, own in zip(sides, found, strict=True)]
    return UserError(
        f"no case in common: {'; '.join(told)}",
        "a case is an operator with all its parameters and its phase; run the same workload for both",
    )


def _list_first(found: Sequence[Measured], names: _CaseNames) -> str:
    listed = list(dict.fromkeys(" ".join(filter(None, names.of(one))) for one in found[: 10 * _FEW]))
    if not listed:
        return "none"
    more = ", ..." if len(listed) > _FEW or len(found) > 10 * _FEW else ""
    return f"{count_noun(len({one.way.case for one in found}), 'case')}: {', '.join(listed[:_FEW])}{more}"


def _mean_of_most(settled: Sequence[_Draft], rules: Rules) -> Geomean | None:
    """Return the mean over the cases of the quantity that most of them have; ratios of different quantities have no
    mean."""
    by_key: dict[Key, list[_Draft]] = {}
    for draft in settled:
        if draft.key and draft.judged:
            by_key.setdefault(draft.key, []).append(draft)
    if not by_key:
        return None
    key, own = max(by_key.items(), key=lambda one: len(one[1]))
    spreads = [draft.sessions for draft in own if draft.sessions]
    judged = [draft.judged for draft in own if draft.judged]
    mean = geomean(judged, rules._replace(sessions=max(spreads, default=None)))
    return replace(mean, quantity=key[0], cache=key[1]) if mean else None


LEAST_CASES = 10
"""Cases from which on their spread says something about the mean over other cases."""


def geomean(found: Sequence[CaseVerdict], rules: Rules) -> Geomean | None:
    """Return the geometric mean of the ratios with its interval.

    Cases of one process are not independent, because a disturbance affects all of them. So each process is reduced to
    its mean over the cases, and these means are compared like the medians of one case. Only processes that measured all
    cases count; a session goes on with undecided cases alone. With fewer than FEWEST such processes, the interval is
    that of the mean over the cases, and there is none for fewer than LEAST_CASES.
    """
    if not found:
        return None
    a, b = _by_process([one.used.a for one in found]), _by_process([one.used.b for one in found])
    rounds = sorted(a.keys() & b.keys())
    if rules.paired and len(rounds) >= FEWEST:
        looks = len(STAGES) if rules.looked else 1
        return _of(compare_pairs([a[i] for i in rounds], [b[i] for i in rounds], looks=looks), len(found))
    if not rules.paired and min(len(a), len(b)) >= FEWEST:
        return _of(compare_groups(list(a.values()), list(b.values()), sessions=rules.sessions), len(found))
    ratios = [one.found.ratio for one in found]
    spread = log_interval(ratios, 1 - ALPHA) if len(found) >= LEAST_CASES else Interval(0.0, math.inf, 0.0)
    return Geomean(geometric_mean(ratios), spread.low, spread.high, len(found))


def _of(found: Comparison, cases: int) -> Geomean:
    return Geomean(found.ratio, found.low, found.high, cases)


def _by_process(cases: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the geometric mean over the cases for each process that measured all of them."""
    everywhere = set(cases[0]).intersection(*cases[1:])
    return {i: math.exp(sum(math.log(case[i]) for case in cases) / len(cases)) for i in sorted(everywhere)}
