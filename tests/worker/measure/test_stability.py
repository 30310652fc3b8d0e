"""Each caution, just inside and just outside its limit, with what it says."""

from __future__ import annotations

import os

import pytest

from opmark.schema import Caution, Conditions, Sampling, SensorReading
from opmark.worker.measure.stability import Observed, cautions

RULE = Sampling(
    warmup_min=0.1, warmup_max=1.0, warmup_agreement=0.02,
    sample_time=1e-4, min_samples=20, min_time=0.4, max_time=1.0, rel_ci=0.005,
)  # fmt: skip
FINE = Observed([1e-3] * 100, RULE, "precise", True, 1e-6, 0.1, Conditions(), real_clock=True)


def codes(**changes: object) -> list[str]:
    return [caution.code for caution in cautions(FINE._replace(**changes))]


def only(**changes: object) -> Caution:
    (caution,) = cautions(FINE._replace(**changes))
    return caution


def test_nothing_is_doubted_without_a_reason() -> None:
    assert codes() == []


def test_an_unsettled_warm_up_is_named() -> None:
    caution = only(settled=False)
    assert caution.code == "unsettled"
    assert caution.message == "warm-up ended after 1.00 s without two windows within 2.0 % of each other"


def test_imprecise_is_only_what_ended_by_its_budget() -> None:
    # Half of them a tenth longer, by turns: the interval has both values in it.
    wide = [1e-3, 1.1e-3] * 50
    assert codes(samples=wide, stop="precise") == []
    caution = only(samples=wide, stop="budget")
    assert caution.code == "imprecise"
    assert caution.message == "the median is known to ± 4.8 % after 100 samples, in 100 ms; ± 0.50 % was asked for"


def test_precise_enough_at_the_end_of_the_budget_is_not_imprecise() -> None:
    assert codes(stop="budget") == []
    assert codes(samples=[1e-3, 1.009e-3] * 50, stop="budget") == []


def test_too_few_samples_for_an_interval_are_imprecise_by_an_unknown_amount() -> None:
    assert "3 samples are too few to tell" in only(samples=[1e-3] * 3, stop="budget").message


@pytest.mark.parametrize(("spread", "noisy"), [(0.0674, False), (0.0675, True)])
def test_noise_is_a_tenth_of_the_median(spread: float, noisy: bool) -> None:
    # 1.4826 times the median distance from the median, of three values by turns.
    values = [1.0 - spread, 1.0, 1.0 + spread] * 40
    assert codes(samples=values) == (["noisy"] if noisy else [])


def test_noise_is_given_in_percent() -> None:
    assert only(samples=[0.9, 1.0, 1.1] * 40).message.startswith("samples spread by 15 % of the median; up to 10 %")


@pytest.mark.parametrize(
    ("second", "word"),
    [(1.049, None), (1.051, "slower"), (0.951, None), (0.949, "faster")],
)
def test_drift_is_a_twentieth_between_the_halves(second: float, word: str | None) -> None:
    found = cautions(FINE._replace(samples=[1e-3] * 50 + [1e-3 * second] * 50))
    assert [caution.code for caution in found] == (["drifting"] if word else [])
    assert word is None or f"5.1 % {word} than the first" in found[0].message


def test_samples_that_begin_with_nothing_do_not_show_a_drift() -> None:
    assert "drifting" not in codes(samples=[0.0] * 50 + [1e-3] * 50)


def test_halves_of_fewer_than_ten_samples_do_not_show_a_drift() -> None:
    assert codes(samples=[1.0] * 9 + [1.08] * 9) == []
    assert codes(samples=[1.0] * 10 + [1.08] * 10) == ["drifting"]


@pytest.mark.parametrize(("far", "expected"), [(1.21, ["outliers"]), (1.19, [])])
def test_an_outlier_is_a_fifth_longer_at_least(far: float, expected: list[str]) -> None:
    # A robust deviation of zero: only the share of the median counts.
    assert codes(samples=[1.0] * 94 + [far] * 6) == expected


def test_an_outlier_is_far_out_by_the_spread_of_the_others() -> None:
    # Three values by turns have a robust deviation of 0.05 x 1.4826: 14.826 of those reach to 2.1.
    base = [0.95, 1.0, 1.05] * 31
    assert codes(samples=[*base, *[2.0] * 7]) == []
    assert codes(samples=[*base, *[2.2] * 7]) == ["outliers"]


@pytest.mark.parametrize(("count", "expected"), [(5, []), (6, ["outliers"])])
def test_up_to_a_twentieth_of_outliers_is_usual(count: int, expected: list[str]) -> None:
    assert codes(samples=[1.0] * (100 - count) + [3.0] * count) == expected


def test_fewer_than_ten_samples_have_no_outliers() -> None:
    assert codes(samples=[1.0] * 8 + [3.0]) == []
    assert codes(samples=[1.0] * 9 + [3.0]) == ["outliers"]


def test_short_samples_are_no_outliers() -> None:
    assert codes(samples=[1.0] * 80 + [0.1] * 20, settled=True) == []


def test_outliers_are_counted() -> None:
    message = only(samples=[1e-3] * 90 + [3e-3] * 10).message
    assert message == "10 of 100 samples took longer than 1.20 ms, the median is 1.00 ms"


@pytest.mark.parametrize(("overhead", "expected"), [(1.9e-3, []), (2.1e-3, ["below-overhead"])])
def test_a_call_of_less_than_half_the_overhead_means_nothing(overhead: float, expected: list[str]) -> None:
    assert codes(overhead=overhead) == expected


@pytest.mark.parametrize(("switches", "expected"), [(99, []), (101, ["interrupted"])])
def test_a_hundred_interruptions_a_second_are_usual(switches: int, expected: list[str]) -> None:
    assert codes(samples=FINE.samples * 10, elapsed=1.0, conditions=Conditions(switches=switches)) == expected


def test_a_very_short_measurement_has_no_rate_of_interruptions() -> None:
    many, often = FINE.samples * 10, Conditions(switches=100)
    assert codes(samples=many, elapsed=0.05, conditions=often) == []
    assert codes(samples=many, elapsed=0.051, conditions=often) == ["interrupted"]


def test_samples_of_which_half_are_interrupted_are_the_schedulers() -> None:
    half = len(FINE.samples) // 2
    assert codes(elapsed=1.0, conditions=Conditions(switches=half - 1)) == []
    samples = [1e-3] * 99 + [0.5e-3]
    caution = only(samples=samples, elapsed=1.0, conditions=Conditions(switches=half))
    assert caution.code == "preempted"
    assert "taken away 50 times in 100 samples" in caution.message
    assert "the fastest sample took 500 µs" in caution.message
    assert "do not use this number" in caution.hint


@pytest.mark.parametrize(("seconds", "preempted"), [(0.99e-3, False), (1.01e-3, True)])
def test_a_sample_shorter_than_a_turn_of_the_scheduler_has_not_waited_for_one(seconds: float, preempted: bool) -> None:
    found = codes(elapsed=seconds * len(FINE.samples), conditions=Conditions(switches=10**6))
    assert ("preempted" in found) is preempted


@pytest.mark.parametrize(("switches", "expected"), [(149, []), (151, ["preempted"])])
def test_long_samples_may_be_interrupted_for_a_twentieth_of_their_time(switches: int, expected: list[str]) -> None:
    assert len(FINE.samples) < switches
    assert codes(elapsed=30.0, conditions=Conditions(switches=switches)) == expected


@pytest.mark.parametrize(("waited", "expected"), [(1.49, []), (1.51, ["preempted"])])
def test_what_was_lost_is_the_time_that_threads_have_waited_where_it_is_known(
    waited: float, expected: list[str]
) -> None:
    assert codes(elapsed=30.0, conditions=Conditions(switches=2000, waited=waited)) == expected


def test_what_is_the_schedulers_is_doubted_for_nothing_else() -> None:
    worst = Conditions(switches=100, load=1e6, others=9.0, steal=0.5)
    assert codes(elapsed=10.0, conditions=worst, stop="budget", settled=False, lost=3, overhead=1.0) == ["preempted"]


@pytest.mark.parametrize(("extra", "expected"), [(0.5, []), (0.6, ["loaded"])])
def test_a_load_above_the_number_of_cores_is_named(
    monkeypatch: pytest.MonkeyPatch, extra: float, expected: list[str]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert codes(conditions=Conditions(load=4 + extra)) == expected


@pytest.mark.parametrize(("others", "expected"), [(0.29, []), (0.3, []), (0.31, ["loaded"]), (None, [])])
def test_up_to_a_third_of_a_core_for_others_is_usual(others: float | None, expected: list[str]) -> None:
    assert codes(conditions=Conditions(others=others)) == expected


def test_a_machine_is_loaded_once_and_by_what_is_known_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    caution = only(conditions=Conditions(others=2.0, load=9.0))
    assert caution.message == "other processes kept 2.0 of 4 cores busy; up to 0.3 is usual"
    assert "load of the last minute is 9.0" in only(conditions=Conditions(others=0.1, load=9.0)).message


@pytest.mark.parametrize(("steal", "expected"), [(0.02, []), (0.021, ["stolen"]), (None, [])])
def test_a_fiftieth_of_the_time_may_be_stolen(steal: float | None, expected: list[str]) -> None:
    assert codes(conditions=Conditions(steal=steal)) == expected


def test_what_was_stolen_is_given_in_percent() -> None:
    message = only(conditions=Conditions(steal=0.25)).message
    assert message == "the hypervisor took 25 % of the time; up to 2.0 % is usual"


def test_a_virtual_clock_is_not_disturbed_by_the_machine() -> None:
    busy = Conditions(switches=10**6, load=1e6, others=5.0, steal=0.5)
    assert codes(conditions=busy, elapsed=1.0) == ["preempted"]
    assert codes(conditions=busy, elapsed=1.0, real_clock=False) == []
    assert codes(conditions=busy, elapsed=0.09) == ["interrupted", "loaded", "stolen"]


# The device


def at(*megahertz: float | None, highest: float | None = 1000.0, throttle: tuple[str, ...] = ()) -> Conditions:
    readings = tuple(SensorReading(clock=clock and clock * 1e6, throttle=throttle) for clock in megahertz)
    return Conditions(readings=readings, highest_clock=highest and highest * 1e6)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (at(1000, 971, 1000), []),
        (at(1000, 970, 1000), []),
        (at(1000, 969, 1000), ["clocks-moved"]),
        (at(969, 969), ["clocks-moved"]),  # as steady as it is, it was seen higher before
        (at(None, None), []),
        (at(), []),
        (at(500, highest=None), []),
        (at(1000, None, 969), ["clocks-moved"]),
        (at(990, throttle=("power",)), []),
    ],
)
def test_a_clock_may_be_3_percent_below_the_highest(conditions: Conditions, expected: list[str]) -> None:
    assert codes(conditions=conditions) == expected


def test_a_clock_that_moved_is_named_with_what_held_it_down() -> None:
    message = only(conditions=at(700, 1000, throttle=("temperature", "power"))).message
    assert message == (
        "the clock was between 700 and 1000 MHz, held down by power and temperature; this device was seen at 1000, "
        "and less than 97 % of that is noted"
    )
    assert "held down" not in only(conditions=at(700)).message


def test_a_clock_that_moved_matters_whatever_the_clock_of_the_samples() -> None:
    assert codes(conditions=at(700), real_clock=False) == ["clocks-moved"]


def test_lost_records_are_named_from_the_first_on() -> None:
    assert only(lost=1).message.startswith("the profiler lost records of 1 call; these are no samples, the other 100")
    assert only(lost=2).code == "records-lost"


def test_work_that_belongs_to_no_call_is_named_from_the_first_on() -> None:
    assert only(stray=1).message.startswith("1 activity of the device belong")
    assert only(stray=2).code == "stray-work"


def test_calls_that_ran_nothing_are_named_where_that_would_have_been_seen() -> None:
    idle = {"samples": [0.0] * 100, "overhead": 0.0}
    assert codes(**idle, traces=True) == ["no-kernels"]
    assert codes(**idle, traces=False) == []
    assert codes(samples=[0.0] * 99 + [1e-6], overhead=0.0, traces=True) == []
    assert codes(**idle, traces=True, lost=1) == ["records-lost"]


def test_every_caution_says_what_to_do() -> None:
    everything = FINE._replace(
        samples=([0.8, 1.0, 1.2] * 20 + [30.0] * 10) + [2.0] * 50 + [40.0] * 10, stop="budget", settled=False,
        overhead=10.0, elapsed=0.5, lost=1, stray=1,
        conditions=Conditions(at(500).readings, 1e9, switches=60, others=1.0, steal=0.5),
    )  # fmt: skip
    found = {caution.code: caution for caution in cautions(everything)}
    assert set(found) == {
        "unsettled", "imprecise", "noisy", "drifting", "outliers", "below-overhead", "interrupted", "loaded", "stolen",
        "records-lost", "stray-work", "clocks-moved",
    }  # fmt: skip
    assert all(caution.message and caution.hint for caution in found.values())
