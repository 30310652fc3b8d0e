"""Space: the knobs of an implementation or a backend, and the configurations that they allow."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log2, prod
from random import Random
from typing import Any, Literal
from zlib import crc32

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.schema.schedule import SCHEDULE, read_schedule

Value = bool | int | float | str | tuple[int, ...]
"""The value of a knob. A split is a tuple of factors; an order is a tuple of places."""
Configuration = Mapping[str, Value]
"""A value for every knob."""
KnobKind = Literal["split", "choice", "order", "flag"]
TUNED_OPERATORS = "tuned_operators"
"""Name in the configuration of a model under which a backend gets the tuned operators of the model, as JSON: a list of
objects with op, params, implementation and configuration. See BackendInfo.takes_tuned_operators."""
COUNTED_WHOLE = 200_000
"""Spaces up to this size are counted one by one; of larger ones, a sample tells how many configurations are allowed."""
_SAMPLE = 20_000
_LONGEST_VALUE = 100
"""Characters of a value that people read."""
FeatureKind = Literal["itervar", "curve"]
"""itervar: numbers of each loop (extent, place, what is done with it). curve: how much data loops touch."""


@dataclass(frozen=True)
class Knob:
    name: str
    values: tuple[Value, ...]
    kind: KnobKind = "choice"
    default: Value | None = None
    """None: the first of the values."""
    summary: str = ""

    def __post_init__(self) -> None:
        if not self.values:
            raise InvalidParameter(f"knob `{self.name}` has no values")
        if self.default is not None and self.default not in self.values:
            raise InvalidParameter(f"the default {self.default!r} of knob `{self.name}` is none of its values")

    @property
    def usual(self) -> Value:
        return self.values[0] if self.default is None else self.default


@dataclass(frozen=True)
class SpaceRule:
    """A condition over several knobs."""

    says: str
    """Completes "a configuration must ..."."""
    holds: Callable[[Configuration], bool]


@dataclass(frozen=True)
class Space:
    """All combinations of the values of some knobs, less those that break a rule.

    Every combination has a number, allowed or not: the values are its digits, that of the first knob is the lowest.
    """

    knobs: tuple[Knob, ...]
    rules: tuple[SpaceRule, ...] = ()
    features: Callable[[Configuration, FeatureKind], Sequence[float]] | None = None
    """What is known of the program that a configuration makes, for tuners that learn from it; always as many numbers.
    Without it, they are made from the splits."""

    def __post_init__(self) -> None:
        names = [knob.name for knob in self.knobs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidParameter(f"a space has two knobs called {', '.join(f'`{name}`' for name in twice)}")

    @cached_property
    def size(self) -> int:
        """Number of combinations; some of them may break a rule."""
        return prod(len(knob.values) for knob in self.knobs)

    @property
    def default(self) -> dict[str, Value]:
        return {knob.name: knob.usual for knob in self.knobs}

    def at(self, index: int) -> dict[str, Value]:
        """Return the combination of this number."""
        if not 0 <= index < self.size:
            raise InvalidParameter(f"configuration {index} is outside of a space of {self.size}")
        found: dict[str, Value] = {}
        for knob in self.knobs:
            index, digit = divmod(index, len(knob.values))
            found[knob.name] = knob.values[digit]
        return found

    def index(self, configuration: Configuration) -> int:
        """Return the number of a combination."""
        number, place = 0, 1
        for knob in self.knobs:
            number += place * knob.values.index(configuration[knob.name])
            place *= len(knob.values)
        return number

    def why_not(self, configuration: Configuration) -> str | None:
        """Return the rule that a combination breaks; None if it is allowed."""
        broken = (rule.says for rule in self.rules if not rule.holds(configuration))
        return next((f"a configuration must {says}" for says in broken), None)

    def check(self, configuration: Mapping[str, Any]) -> dict[str, Value]:
        """Return a configuration that was written by hand or elsewhere: knobs that it leaves out have their default.
        UserError names the knob or the rule that is wrong."""
        known = {knob.name: knob for knob in self.knobs}
        for name, value in configuration.items():
            if name not in known:
                raise UnknownName("knob", name, known)
            if _plain(value) not in known[name].values:
                listed = ", ".join(map(str, known[name].values[:12])) + (
                    ", ..." if len(known[name].values) > 12 else ""
                )
                raise UserError(f"knob `{name}` cannot be {value!r}", f"it can be {listed}")
        found = {**self.default, **{name: _plain(value) for name, value in configuration.items()}}
        if broken := self.why_not(found):
            raise UserError(broken, "`opmark space OP` lists knobs and rules")
        return found

    def fit(self, configuration: Mapping[str, Any]) -> dict[str, Value] | None:
        """Return the configuration of this space that is closest to one of a similar space, as that of another shape: a
        split keeps its inner factors as far as possible. None if the rules forbid it, or a knob is unknown."""
        known = {knob.name: knob for knob in self.knobs}
        if not configuration.keys() <= known.keys():
            return None
        found = self.default
        for name, value in configuration.items():
            wanted = _plain(value)
            distances = [(_distance(other, wanted), place) for place, other in enumerate(known[name].values)]
            if min(distances)[0] == inf:
                return None
            found[name] = known[name].values[min(distances)[1]]
        return found if self.why_not(found) is None else None

    def allowed(self, indices: Sequence[int] | range | None = None) -> Iterator[int]:
        """Yield the numbers of the combinations that break no rule, of these or of all."""
        return (i for i in (range(self.size) if indices is None else indices) if self.why_not(self.at(i)) is None)

    @cached_property
    def allowed_share(self) -> float:
        """The share of the combinations that break no rule: exact for a small space, else that of a sample."""
        if not self.rules:
            return 1.0
        if self.size <= COUNTED_WHOLE:
            return sum(1 for _ in self.allowed()) / self.size
        generator = Random(0)
        tried = [generator.randrange(self.size) for _ in range(_SAMPLE)]
        return sum(1 for _ in self.allowed(tried)) / _SAMPLE

    def refuse_empty(self, what: str) -> None:
        """Raise UserError if there is nothing to choose: no knobs, or rules that contradict each other."""
        if not self.knobs:
            raise UserError(f"{what} has no knobs: there is nothing to tune", "`opmark space OP` lists what has knobs")
        if not self.allowed_share:
            says = "; ".join(rule.says for rule in self.rules)
            tried = f"none of {self.size} combinations" if self.size <= COUNTED_WHOLE else f"none of {_SAMPLE} drawn"
            raise UserError(
                f"{what}: the rules of its space contradict each other: {tried} obeys them all (must {says})",
                "change a rule, or the values of a knob",
            )

    def neighbours(self, configuration: Configuration) -> Iterator[dict[str, Value]]:
        """Yield the allowed combinations that differ in one knob: by one step where its values are numbers, else by
        any."""
        for knob in self.knobs:
            place = knob.values.index(configuration[knob.name])
            near = range(len(knob.values))
            if all(isinstance(value, int | float) for value in knob.values):
                near = range(max(0, place - 1), min(len(knob.values), place + 2))
            for other in near:
                changed = {**configuration, knob.name: knob.values[other]}
                if other != place and self.why_not(changed) is None:
                    yield changed

    def draw(self, generator: Random, most: int, tries: int = 100) -> list[int]:
        """Return up to that many different allowed combinations, drawn at random. A small space is drawn whole;
        of a large one with strict rules, fewer than there are may be found."""
        if self.size <= most * 4:
            every = list(self.allowed())
            generator.shuffle(every)
            return every[:most]
        found: dict[int, None] = {}
        for _ in range(most * tries):
            index = generator.randrange(self.size)
            if index not in found and self.why_not(self.at(index)) is None:
                found[index] = None
                if len(found) == most:
                    break
        return list(found)


def format_value(value: Any) -> str:
    """Return the value of a knob, or of a parameter, as people read it: a split as 8x16. Of a text that is a program,
    such as a trace of MetaSchedule, its length and a checksum."""
    text = "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"({len(text)} characters, {crc32(text.encode()):08x})"


def format_configuration(configuration: Mapping[str, Any]) -> str:
    """Return a configuration as people read it; the tuned operators of a model and the parts of a schedule are only
    counted."""
    shown = dict(configuration)
    if TUNED_OPERATORS in shown:
        shown[TUNED_OPERATORS] = len(json.loads(shown[TUNED_OPERATORS]))
    if SCHEDULE in shown:
        shown[SCHEDULE] = read_schedule(shown[SCHEDULE]).described
    return " ".join(f"{name}={format_value(value)}" for name, value in shown.items())


def _distance(one: Value, other: Any) -> float:
    """Return how far two values of a knob are apart: 0 if they are equal, infinite if nothing relates them."""
    if one == other:
        return 0.0
    if all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in (one, other)):
        return abs(log2(one / other))
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other) and min(*one, *other) > 0:
        # The outermost factor follows from the extent.
        return 1e-3 + sum(abs(log2(a / b)) for a, b in zip(one[1:], other[1:], strict=True))
    return inf


def join_spaces(spaces: Sequence[Space]) -> Space:
    """Return the space of all knobs of several spaces."""
    features = next((space.features for space in spaces if space.features), None)
    return Space(
        tuple(knob for space in spaces for knob in space.knobs),
        tuple(rule for space in spaces for rule in space.rules),
        features,
    )


def _plain(value: Any) -> Any:
    """Return a value as a knob has it: JSON knows no tuples."""
    return tuple(value) if isinstance(value, list) else value


THREADS = "threads"
"""Name of the knob for the number of threads. It is a setting of the worker, which starts anew for another number."""


def threads_knob() -> Knob:
    """Return the knob for the number of threads: powers of two, and all cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    values = sorted({cores, *(1 << i for i in range(cores.bit_length()))})
    return Knob(THREADS, tuple(values), "choice", cores, "threads of the worker")


def splits(extent: int, parts: int, most: int | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the ways to write a loop of this extent as that many nested loops: tuples of factors, the outermost first.
    `most` limits all factors but the outermost."""
    if parts == 1:
        return ((extent,),)
    inner = [n for n in range(1, min(extent, most or extent) + 1) if extent % n == 0]
    return tuple((*rest, n) for n in inner for rest in splits(extent // n, parts - 1, most))
