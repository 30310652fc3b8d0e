"""Tuners that learn with gradient-boosted trees (XGBoost), as AutoTVM's do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opmark.errors import UserError
from opmark.plugin import Configuration, TuningProblem
from opmark.tuning.features import Features, knob_features, program_features
from opmark.tuning.tuners import IndexTuner

_POOL = 4096
_GREEDY = 0.9
"""Share of a batch that the model chooses; the rest is drawn at random, so that it learns what it does not know."""
_ROUNDS = 60


class Boosted(IndexTuner):
    """Learns from all configurations so far, and proposes those of the pool that it expects to be the fastest."""

    first = 12
    objective = "reg:squarederror"

    def __init__(self, problem: TuningProblem) -> None:
        super().__init__(problem)
        try:
            import xgboost
        except ImportError:
            raise UserError(
                "this tuner needs the package xgboost", "pip install 'opmark[tune]'; or --tuner guided, which does not"
            ) from None
        self._xgboost = xgboost
        self._features = self.make_features()

    def make_features(self) -> Features:
        return knob_features(self.space)

    def choose(self, most: int) -> Iterator[int]:
        pool = self.pool(_POOL)
        timed = [(number, seconds) for number, seconds in self.told.items() if seconds is not None]
        if len(timed) < 2 or not pool:
            yield from self.spread(most)
            return
        ranked = self._rank(pool, timed)
        greedy = max(1, round(_GREEDY * most))
        yield from ranked[:greedy]
        rest = ranked[greedy:]
        self.random.shuffle(rest)
        yield from rest

    def _rank(self, pool: list[int], timed: list[tuple[int, float]]) -> list[int]:
        """Return the pool, that with the lowest predicted time first. What failed counts as the slowest."""
        import numpy as np

        fastest, slowest = (pick(seconds for _, seconds in timed) for pick in (min, max))
        rows = [self._features(self.space.at(number)) for number in self.told]
        # The speed relative to the fastest: between 0 and 1, and exact where it matters.
        speeds = [fastest / (seconds or 2 * slowest) for seconds in self.told.values()]
        data: Any = self._xgboost.DMatrix(np.array(rows), label=np.array(speeds))
        if self.objective.startswith("rank"):
            data.set_group([len(rows)])
        settings = {
            "objective": self.objective, "max_depth": 3, "eta": 0.3, "min_child_weight": 0, "gamma": 1e-4,
            "seed": self.problem.seed, "nthread": 1, "verbosity": 0,
        }  # fmt: skip
        model = self._xgboost.train(settings, data, _ROUNDS)
        wanted = np.array([self._features(self.space.at(number)) for number in pool])
        scores = model.predict(self._xgboost.DMatrix(wanted))
        return [pool[place] for place in np.argsort(-scores, kind="stable")]


class BoostedKnob(Boosted):
    objective = "rank:pairwise"


class BoostedRank(BoostedKnob):
    def make_features(self) -> Features:
        by_knob = knob_features(self.space)
        try:
            by_loop = program_features(self.space, "itervar")
        except UserError:  # nothing is known of loops: the knobs alone tell
            return by_knob

        def encode(configuration: Configuration) -> list[float]:
            return by_knob(configuration) + by_loop(configuration)

        return encode


class BoostedItervar(BoostedKnob):
    def make_features(self) -> Features:
        return program_features(self.space, "itervar")


class BoostedCurve(BoostedKnob):
    def make_features(self) -> Features:
        return program_features(self.space, "curve")
