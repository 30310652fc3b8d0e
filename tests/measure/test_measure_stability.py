"""Each caution, just inside and just outside its limit, with what it says."""

from __future__ import annotations

import os

import pytest

from opmark.measure.stability import Machine, Observed, cautions
from opmark.schema import Caution, Sampling

RULE = Sampling(
    warmup_min=0.1, warmup_max=1.0, warmup_agreement=0.02,
    sample_time=1e-4, min_samples=20, min_time=0.4, max_time=1.0, rel_ci=0.005,
)  # fmt: skip
QUIET = Machine(0, 0.0)
FINE = Observed([1e-3] * 100, RULE, "precise", True, 1e-6, 0.1, QUIET, QUIET, True)


def codes(**changes: object) -> list[str]:
    return [caution.code for caution in cautions(FINE._replace(**changes))]


def only(**changes: object) -> Caution:
    (caution,) = cautions(FINE._replace(**changes))
    return caution


def test_nothing_is_doubted_without_a_reason():
    assert codes() == []


def test_an_unsettled_warm_up_is_named():
    caution = only(settled=False)
    assert caution.code == "unsettled"
    assert caution.message == "warm-up ended after 1.00 s without two windows within 2.0 % of each other"


def test_imprecise_is_only_what_ended_by_its_budget():
    # Half of them a tenth longer, by turns: the interval has both values in it.
    wide = [1e-3, 1.1e-3] * 50
    assert codes(samples=wide, stop="precise") == []
    caution = only(samples=wide, stop="budget")
    assert caution.code == "imprecise"
    assert caution.message == "the median is known to ± 4.8 % after 100 samples in 100 ms; 0.50 % was asked for"


def test_precise_enough_at_the_end_of_the_budget_is_not_imprecise():
    assert codes(stop="budget") == []
    assert codes(samples=[1e-3, 1.009e-3] * 50, stop="budget") == []


def test_too_few_samples_for_an_interval_are_imprecise_by_an_unknown_amount():
    assert "± unknown after 3 samples" in only(samples=[1e-3] * 3, stop="budget").message


@pytest.mark.parametrize(("spread", "noisy"), [(0.0674, False), (0.0675, True)])
def test_noise_is_a_tenth_of_the_median(spread, noisy):
    # 1.4826 times the median distance from the median, of three values by turns.
    values = [1.0 - spread, 1.0, 1.0 + spread] * 40
    assert codes(samples=values) == (["noisy"] if noisy else [])


def test_noise_is_given_in_percent():
    assert only(samples=[0.9, 1.0, 1.1] * 40).message.startswith("samples spread by 15 % of the median; up to 10 %")


@pytest.mark.parametrize(
    ("second", "word"),
    [(1.049, None), (1.051, "slower"), (0.951, None), (0.949, "faster")],
)
def test_drift_is_a_twentieth_between_the_halves(second, word):
    found = cautions(FINE._replace(samples=[1e-3] * 50 + [1e-3 * second] * 50))
    assert [caution.code for caution in found] == (["drifting"] if word else [])
    assert word is None or f"5.1 % {word} than the first" in found[0].message


def test_samples_that_begin_with_nothing_do_not_show_a_drift():
    assert "drifting" not in codes(samples=[0.0] * 50 + [1e-3] * 50)


def test_halves_of_fewer_than_ten_samples_do_not_show_a_drift():
    assert codes(samples=[1.0] * 9 + [1.08] * 9) == []
    assert codes(samples=[1.0] * 10 + [1.08] * 10) == ["drifting"]


@pytest.mark.parametrize(("far", "expected"), [(1.21, ["outliers"]), (1.19, [])])
def test_an_outlier_is_a_fifth_longer_at_least(far, expected):
    # A robust deviation of zero: only the share of the median counts.
    assert codes(samples=[1.0] * 94 + [far] * 6) == expected


def test_an_outlier_is_far_out_by_the_spread_of_the_others():
    # Three values by turns have a robust deviation of 0.05 x 1.4826: 14.826 of those reach to 2.1.
    base = [0.95, 1.0, 1.05] * 31
    assert codes(samples=[*base, *[2.0] * 7]) == []
    assert codes(samples=[*base, *[2.2] * 7]) == ["outliers"]


@pytest.mark.parametrize(("count", "expected"), [(5, []), (6, ["outliers"])])
def test_up_to_a_twentieth_of_outliers_is_usual(count, expected):
    assert codes(samples=[1.0] * (100 - count) + [3.0] * count) == expected


def test_fewer_than_ten_samples_have_no_outliers():
    assert codes(samples=[1.0] * 8 + [3.0]) == []
    assert codes(samples=[1.0] * 9 + [3.0]) == ["outliers"]


def test_short_samples_are_no_outliers():
    assert codes(samples=[1.0] * 80 + [0.1] * 20, settled=True) == []


def test_outliers_are_counted():
    message = only(samples=[1e-3] * 90 + [3e-3] * 10).message
    assert message == "10 of 100 samples took longer than 1.20 ms, the median is 1.00 ms"


@pytest.mark.parametrize(("overhead", "expected"), [(1.9e-3, []), (2.1e-3, ["below-overhead"])])
def test_a_call_of_less_than_half_the_overhead_means_nothing(overhead, expected):
    assert codes(overhead=overhead) == expected


@pytest.mark.parametrize(("switches", "expected"), [(99, []), (101, ["interrupted"])])
def test_a_hundred_interruptions_a_second_are_usual(switches, expected):
    before, after = Machine(1000, 0.0), Machine(1000 + switches, 0.0)
    assert codes(samples=FINE.samples * 10, elapsed=1.0, before=before, after=after) == expected


def test_a_very_short_measurement_has_no_rate_of_interruptions():
    many = FINE.samples * 10
    assert codes(samples=many, elapsed=0.05, after=Machine(100, 0.0)) == []
    assert codes(samples=many, elapsed=0.051, after=Machine(100, 0.0)) == ["interrupted"]


def test_samples_that_are_all_interrupted_are_the_schedulers():
    half = len(FINE.samples) // 2
    assert codes(elapsed=10.0, after=Machine(half - 1, 0.0)) == []
    (caution,) = cautions(FINE._replace(elapsed=10.0, after=Machine(half, 1e6), stop="budget", settled=False))
    assert caution.code == "preempted"
    # A sample that is shorter than a turn of the scheduler has not waited for one.
    assert "preempted" not in codes(elapsed=0.9e-3 * len(FINE.samples), after=Machine(10**6, 0.0))
    assert "do not use this number" in caution.hint


@pytest.mark.parametrize(("extra", "expected"), [(0.5, []), (0.6, ["loaded"])])
def test_a_load_above_the_number_of_cores_is_named(monkeypatch, extra, expected):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert codes(before=Machine(0, 4 + extra)) == expected


def test_the_load_after_the_measurement_is_its_own():
    assert codes(after=Machine(0, 1e6)) == []


def test_a_virtual_clock_is_not_disturbed_by_the_machine():
    busy = {"before": Machine(0, 1e6), "after": Machine(10**6, 1e6), "elapsed": 1.0}
    assert codes(**busy) == ["preempted"]
    assert codes(**busy, real_clock=False) == []


def test_every_caution_says_what_to_do():
    everything = FINE._replace(
        samples=([0.8, 1.0, 1.2] * 20 + [30.0] * 10) + [2.0] * 50 + [40.0] * 10, stop="budget", settled=False,
        overhead=10.0, elapsed=0.5, before=Machine(0, 1e6), after=Machine(60, 0.0),
    )  # fmt: skip
    found = {caution.code: caution for caution in cautions(everything)}
    assert set(found) >= {"unsettled", "imprecise", "noisy", "drifting", "below-overhead", "interrupted", "loaded"}
    assert all(caution.message and caution.hint for caution in found.values())


def test_the_machine_is_looked_at_as_it_is():
    before, after = Machine.now(), Machine.now()
    assert after.switches >= before.switches >= 0
    assert before.load >= 0
