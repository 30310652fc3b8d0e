"""What decides the time: reads the points of `opmark factors` from the records of a run, and finds the effect of each
factor. The factors are found from what differs between the records, so that any run of one operator can be read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.plugin.registry import parameters_of
from opmark.plugin.space import THREADS, format_value
from opmark.schema import Record, Run, Settings
from opmark.schema.factors import (
    OUTCOMES,
    FactorEffect,
    FactorInteraction,
    FactorKnee,
    FactorLevel,
    FactorOutcome,
    FactorStudy,
    Outcome,
    Trend,
)
from opmark.schema.record import COUNTED
from opmark.stats.factors import (
    ALPHA,
    LEAST_LEVELS,
    FactorAxis,
    FactorDesign,
    KneePlace,
    best_levels,
    correlate,
    curve_noise,
    find_knees,
    level_means,
    trend,
    variance_shares,
)
from opmark.stats.interval import geometric_mean, log_interval
from opmark.units import count_bytes, count_noun, percent, significant

SESSION = "factors-"
"""Begins the session of a run that `opmark factors` made."""
FEWEST_PROCESSES = 2
MOST_POINTS = 2000
_FLAT = 0.15
"""An exponent closer to 0 than this is called flat: doubling changes the time by a tenth."""
_SMALL = 0.01
"""What changes the outcome by less than this does not matter, however sure it is."""


class StudyValue(NamedTuple):
    """What one record says."""

    op: str
    params: Mapping[str, Any]
    backend: str
    implementation: str
    settings: Settings
    process: int
    task: str
    outcomes: dict[Outcome, float]
    """Empty if it was not measured, or if other work disturbed it."""
    quantity: str = ""
    nbytes: int | None = None


def is_study(run: Run) -> bool:
    return run.session.startswith(SESSION)


def values_of(records: Iterable[Record]) -> list[StudyValue]:
    return [_value(record) for record in records]


def _value(record: Record) -> StudyValue:
    outcomes: dict[Outcome, float] = {}
    counted = [one for one in record.measurements if one.per_call and one.per_call > 0]
    if record.status not in COUNTED:
        counted = []
    times = [one for one in counted if one.quantity != "energy"]
    energies = [one.per_call for one in counted if one.quantity == "energy" and one.per_call]
    if times and times[0].per_call:
        outcomes["time"] = times[0].per_call
    if energies:
        outcomes["energy"] = energies[0]
        if "time" in outcomes:
            outcomes["energy_delay"] = energies[0] * outcomes["time"]
    task = record.task
    return StudyValue(
        task.case.op, task.case.params, task.backend, task.implementation, task.settings, task.settings.process,
        task.id, outcomes, f"{times[0].quantity} {times[0].cache}" if times else "",
        record.cost.bytes_moved if record.cost else None,
    )  # fmt: skip


def study(values: Sequence[StudyValue], run: str = "", notes: Sequence[str] = ()) -> FactorStudy:
    """Find the effects of everything that differs between the values. UserError if nothing does, or if there are too
    few points or processes to tell effect from noise."""
    ways = Counter((value.op, value.backend, value.implementation) for value in values)
    if not ways:
        raise UserError("there are no records to find factors in", "`opmark factors OP` measures some")
    op, backend, implementation = max(ways, key=lambda way: ways[way])
    notes = list(notes)
    if others := sum(ways.values()) - ways[op, backend, implementation]:
        notes.append(f"{count_noun(others, 'record')} of other operators, backends or implementations left out")
    values = [one for one in values if (one.op, one.backend, one.implementation) == (op, backend, implementation)]
    table = _Table(values)
    if len(table.points) > MOST_POINTS:
        raise UserError(
            f"{count_noun(len(table.points), 'point')} are too many for a study: {MOST_POINTS} at most",
            "`opmark factors OP` chooses the points that tell most",
        )
    if not table.factors:
        raise UserError(
            f"nothing differs between the {count_noun(len(values), 'record')} of {op}",
            "a run of `opmark factors`, or one with several parameters or --threads, has factors",
        )
    processes = len({value.process for value in values if value.outcomes})
    if processes < FEWEST_PROCESSES:
        raise UserError(
            f"{op} was measured in {count_noun(processes, 'process', 'processes')}: noise cannot be told from effect",
            "measure with --processes 3 or more, or continue an interrupted run with --resume",
        )
    outcomes = [found for outcome in OUTCOMES if (found := _outcome(table, outcome)) is not None]
    if not outcomes:
        raise UserError(
            f"too few points of {op} were measured in several processes to tell effect from noise",
            "a larger --budget, or a quieter machine; `opmark show` says what became of the points",
        )
    failed = sum(1 for value in values if not value.outcomes)
    return FactorStudy(
        run, op, table.base_text, backend, implementation, len(table.points), processes, failed, tuple(outcomes),
        tuple(notes),
    )  # fmt: skip


# Points and factors, from what differs.


class _Factor(NamedTuple):
    name: str
    levels: tuple[Any, ...]
    """Values in order, of the first of what varies together."""
    names: tuple[str, ...]
    ordered: bool
    places: tuple[float, ...]


class _Table:
    """The values as points of a design: a level of every factor."""

    def __init__(self, values: Sequence[StudyValue]) -> None:
        self.values = values
        settings = [_coordinates(value) for value in values]
        varying = [
            name for name in dict.fromkeys(name for one in settings for name in one)
            if len({one.get(name) for one in settings}) > 1
        ]  # fmt: skip
        together = _join_dependent(varying, settings)
        self.factors = [_make_factor(names, settings, values[0].params) for names in together.values()]
        keys = list(together)
        index = [{level: place for place, level in enumerate(factor.levels)} for factor in self.factors]
        self.point_of = [tuple(index[n][one.get(key)] for n, key in enumerate(keys)) for one in settings]
        self.points = list(dict.fromkeys(self.point_of))
        self.base = _find_base(self.points)
        fixed = [f"{name}={format_value(value)}" for name, value in (settings[0] if settings else {}).items()
                 if name not in varying and name not in _QUIET]  # fmt: skip
        own = (
            [f"{f.name}={f.names[level]}" for f, level in zip(self.factors, self.base, strict=True)]
            if self.base
            else []
        )
        self.base_text = " ".join([*own, *fixed])

    def design(self, outcome: Outcome) -> FactorDesign:
        import numpy as np

        rounds = sorted({value.process for value in self.values})
        column = {process: place for place, process in enumerate(rounds)}
        row = {point: place for place, point in enumerate(self.points)}
        found = np.full((len(self.points), len(rounds)), np.nan)
        for value, point in zip(self.values, self.point_of, strict=True):
            if outcome in value.outcomes:
                found[row[point], column[value.process]] = math.log(value.outcomes[outcome])
        axes = tuple(
            FactorAxis(factor.name, factor.places, level, factor.ordered)
            for factor, level in zip(self.factors, self.base, strict=True)
        )
        return FactorDesign(axes, tuple(self.points), found)


_QUIET = ("seed", "cache_state", "clients", "affinity", "memory_node", "l3_ways", "sm_percent", "sms", "clock")
"""What is not named as a part of the base where it does not vary."""


def _coordinates(value: StudyValue) -> dict[str, Any]:
    """Return everything of a record that may be a factor, by name. The outermost factor of a split follows from the
    size of its loop, so that the others are its level: the size of a tile."""
    found: dict[str, Any] = {}
    kinds = parameters_of(value.op)
    for name, given in value.params.items():
        if (
            isinstance(given, list)
            and all(isinstance(n, int) for n in given)
            and name in kinds
            and kinds[name].is_shape
        ):
            found |= {f"{name}[{i}]": n for i, n in enumerate(given)}
        else:
            found[name] = format_value(given) if isinstance(given, list | dict) else given
    for name, given in value.settings.configuration:
        inner = given[1:] if isinstance(given, tuple) and len(given) > 1 else given
        level = inner[0] if isinstance(inner, tuple) and len(inner) == 1 else inner
        found[name if name not in found else f"knob {name}"] = (
            format_value(level) if isinstance(level, tuple) else level
        )
    settings, resources = value.settings, value.settings.resources
    found[THREADS] = settings.threads
    found["cache_state"] = settings.caches[0] if len(settings.caches) == 1 else "usual"
    found["clients"] = settings.load.clients if settings.load else 1
    found["seed"] = str(settings.seed)
    found["affinity"] = resources.placement or "free" if resources else "free"
    for name, field in (("memory_node", "memory_node"), ("l3_ways", "cache_ways"), ("sm_percent", "sm_percent"),
                        ("sms", "sms"), ("clock", "clock")):  # fmt: skip
        found[name] = getattr(resources, field) if resources else None
    return found


def _join_dependent(varying: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return what varies by itself, with what follows from it at every point: M, N and K that grow together are one
    factor."""
    levels = {name: len({one.get(name) for one in settings}) for name in varying}

    def follows(name: str, other: str) -> bool:
        return len({(one.get(other), one.get(name)) for one in settings}) == levels[other]

    found: dict[str, list[str]] = {}
    # What has most levels comes first: of two that follow from each other, the first of the operator's parameters.
    for name in sorted(varying, key=lambda one: -levels[one]):
        leader = next((other for other in found if follows(name, other)), None)
        found.setdefault(leader or name, []).append(name)
    return {leader: found[leader] for leader in varying if leader in found}


def _make_factor(names: Sequence[str], settings: Sequence[Mapping[str, Any]], parameters: Collection[str]) -> _Factor:
    leader = names[0]
    levels = list(dict.fromkeys(one.get(leader) for one in settings))
    numbers = sorted(level for level in levels if isinstance(level, int | float) and not isinstance(level, bool))
    ordered = len(numbers) == len(levels)
    levels = list(numbers) if ordered else sorted(levels, key=lambda level: (level is None, str(level)))
    places = tuple(map(float, numbers if ordered else range(len(levels))))
    if ordered and numbers[0] > 0:
        places = tuple(math.log(number) for number in numbers)
    texts = tuple("all" if level is None else format_value(level) for level in levels)
    sizes = list(dict.fromkeys(name.partition("[")[0] for name in names))
    joint = len(names) > 1 and all(name in parameters for name in sizes)
    name = f"size ({', '.join(sizes)})" if joint else ", ".join(names)
    return _Factor(name, tuple(levels), texts, ordered, places)


def _find_base(points: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the point from which most others differ in one thing."""
    if not points:
        return ()
    return max(points, key=lambda one: sum(_distance(one, other) == 1 for other in points))


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


# Effects.


def _outcome(table: _Table, outcome: Outcome) -> FactorOutcome | None:
    import numpy as np

    design = table.design(outcome)
    if not np.isfinite(design.values).any():
        return None
    shares = variance_shares(design)
    if shares is None:
        return None
    tests = [one.p for one in shares.main.values()] + [one.p for one in shares.pairs.values()]
    corrected = dict(zip([*shares.main, *shares.pairs], _holm(tests), strict=True))
    interactions = []
    for (first, second), own in shares.pairs.items():
        sentence = f"{first} and {second} act together: {own.share:.1%} of the variance".replace("%", " %")
        p = corrected[first, second]
        told = p <= ALPHA and shares.spread * math.sqrt(own.share) >= math.log1p(_SMALL)
        interactions.append(FactorInteraction(first, second, own.share, own.low, own.high, p, sentence if told else ""))
    interactions.sort(key=lambda one: -one.share)
    effects = []
    for number, factor in enumerate(table.factors):
        chances = [corrected[factor.name]] if factor.name in shares.main else []
        chances += [one.p for one in interactions if factor.name in (one.first, one.second)]
        effects.append(_effect(table, design, number, outcome, shares, min(chances, default=None)))
    if not any(effect.matters for effect in effects):  # shares of what is noise say nothing
        effects = [replace(effect, share=None, low=None, high=None, total=None) for effect in effects]
        interactions = []
    effects.sort(key=lambda one: -(one.total or 0.0))
    quantity = next((value.quantity for value in table.values if outcome in value.outcomes), "")
    return FactorOutcome(outcome, tuple(effects), tuple(interactions), shares.spread, shares.noise, quantity)


def _holm(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities corrected for their number, after Holm."""
    order = sorted(range(len(probabilities)), key=lambda place: probabilities[place])
    found, least = [1.0] * len(probabilities), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(probabilities) - rank) * probabilities[place]))
        found[place] = least
    return found


def _effect(
    table: _Table, design: FactorDesign, number: int, outcome: Outcome, shares: Any, p: float | None
) -> FactorEffect:
    import numpy as np

    factor, axis = table.factors[number], design.axes[number]
    places, values = design.curve(number)
    levels = _levels(table, design, number, outcome)
    share = shares.main.get(factor.name)
    correlation = _correlate(design, number)
    names = [factor.names[place] for place in places]
    ratio: float | None = None
    direction: Trend = "unknown"
    best: tuple[str, ...] = ()
    knees: tuple[FactorKnee, ...] = ()
    enough = len(places) > 1 and values.shape[1] > 1
    reach = shares.spread * math.sqrt(shares.total.get(factor.name, 0.0))
    if enough:
        reach = max(reach, float(np.ptp(level_means(values))))
    matters = None if p is None else p <= ALPHA and reach >= math.log1p(_SMALL)
    if enough:
        means = level_means(values)
        ratio = math.exp(float(means.max() - means.min()))
        direction = trend(values) if factor.ordered else "unknown"  # type: ignore[assignment]
        first, tied = best_levels(values)
        best = tuple(names[place] for place in sorted(tied, key=lambda place: (place != first, place)))
        if factor.ordered and matters and min(factor.places[place] for place in places) >= 0:
            logarithmic = all(isinstance(level, int | float) and level > 0 for level in factor.levels)
            if logarithmic:
                found = find_knees([factor.places[place] for place in places], list(means), curve_noise(values))
                knees = tuple(_knee(one, levels) for one in found)
    effect = FactorEffect(
        factor.name, levels, factor.names[axis.base], matters, p,
        share.share if share else None, share.low if share else None, share.high if share else None,
        shares.total.get(factor.name), ratio, direction, best, knees,
        None if correlation.spearman is None or correlation.low is None or correlation.high is None
        else (correlation.spearman, correlation.low, correlation.high),
        correlation.information, correlation.p,
    )  # fmt: skip
    return replace(effect, sentences=tuple(_sentences(effect, outcome, ordered=factor.ordered)))


def _levels(table: _Table, design: FactorDesign, number: int, outcome: Outcome) -> tuple[FactorLevel, ...]:
    """Return every level that was measured at the base of the other factors, with its interval over processes."""
    factor, base = table.factors[number], table.base
    found = []
    for level, name in enumerate(factor.names):
        point = (*base[:number], level, *base[number + 1 :])
        own = [value for value, where in zip(table.values, table.point_of, strict=True) if where == point]
        if not own:
            continue
        medians = [value.outcomes[outcome] for value in own if outcome in value.outcomes]
        interval = log_interval(medians) if len(medians) > 1 else None
        value = factor.levels[level] if factor.ordered else None
        found.append(
            FactorLevel(
                name, None if value is None else float(value), geometric_mean(medians) if medians else None,
                interval.low if interval else None, interval.high if interval else None, len(medians), own[0].nbytes,
                min(own, key=lambda one: one.process).task,
            )
        )  # fmt: skip
    if len({level.nbytes for level in found}) < 2:
        found = [replace(level, nbytes=None) for level in found]
    return tuple(found)


def _correlate(design: FactorDesign, number: int) -> Any:
    import numpy as np

    axis = design.axes[number]
    known = np.isfinite(design.values).any(axis=1)
    measured = design.values[known]
    means = np.where(np.isfinite(measured), measured, 0.0).sum(axis=1) / np.isfinite(measured).sum(axis=1)
    places = np.array([axis.places[point[number]] for point in design.points])
    return correlate(places[known].tolist(), means.tolist(), ordered=axis.ordered)


def _knee(one: KneePlace, levels: Sequence[FactorLevel]) -> FactorKnee:
    import numpy as np

    at, low, high = (math.exp(value) for value in (one.at, one.low, one.high))
    sized = [(math.log(level.value), math.log(level.nbytes)) for level in levels if level.value and level.nbytes]
    nbytes = None
    if len(sized) > 1:
        scale, amounts = [pair[0] for pair in sized], [pair[1] for pair in sized]
        nbytes = round(math.exp(float(np.interp(one.at, scale, amounts))))
    return FactorKnee(at, low, high, one.before, one.after, nbytes)


# Sentences.


def _sentences(effect: FactorEffect, outcome: Outcome, *, ordered: bool) -> list[str]:
    name, what = effect.name, OUTCOMES[outcome].partition(" of a call")[0]
    if effect.matters is None or effect.ratio is None:
        return [f"{name}: too few points to tell an effect from noise"]
    differ = f"its levels differ by {_times(effect.ratio)}"
    if not effect.matters and effect.p is not None and effect.p <= ALPHA:
        return [f"{name} does not matter: {differ}"]
    if not effect.matters:
        return [f"{name} has no effect that can be told from noise: {differ}"]
    found = []
    if abs(effect.ratio - 1) < _SMALL:
        found.append(f"{name} does not matter by itself: {differ}")
    elif not ordered:
        found.append(f"{name}: {_best(effect)}, {_times(effect.ratio)} between the lowest and the highest {what}")
    for knee in effect.knees:
        found.append(f"{_knee_sentence(name, knee, what)}{_data(knee)}")
    if ordered and not effect.knees and abs(effect.ratio - 1) >= _SMALL:
        few = len(effect.levels) < LEAST_LEVELS
        why = (
            f"; {count_noun(len(effect.levels), 'level')} are too few to see a knee"
            if few
            else ", without a clear knee"
        )
        if effect.trend == "flat":
            found.append(f"the {what} changes with {name}, {_times(effect.ratio)}, and noise hides in which way")
        else:
            found.append(f"the {what} is {effect.trend} with {name}, {_times(effect.ratio)} over its range{why}")
    turned = effect.trend == "not monotone" and 0 < len(effect.best) < len(effect.levels)
    if ordered and turned:
        found.append(f"the {what} is lowest at {name} {_among(effect)}")
    return found


def _knee_sentence(name: str, knee: FactorKnee, what: str) -> str:
    at = f"{_number(knee.at)}, {_number(knee.low)} to {_number(knee.high)}"
    if knee.before < -_FLAT <= knee.after:
        more = f" (from there on the {what} grows)" if knee.after > _FLAT else ""
        verb = "adding threads" if name.split(", ")[0] == THREADS else f"raising {name}"
        return f"{verb} stops paying at {at}{more}"
    if abs(knee.before) <= _FLAT < knee.after:
        return f"the {what} does not depend on {name} up to {at}, then it grows as its power of {knee.after:.2g}"
    steeper = "steeper" if abs(knee.after) > abs(knee.before) else "flatter"
    return (
        f"the {what} becomes {steeper} in {name} at {at}: it goes as its power of {knee.before:.2g} before and "
        f"{knee.after:.2g} after"
    )


def _data(knee: FactorKnee) -> str:
    return f" ({count_bytes(knee.nbytes)} of data)" if knee.nbytes else ""


def _best(effect: FactorEffect) -> str:
    first, *others = effect.best
    if len(effect.best) == len(effect.levels):
        return "no level is surely better than another"
    return f"{first} is best" + (f" (not surely better than {', '.join(others)})" if others else "")


def _among(effect: FactorEffect) -> str:
    values = sorted(level.value for level in effect.levels if level.name in effect.best and level.value is not None)
    if len(values) < 2:
        return effect.best[0]
    return f"{effect.best[0]} ({_number(values[0])} to {_number(values[-1])})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else significant(value, 2 if value < 10 else 3)


def _times(ratio: float) -> str:
    if ratio < 1.1:
        return f"{percent(ratio - 1)}"
    return f"a factor of {significant(ratio, 3)}"
