"""Statistics of factors, held against laws whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.stats.factors import (
    CurveNoise,
    FactorAxis,
    FactorDesign,
    bend_place,
    best_levels,
    correlate,
    curve_noise,
    find_knees,
    trend,
    variance_shares,
)

THREADS = np.log(np.geomspace(1, 64, 9))
KNEE = math.log(6)


def saturate(x: np.ndarray) -> np.ndarray:
    """Time that falls with the number of threads up to 6, and no further."""
    return -np.minimum(x, KNEE)


def rounds_of(law: np.ndarray, noise: float, generator: np.random.Generator, rounds: int = 3) -> np.ndarray:
    """A law with noise in each round, and rounds that are slower as a whole."""
    return law[:, None] + generator.normal(0, 0.05, rounds) + generator.normal(0, noise, (len(law), rounds))


def knees_of(law: np.ndarray, noise: float, generator: np.random.Generator) -> list:
    values = rounds_of(law, noise, generator)
    return find_knees(list(THREADS), list(values.mean(axis=1)), curve_noise(values))


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_intervals_of_a_known_knee_cover_it(noise: float) -> None:
    generator = np.random.default_rng(1)
    found = [knees_of(saturate(THREADS), noise, generator) for _ in range(40)]
    assert sum(len(knees) == 1 for knees in found) >= 38
    single = [knees[0] for knees in found if len(knees) == 1]
    assert sum(knee.low <= KNEE <= knee.high for knee in single) >= 0.9 * len(single)
    assert all(abs(knee.before + 1) < 0.2 for knee in single)
    assert all(abs(knee.after) < 0.2 for knee in single)


def test_a_narrower_interval_comes_with_less_noise() -> None:
    generator = np.random.default_rng(2)
    wide, narrow = (knees_of(saturate(THREADS), noise, generator)[0] for noise in (0.08, 0.005))
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)


@pytest.mark.parametrize("law", [0 * THREADS, -0.8 * THREADS, 3 * THREADS])
def test_a_straight_line_has_no_knee(law: np.ndarray) -> None:
    generator = np.random.default_rng(3)
    assert sum(bool(knees_of(law, 0.05, generator)) for _ in range(20)) <= 1


def test_two_knees_are_found() -> None:
    x = np.linspace(0, 10, 21)
    law = np.maximum(x - 3, 0) - 0.7 * np.maximum(x - 7, 0)
    values = rounds_of(law, 0.01, np.random.default_rng(4))
    found = find_knees(list(x), list(values.mean(axis=1)), curve_noise(values))
    assert [round(knee.at) for knee in found] == [3, 7]


def test_too_few_levels_have_no_knee() -> None:
    assert find_knees([0, 1, 2, 3], [3, 2, 1, 1], CurveNoise(1e-4, 6)) == []
    assert find_knees(list(THREADS), list(saturate(THREADS)), CurveNoise(math.nan, 0)) == []


@pytest.mark.parametrize(
    ("law", "word"),
    [
        (lambda x: x, "rising"), (lambda x: -x, "falling"), (lambda x: 0 * x, "flat"),
        (lambda x: (x - 2) ** 2, "not monotone"),
    ],
)  # fmt: skip
def test_the_trend_of_a_curve(law: Callable[[np.ndarray], np.ndarray], word: str) -> None:
    assert trend(rounds_of(law(THREADS), 0.02, np.random.default_rng(5))) == word


def test_the_lowest_level_and_those_that_are_not_surely_above_it() -> None:
    values = rounds_of(np.array([2.0, 1.0, 1.001, 1.5]), 0.02, np.random.default_rng(6))
    first, tied = best_levels(values)
    assert first in (1, 2)
    assert tied == [1, 2]


def test_a_bend_is_refined_where_it_is() -> None:
    x = [0.0, 1, 2, 3, 4, 5]
    score_and_place = bend_place(x, [0, 0, 0, 0.4, 1.4, 2.4], [0.01] * 6)
    assert score_and_place is not None
    assert score_and_place[1] in (2, 3)
    assert bend_place(x, x, [0.01] * 6) is None
    assert bend_place(x, [0, 0.01, 0, 0.01, 0, 0.01], [0.05] * 6) is None


# Shares of the variance.

AXES = (
    FactorAxis("size", tuple(np.linspace(0, 1, 7)), 3),
    FactorAxis("threads", (0.0, 0.5, 1.0), 1),
    FactorAxis("nothing", (0.0, 1.0, 2.0), 0, ordered=False),
)
BASE = tuple(axis.base for axis in AXES)


def points_of(axes: tuple[FactorAxis, ...]) -> tuple[tuple[int, ...], ...]:
    """Curves through the base, and the corners of every pair."""
    found = {BASE}
    for i, axis in enumerate(axes):
        found |= {(*BASE[:i], level, *BASE[i + 1 :]) for level in range(len(axis.places))}
    for i, j in combinations(range(len(axes)), 2):
        for a in (0, len(axes[i].places) - 1):
            for b in (0, len(axes[j].places) - 1):
                point = list(BASE)
                point[i], point[j] = a, b
                found.add(tuple(point))
    return tuple(sorted(found))


POINTS = points_of(AXES)


def design(law: Callable[..., float], noise: float, seed: int, missing: float = 0.0) -> FactorDesign:
    generator = np.random.default_rng(seed)
    means = np.array([
        law(*(axis.places[level] for axis, level in zip(AXES, point, strict=True))) for point in POINTS
    ])  # fmt: skip
    values = rounds_of(means, noise, generator)
    lost = generator.random(values.shape) < missing
    lost[POINTS.index(BASE)] = False
    return FactorDesign(AXES, POINTS, np.where(lost, np.nan, values))


def test_shares_of_a_sum_are_those_of_its_variances() -> None:
    shares = [variance_shares(design(lambda a, b, _: a + 0.5 * b, 0.02, seed), draws=199) for seed in range(30)]
    assert np.mean([one.main["size"].share for one in shares if one]) == pytest.approx(0.8, abs=0.01)
    assert np.mean([one.main["threads"].share for one in shares if one]) == pytest.approx(0.2, abs=0.01)
    covered = [one.main["size"].low <= 0.8 <= one.main["size"].high for one in shares if one]
    assert sum(covered) >= 25


def test_a_known_interaction_is_one() -> None:
    found = variance_shares(design(lambda a, b, _: 2 * (a - 0.5) * (b - 0.5), 0.02, 1))
    assert found is not None
    pair = found.pairs["size", "threads"]
    assert pair.share == pytest.approx(1, abs=0.05)
    assert pair.p < 0.01
    assert found.main["size"].share < 0.05
    assert found.total["size"] > 0.9


def test_what_does_nothing_has_no_effect() -> None:
    """The rate of false alarms is that of the test: about 5 % of 120."""
    chances = []
    for seed in range(120):
        found = variance_shares(design(lambda a, *_: a, 0.05, seed), draws=199)
        assert found is not None
        chances.append(found.main["nothing"].p)
        assert found.main["nothing"].share < 0.06
    assert sum(p <= 0.05 for p in chances) <= 14
    assert np.mean(chances) == pytest.approx(0.5, abs=0.12)


def test_an_effect_is_seen_among_many_factors() -> None:
    """The probability of every factor and pair is corrected for their number, here 45."""
    axes = tuple(FactorAxis(f"f{i}", (0.0, 1.0), 0) for i in range(9))
    points = tuple(tuple(int(i in on) for i in range(9)) for n in range(3) for on in combinations(range(9), n))
    generator = np.random.default_rng(4)
    law = np.array([float(point[0]) for point in points])
    found = variance_shares(FactorDesign(axes, points, rounds_of(law, 0.02, generator)))
    assert found is not None
    tests = len(found.main) + len(found.pairs)
    assert tests == 45
    assert found.main["f0"].p * tests < 0.05
    assert min(one.p for name, one in found.main.items() if name != "f0") * tests > 0.05


def test_missing_values_cost_precision_and_nothing_else() -> None:
    shares = [variance_shares(design(lambda a, b, _: a + 0.5 * b, 0.02, seed, 0.1), draws=199) for seed in range(20)]
    assert np.mean([one.main["size"].share for one in shares if one]) == pytest.approx(0.8, abs=0.02)


def test_one_round_tells_nothing() -> None:
    whole = design(lambda a, *_: a, 0.02, 1)
    assert variance_shares(FactorDesign(AXES, POINTS, whole.values[:, :1])) is None


@given(st.integers(0, 2**31), st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=15, deadline=None)
def test_shares_do_not_depend_on_units(seed: int, scale: float, offset: float) -> None:
    one = design(lambda a, b, _: a + b, 0.02, seed)
    other = FactorDesign(AXES, POINTS, one.values * scale + offset)
    first, second = (variance_shares(each, draws=49) for each in (one, other))
    assert first is not None
    assert second is not None
    for name in first.main:
        assert first.main[name].share == pytest.approx(second.main[name].share, abs=1e-9)
        assert 0 <= first.main[name].low <= first.main[name].high <= 1


# Correlation.


def test_rank_correlation_and_information() -> None:
    generator = np.random.default_rng(7)
    levels = np.repeat(np.arange(6), 5)
    values = levels + generator.normal(0, 0.1, 30)
    found = correlate(list(levels), list(values), ordered=True)
    assert found.spearman is not None
    assert found.spearman > 0.9
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.spearman < found.high
    assert found.information > 1
    assert found.p < 0.01


def test_what_is_independent_has_no_information() -> None:
    generator = np.random.default_rng(8)
    found = [correlate(list(np.repeat(np.arange(4), 6)), list(generator.normal(size=24)), ordered=True, draws=99)
             for _ in range(30)]  # fmt: skip
    assert sum(one.p <= 0.05 for one in found) <= 5
    assert np.mean([one.information for one in found]) < 0.12


def test_information_sees_what_ranks_do_not() -> None:
    levels = list(np.repeat(np.arange(-3, 4), 6))
    values = [level**2 + 0.01 * i for i, level in enumerate(levels)]
    found = correlate(levels, values, ordered=True)
    assert found.spearman is not None
    assert abs(found.spearman) < 0.5
    assert found.p < 0.01


def test_categories_have_no_ranks() -> None:
    assert correlate([0, 1, 2, 0, 1, 2], [1, 2, 3, 1, 2, 3], ordered=False).spearman is None
