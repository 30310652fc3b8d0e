"""Tuners: none asks twice or for what is not allowed, all can be continued, and the default one finds the best."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from random import Random

import pytest

from opmark.errors import UnknownName, UserError
from opmark.plugin import Configuration, Knob, Space, SpaceRule, TuningProblem, splits
from opmark.plugin.registry import backend
from opmark.tuning.tuners import TUNERS, make_tuner

pytest.importorskip("xgboost")

SPACE = Space(
    (
        Knob("tile", splits(128, 2), "split"),
        Knob("unroll", (1, 2, 4, 8)),
        Knob("order", ("ij", "ji"), "order"),
        Knob("fast", (False, True), "flag"),
    ),
    (SpaceRule("have a small tile", lambda c: c["tile"][1] <= 64),),  # type: ignore[index, operator]
)
every_tuner = pytest.mark.parametrize("name", TUNERS)


def smooth(c: Configuration) -> float:
    away = abs(log2(c["tile"][1]) - 4) * 0.15 + abs(log2(c["unroll"]) - 2) * 0.08  # type: ignore[index, arg-type]
    return 1e-4 * (1 + away + 0.3 * (c["order"] == "ji") + 0.5 * (not c["fast"]))


def rugged(c: Configuration) -> float:
    return smooth(c) * (1 + 0.1 * Random(str(sorted(c.items()))).random())


def hunt(
    name: str, seconds: Callable[[Configuration], float | None], trials: int, seed: int = 0
) -> list[Configuration]:
    tuner = make_tuner(name, TuningProblem("exp", {}, "null", "null", SPACE, seed), backend("null"))
    noise, asked = Random(seed), list[Configuration]()
    while len(asked) < trials:
        some = tuner.ask(min(4, trials - len(asked)))
        if not some:
            break
        for one in some:
            found = seconds(one)
            asked.append(one)
            tuner.tell(one, found and found * (1 + 0.003 * abs(noise.gauss(0, 1))))
    return asked


@every_tuner
def test_no_configuration_is_asked_for_twice_and_all_are_allowed(name: str) -> None:
    asked = hunt(name, smooth, 40)
    numbers = [SPACE.index(one) for one in asked]
    assert len(set(numbers)) == len(numbers) >= 12
    assert all(SPACE.why_not(one) is None for one in asked)


@every_tuner
def test_the_same_answers_give_the_same_questions(name: str) -> None:
    assert hunt(name, rugged, 24, seed=3) == hunt(name, rugged, 24, seed=3)


@every_tuner
def test_a_space_in_which_everything_fails_comes_to_an_end(name: str) -> None:
    assert len(hunt(name, lambda one: None, 500)) <= SPACE.size


def test_gridsearch_sees_every_configuration() -> None:
    assert len(hunt("gridsearch", smooth, 10_000)) == len(list(SPACE.allowed()))


@pytest.mark.parametrize("seconds", [smooth, rugged])
def test_the_default_finds_the_best_with_a_third_of_the_trials_where_random_often_does_not(
    seconds: Callable[[Configuration], float],
) -> None:
    best = min(seconds(SPACE.at(number)) for number in SPACE.allowed())
    regret = {}
    for name in ("guided", "random"):
        found = [min(seconds(one) for one in hunt(name, seconds, SPACE.size // 3, seed)) for seed in range(4)]
        regret[name] = [value / best - 1 for value in found]
    assert max(regret["guided"]) <= 0.02
    assert sum(regret["guided"]) < sum(regret["random"])


def test_where_nothing_matters_the_default_stops_early() -> None:
    assert len(hunt("guided", lambda one: 1e-4, 112)) < 60


def test_a_tuner_of_loops_needs_loops() -> None:
    flat = TuningProblem("exp", {}, "null", "null", Space(SPACE.knobs[1:]))
    for name in ("xgb_itervar", "xgb_curve"):
        with pytest.raises(UserError, match="no splits"):
            make_tuner(name, flat, backend("null"))


def test_an_unknown_tuner_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="gridserch"):
        make_tuner("gridserch", TuningProblem("exp", {}, "null", "null", SPACE), backend("null"))
