"""Who is the fastest, beyond chance and noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.analysis.noise_floor import ASSUMED_FLOOR, DISTURBED, DISTURBED_FLOOR
from opmark.analysis.ranking import (
    Contender,
    Key,
    leads,
    ordered,
    verified,
    winner,
)
from opmark.schema import EFFORTS, Case, Caution, Measurement, Record, Settings, Task, Verification
from opmark.schema.machine import Floor, NoiseFloor
from opmark.schema.measurement import PREEMPTED
from opmark.stats import relative_deviation
from opmark.stats.interval import quantile
from opmark.stats.verdict import ALPHA

LATENCY: Key = ("latency", "warm")
NEAR = (0.99, 1.0, 1.01)
"""Samples around a median: they spread by less than the floor."""


def measured(seconds: float, process: int = 0, around: tuple[float, ...] = NEAR * 5, **fields: Any) -> Record:
    settings = Settings(1, "quick", EFFORTS["quick"], process=process)
    samples, cautions = [seconds * factor for factor in around], fields.pop("cautions", ())
    quantity = fields.pop("quantity", "latency")
    found = (Measurement(quantity, "warm", "virtual", samples, 1, 0.0, 1, 0.0, "count", cautions),)
    check = Verification(fields.pop("checked", "full"), fields.pop("note", ""))
    fields = {"status": "ok", "measurements": found, "verification": check, **fields}
    return Record(Task(Case.of("exp", {}, "forward"), "numpy-cpu", "numpy", settings), **fields)


def once(seconds: float, **fields: Any) -> Contender:
    return Contender((measured(seconds, **fields),))


def rounds(*seconds: float, run: str = "", floor: float | None = None) -> Contender:
    found = tuple(measured(value, process) for process, value in enumerate(seconds))
    return Contender(found, run, noise_of(floor) if floor else None)


def noise_of(*floors: float) -> NoiseFloor:
    return NoiseFloor("", "numpy-cpu", 1, "", 10, 1, [Floor("exp", "", 1.0, one, 0.0) for one in floors])


def least_lead(floor: float) -> float:
    """Return the factor by which one process has to lead another: both are as uncertain as the floor says."""
    return math.exp(quantile(1 - ALPHA / 2, 9) * math.sqrt(2) * math.log1p(floor))


# One process each


def test_a_difference_larger_than_processes_of_the_same_code_have_is_one() -> None:
    least = least_lead(ASSUMED_FLOOR)
    assert leads(once(1.0), once(least * 1.01), LATENCY)
    assert not leads(once(1.0), once(least * 0.99), LATENCY)
    assert not leads(once(least * 1.01), once(1.0), LATENCY)


def test_a_measured_floor_takes_the_place_of_the_assumed_one() -> None:
    quiet, loud = noise_of(0.01), noise_of(0.01, 0.2)
    first, second = once(1.0), once(1.06)
    assert leads(first._replace(noise=quiet), second, LATENCY)
    assert not leads(first._replace(noise=quiet), once(1.04), LATENCY)
    assert not leads(first._replace(noise=loud), once(1.3), LATENCY), "the largest of any case counts"
    assert not leads(first._replace(noise=quiet), second._replace(noise=loud), LATENCY)


def test_among_many_a_lead_has_to_be_larger() -> None:
    quiet = noise_of(0.01)
    first, second = once(1.0)._replace(noise=quiet), once(1.06)._replace(noise=quiet)
    assert leads(first, second, LATENCY)
    assert not leads(first, second, LATENCY, contenders=6)
    assert winner([first, second], LATENCY) == 0
    assert winner([first, *[second] * 5], LATENCY) is None


def test_a_floor_of_another_quantity_is_none() -> None:
    other = NoiseFloor("", "numpy-cpu", 1, "", 10, 1, [Floor("exp", "", 1.0, 0.01, 0.0, 0, 0, "host_time", "warm")])
    assert not leads(once(1.0)._replace(noise=other), once(1.06)._replace(noise=other), LATENCY)


@pytest.mark.verdicts
@pytest.mark.parametrize("contenders", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_equally_fast_single_processes_seldom_have_a_winner(contenders: int, spread: float) -> None:
    """Their noise floor was measured by ten processes; the earlier rule, twice that floor, called 14 to 28 %."""
    draw = np.random.default_rng(3)
    trials, won, behind, naive = 600, 0, 0, 0
    for _ in range(trials):
        noise = noise_of(relative_deviation(np.exp(draw.normal(0, spread, 10)).tolist()))
        medians = np.exp(draw.normal(0, spread, contenders))
        found = [once(float(value))._replace(noise=noise) for value in medians]
        first = found[int(np.argmin(medians))]
        won += winner(found, LATENCY) is not None
        behind += any(leads(first, one, LATENCY, contenders) for one in found)
        naive += bool(np.ptp(np.log(medians)) > math.log1p(2 * noise.floors[0].between))
    assert won <= behind <= 1.5 * ALPHA * trials
    assert naive > 0.1 * trials


@pytest.mark.parametrize("code", sorted(DISTURBED))
def test_on_a_machine_that_was_not_quiet_the_difference_must_be_larger(code: str) -> None:
    least, doubt = least_lead(DISTURBED_FLOOR), (Caution(code, "m"),)
    assert not leads(once(1.0, cautions=doubt), once(least * 0.99), LATENCY)
    assert not leads(once(1.0), once(least * 0.99, cautions=doubt), LATENCY)
    assert leads(once(1.0, cautions=doubt), once(least * 1.01, cautions=doubt), LATENCY)


def test_noisy_samples_need_a_larger_difference() -> None:
    wide = (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4) * 9
    assert not leads(once(1.0, around=wide), once(1.2, around=wide), LATENCY)
    assert leads(once(1.0, around=wide), once(2.0, around=wide), LATENCY)


def test_a_few_samples_decide_nothing() -> None:
    few = (0.999, 1.0, 1.001)
    assert not leads(once(1.0, around=few), once(9.0, around=few), LATENCY)


# Several processes


def test_processes_are_compared_round_by_round() -> None:
    """What drifts hits both alike: twice as slow in the end, and still 5 % apart in every round."""
    drift = (1.0, 1.3, 1.5, 1.8, 2.0)
    near = rounds(
        *(1.05 * value * wobble for value, wobble in zip(drift, (1.0, 1.002, 0.999, 1.001, 1.0), strict=True))
    )
    assert leads(rounds(*drift), near, LATENCY)
    assert not leads(near, rounds(*drift), LATENCY)


def test_in_different_runs_there_are_no_rounds() -> None:
    drift = (1.0, 1.3, 1.5, 1.8, 2.0)
    later = rounds(*(1.05 * value for value in drift), run="b")
    assert not leads(rounds(*drift, run="a"), later, LATENCY)
    assert leads(rounds(1.0, 1.01, 0.99, 1.0, run="a"), rounds(2.0, 2.01, 1.99, 2.0, run="b"), LATENCY)


def test_the_noise_of_the_machine_counts_for_processes_too() -> None:
    first, second = (1.0, 1.001, 0.999, 1.0, 1.0), (1.05, 1.051, 1.049, 1.05, 1.05)
    assert leads(rounds(*first), rounds(*second), LATENCY)
    assert not leads(rounds(*first, floor=0.1), rounds(*second), LATENCY)


def test_few_rounds_take_the_noise_of_the_machine() -> None:
    first, second = (1.0, 1.001), (1.2, 1.201)
    assert not leads(rounds(*first, floor=0.1), rounds(*second, floor=0.1), LATENCY)
    assert leads(rounds(*first, floor=0.01), rounds(*second, floor=0.01), LATENCY)


def test_two_runs_are_two_sessions() -> None:
    first, second = (1.0, 1.001, 0.999, 1.0, 1.0), (1.05, 1.051, 1.049, 1.05, 1.05)
    assert leads(rounds(*first, run="a"), rounds(*second, run="a"), LATENCY)
    assert not leads(rounds(*first, run="a"), rounds(*second, run="b"), LATENCY)


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5), st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5))
def test_two_are_never_ahead_of_each_other(one: list[float], other: list[float]) -> None:
    first, second = rounds(*one), rounds(*other)
    assert not (leads(first, second, LATENCY) and leads(second, first, LATENCY))
    assert not leads(first, first, LATENCY)


# Who counts


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"checked": "none", "note": "not asked for"}, "not verified: not asked for"),
        ({"verification": None}, "not verified"),
        ({"status": "wrong", "reason": "far off"}, "wrong: far off"),
        ({"status": "timeout", "reason": "60 s"}, "timeout: 60 s"),
        ({"cautions": (Caution(PREEMPTED, "m"),)}, "preempted: the number is the scheduler's"),
        ({"quantity": "host_time"}, "latency warm was not measured"),
    ],
)
def test_a_number_that_is_not_to_be_chosen_by_says_why(fields: dict[str, Any], why: str) -> None:
    out = once(0.1, **fields)
    assert out.why_out(LATENCY) == why
    assert ordered([out, once(1.0), once(2.0)], LATENCY) == [1, 2]
    # A number that is too large, if anything, may well belong to the fastest: then nobody wins.
    challenged = why.startswith("preempted")
    assert winner([out, once(1.0), once(2.0)], LATENCY) == (None if challenged else 1)
    assert winner([once(9.0, **fields), once(1.0), once(2.0)], LATENCY) == 1


def test_a_view_and_a_copy_are_in_no_race() -> None:
    assert winner([once(0.1, view=True), once(1.0)], LATENCY) is None
    assert winner([once(0.1, view=True), once(1.0, view=True)], LATENCY) == 0


def test_one_of_several_processes_that_failed_is_enough() -> None:
    mixed = Contender((measured(1.0), measured(1.0, 1, status="wrong", reason="far off")))
    assert mixed.why_out(LATENCY) == "wrong: far off"


def test_a_check_at_a_smaller_size_is_one() -> None:
    assert verified(measured(1.0, checked="scaled"))
    assert not verified(measured(1.0, checked="none"))


def test_a_time_of_nothing_wins_nothing() -> None:
    assert once(0.0).why_out(LATENCY) == "below what can be measured"
    assert winner([once(0.0), once(1.0)], LATENCY) is None


# The winner


def test_the_winner_is_ahead_of_all_others_and_not_of_the_second_alone() -> None:
    """The third is slower on the whole, but so uneven that it may be faster than the first."""
    uneven = once(1.5, around=(0.3, 0.5, 1.0, 1.5, 3.0) * 3)
    assert winner([once(1.0), once(1.3)], LATENCY) == 0
    assert winner([once(1.0), once(1.3), uneven], LATENCY) is None


def test_alone_nobody_wins() -> None:
    assert winner([once(1.0)], LATENCY) is None
    assert winner([], LATENCY) is None
