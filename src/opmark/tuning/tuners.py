"""Tuners without a model: every configuration in turn, any at random, a genetic search. `make_tuner` finds all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from random import Random

from opmark.errors import UnknownName, UserError
from opmark.plugin import BackendInfo, Configuration, Tuner, TuningProblem
from opmark.plugin.registry import backends

TUNERS: dict[str, tuple[str, str]] = {
    "guided": (
        "opmark.tuning.guided:Guided",
        "a Gaussian process over the knobs, by expected improvement",
    ),
    "gridsearch": ("opmark.tuning.tuners:GridSearch", "every configuration, in the order of its number"),
    "random": ("opmark.tuning.tuners:RandomSearch", "configurations drawn at random, none twice"),
    "ga": ("opmark.tuning.tuners:GeneticSearch", "a genetic search: the best are crossed and mutated"),
    "xgb": ("opmark.tuning.boosted:Boosted", "boosted trees predict the time from the knobs"),
    "xgb-rank": ("opmark.tuning.boosted:BoostedRank", "boosted trees rank, by knobs and by loops where there are any"),
    "xgb_knob": ("opmark.tuning.boosted:BoostedKnob", "boosted trees rank, by the knobs"),
    "xgb_itervar": ("opmark.tuning.boosted:BoostedItervar", "boosted trees rank, by features of every loop"),
    "xgb_curve": ("opmark.tuning.boosted:BoostedCurve", "boosted trees rank, by what the loops touch"),
}
"""By name: the class, and what it does."""
DEFAULT_TUNER = "guided"


def make_tuner(name: str, problem: TuningProblem, info: BackendInfo) -> Tuner:
    """Return the tuner of that name: one of opmark, or of the backend."""
    module, _, kind = find_tuner(name, info).partition(":")
    found: Tuner = getattr(import_module(module), kind)(problem)
    return found


def find_tuner(name: str, info: BackendInfo) -> str:
    """Return where the class of a tuner is; UserError if the backend has no such tuner."""
    known = {**{one: where for one, (where, _) in TUNERS.items()}, **info.tuners}
    if name not in known:
        if owners := [one.name for one in backends().values() if name in one.tuners and not one.tuned]:
            raise UserError(
                f"the tuner `{name}` is not one for {info.name}: it belongs to {', '.join(owners)}",
                f"for {info.name} there are {', '.join(known)}",
            )
        raise UnknownName("tuner", name, known)
    return known[name]


class IndexTuner(Tuner):
    """A tuner that goes by the numbers of configurations. It begins with the starts of the problem."""

    first = 0
    """How many configurations to draw at random before the tuner's own rule is used."""

    def __init__(self, problem: TuningProblem) -> None:
        super().__init__(problem)
        self.space = problem.space
        self.random = Random(problem.seed)
        self.seen: set[int] = set()
        """Numbers of what was asked or told."""
        self.told: dict[int, float | None] = {}

    def ask(self, most: int) -> Sequence[Configuration]:
        starts = [start for start in self.problem.starts if self.space.why_not(start) is None]
        found = [number for start in starts if (number := self.space.index(start)) not in self.seen][:most]
        self.seen.update(found)
        if len(found) < most:
            drawn = max(0, min(most - len(found), self.first - len(self.seen)))
            if drawn:
                found += self.take(self.spread(drawn), drawn)
            if len(found) < most and not drawn:
                found += self.take(self.choose(most - len(found)), most - len(found))
        return [self.space.at(number) for number in found]

    def tell(self, configuration: Configuration, seconds: float | None) -> None:
        number = self.space.index(configuration)
        self.seen.add(number)
        self.told[number] = seconds

    def take(self, numbers: Iterator[int], most: int) -> list[int]:
        """Take the next numbers that were not seen before."""
        found: list[int] = []
        for number in numbers:
            if len(found) == most:
                break
            if number not in self.seen:
                self.seen.add(number)
                found.append(number)
        return found

    def choose(self, most: int) -> Iterator[int]:
        """Yield numbers worth measuring, the best first. Those that were seen are left out by the caller."""
        raise NotImplementedError

    def spread(self, most: int) -> Iterator[int]:
        """Yield numbers drawn at random."""
        yield from self.space.draw(self.random, most + len(self.seen))

    def best(self, most: int) -> list[int]:
        """Return the numbers of the fastest configurations so far."""
        timed = [(seconds, number) for number, seconds in self.told.items() if seconds is not None]
        return [number for _, number in sorted(timed)[:most]]

    def pool(self, most: int) -> list[int]:
        """Return candidates for a model to choose from: all of a small space; of a large one, some drawn at random and
        what is near to the best."""
        if self.space.size <= most:
            return [number for number in self.space.allowed() if number not in self.seen]
        found = dict.fromkeys(self.space.draw(self.random, most // 2))
        near = self.best(8)
        for _ in range(2):  # what is one step away, then two
            configurations = [
                other for number in near for other in self.space.neighbours(self.space.at(number))
            ]  # fmt: skip
            near = [self.space.index(other) for other in configurations][:most]
            found |= dict.fromkeys(near)
        return [number for number in list(found)[: 2 * most] if number not in self.seen]


class GridSearch(IndexTuner):
    def __init__(self, problem: TuningProblem) -> None:
        super().__init__(problem)
        self._rest = self.space.allowed()

    def choose(self, most: int) -> Iterator[int]:
        for _ in range(most):
            number = next((one for one in self._rest if one not in self.seen), None)
            if number is None:
                return
            yield number


class RandomSearch(IndexTuner):
    def choose(self, most: int) -> Iterator[int]:
        return self.spread(most)


class GeneticSearch(IndexTuner):
    """The values of the knobs are the genes. Parents are drawn from the fastest half, the faster the more often."""

    first = 16
    _MUTATION = 0.15

    def choose(self, most: int) -> Iterator[int]:
        parents = self.best(max(4, len(self.told) // 2))
        weights = [1 / (place + 1) for place in range(len(parents))]
        for _ in range(100 * most):
            if not parents:
                break
            one, other = (self.space.at(number) for number in self.random.choices(parents, weights, k=2))
            child = {}
            for knob in self.space.knobs:
                inherited = self.random.choice((one, other))[knob.name]
                child[knob.name] = self.random.choice(knob.values) if self._mutates() else inherited
            if self.space.why_not(child) is None:
                yield self.space.index(child)
        yield from self.spread(most)  # the best of a small space may have no children that are new

    def _mutates(self) -> bool:
        return self.random.random() < self._MUTATION
