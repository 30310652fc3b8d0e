"""The engine with invented timers: what it does is known to the call, whatever the machine is doing."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.measure.engine import measure
from opmark.measure.stability import Machine
from opmark.schema import Measurement, Sampling
from opmark.stats import median, relative_half_width

RULE = Sampling(
    warmup_min=0.0, warmup_max=1.0, warmup_agreement=0.02,
    sample_time=1e-4, min_samples=20, min_time=0.0, max_time=0.5, rel_ci=0.01,
)  # fmt: skip
IDLE = Machine(0, 0.0)


def nothing() -> None:
    return None


class Scripted:
    """A clock that says what the script says.

    `seconds(i)` is what a call takes in the i-th timing; `own(calls)` is what the harness adds to a timing.
    """

    quantity = "latency"

    def __init__(
        self,
        seconds: Callable[[int], float],
        own: Callable[[int], float] = lambda calls: 0.0,
        resolution: float = 1e-9,
        name: str = "virtual",
    ) -> None:
        self._seconds, self._own, self.resolution, self.name = seconds, own, resolution, name
        self.asked: list[int] = []
        """Calls of each timing, in order."""

    def time(self, launch, calls: int) -> float:
        launch()
        self.asked.append(calls)
        return calls * self._seconds(len(self.asked) - 1) + self._own(calls)

    def overhead(self, calls: int) -> float:
        return self._own(calls)

    def growing(self) -> list[int]:
        """The timings that looked for the number of calls."""
        return self.asked[: self.asked.index(self.asked[-1]) + 1]


def steady(seconds: float, **more) -> Scripted:
    return Scripted(lambda i: seconds, **more)


class Phases(Scripted):
    """Warms up at `before` seconds a call; from the first sample on follows `samples` (the last one repeats)."""

    def __init__(self, samples: list[float], before: float = 1e-3, **more) -> None:
        super().__init__(self._next, **more)
        self._samples, self._before, self._base = samples, before, None

    def begin(self) -> None:
        self._base = len(self.asked)

    def _next(self, i: int) -> float:
        return self._before if self._base is None else self._samples[min(i - self._base, len(self._samples) - 1)]


@pytest.fixture
def sampled(monkeypatch) -> Callable[..., Measurement]:
    """Measures with the given durations as samples: the machine is looked at once, right before sampling."""

    def sampled(samples: list[float], rule: Sampling = RULE, machine: Machine = IDLE, **more) -> Measurement:
        timer = Phases(samples, **more)
        states = iter([machine, IDLE])

        def now(cls) -> Machine:
            timer.begin()
            return next(states)

        monkeypatch.setattr(Machine, "now", classmethod(now))
        return measure(nothing, timer, rule)

    return sampled


def codes(found: Measurement) -> list[str]:
    return [caution.code for caution in found.cautions]


# Calls a sample


def test_a_call_that_is_long_enough_is_a_sample_of_its_own():
    assert measure(nothing, steady(1e-3), RULE).calls == 1


def test_short_calls_are_batched_until_a_sample_is_long_enough():
    found = measure(nothing, steady(1e-6), RULE)
    assert 100 <= found.calls <= 111


def test_a_sample_lasts_a_thousand_steps_of_the_clock():
    found = measure(nothing, steady(1e-6, resolution=1e-6), RULE)
    assert 1000 <= found.calls <= 1101


def test_a_call_too_short_for_any_clock_is_batched_a_million_times_and_no_more():
    timer = steady(1e-12)
    assert measure(nothing, timer, replace(RULE, warmup_max=1e-5, max_time=1e-5)).calls == 1_000_000
    assert max(timer.asked) == 1_000_000


def test_the_number_of_calls_never_grows_more_than_tenfold_at_once():
    timer = steady(1e-7)
    measure(nothing, timer, RULE)
    assert timer.growing()[:3] == [1, 10, 100]


@given(st.floats(1e-9, 1.0), st.floats(1e-6, 1e-2))
@settings(deadline=None, max_examples=50)
def test_whatever_a_call_takes_the_batch_is_just_long_enough(seconds, sample_time):
    timer = steady(seconds)
    found = measure(nothing, timer, replace(RULE, sample_time=sample_time))
    tried = timer.growing()
    assert all(before < after <= 10 * before for before, after in pairwise(tried))
    assert found.calls * seconds >= sample_time * (1 - 1e-9) or found.calls == 1_000_000
    assert found.calls == 1 or found.calls <= 1.1 * sample_time / seconds + 1


def test_a_slow_start_makes_the_batch_grow_carefully():
    # By the word of the first call ten would do, by that of the next ones a hundred.
    timer = Scripted(lambda i: 1e-5 if i == 0 else 1e-6)
    assert 100 <= measure(nothing, timer, RULE).calls <= 111


def test_a_slow_first_call_does_not_settle_the_batch():
    # A disturbance, or caches that are still cold: a hundred such calls make a sample afterwards.
    timer = Scripted(lambda i: 1e-3 if i == 0 else 1e-6)
    assert measure(nothing, timer, RULE).calls >= 90


def test_every_sample_has_the_same_number_of_calls():
    timer = steady(1e-6)
    found = measure(nothing, timer, RULE)
    assert set(timer.asked[len(timer.growing()) :]) == {found.calls}


# What is taken off


def test_samples_are_seconds_a_call():
    found = measure(nothing, steady(1e-6), RULE)
    assert found.samples == pytest.approx([1e-6] * len(found.samples))


def test_the_harness_is_taken_off_call_by_call():
    own = lambda calls: 5e-7 + calls * 2e-7  # noqa: E731
    found = measure(nothing, steady(1e-6, own=own), RULE)
    assert found.calls > 1
    assert found.overhead == pytest.approx(5e-7 / found.calls + 2e-7)
    assert found.samples == pytest.approx([1e-6] * len(found.samples))


def test_less_than_nothing_counts_as_nothing():
    timer = Scripted(lambda i: 1e-4)
    timer.overhead = lambda calls: 2e-4 * calls
    found = measure(nothing, timer, RULE)
    assert set(found.samples) == {0.0}
    assert "below-overhead" in codes(found)


# How long it goes on


def test_steady_samples_stop_as_soon_as_there_are_enough():
    found = measure(nothing, steady(1e-3), RULE)
    assert (found.stop, len(found.samples)) == ("precise", 20)


def test_the_shortest_time_is_kept():
    found = measure(nothing, steady(1e-3), replace(RULE, min_time=0.1))
    assert found.stop == "precise"
    assert 100 <= len(found.samples) <= 111


def test_the_budget_is_not_overdrawn_by_more_than_a_sample(sampled):
    # Two values by turns never get precise.
    found = sampled([1e-3 * (1 + i % 2) for i in range(2000)], replace(RULE, rel_ci=1e-6))
    assert found.stop == "budget"
    assert RULE.max_time <= sum(found.samples) < RULE.max_time + 2e-3


def test_what_stopped_as_precise_is_precise_in_what_is_stored(sampled):
    # Nine tenths of each timing are the harness: what is left spreads ten times as much.
    generator = np.random.default_rng(0)
    samples = (1e-4 * (1 + 0.05 * generator.standard_normal(20_000))).tolist()
    found = sampled(samples, replace(RULE, max_time=10.0), own=lambda calls: 9e-4 * calls, before=1e-4)
    assert found.stop == "precise"
    assert relative_half_width(found.samples) <= RULE.rel_ci


def test_samples_are_kept_in_the_order_taken_outliers_included(sampled):
    script = [1e-3] * 9 + [7e-3] + [1e-3] * 10
    assert sampled(script).samples[:20] == pytest.approx(script)


def test_warm_up_is_counted_and_kept_apart():
    timer = steady(1e-3)
    found = measure(nothing, timer, replace(RULE, warmup_min=0.05))
    assert len(timer.asked) == found.warmup_calls + len(found.samples)
    assert found.warmup_time == pytest.approx(found.warmup_calls * 1e-3)
    assert 0.05 <= found.warmup_time < 0.07


def test_warm_up_goes_on_until_two_windows_agree():
    timer = Scripted(lambda i: 1e-3 * (1 + 10 * 0.9**i))
    found = measure(nothing, timer, RULE)
    assert median(found.samples) < 1.1e-3
    assert "unsettled" not in codes(found)


def test_the_search_for_the_batch_is_warm_up_too():
    timer = steady(1e-6)
    found = measure(nothing, timer, RULE)
    assert found.warmup_calls == sum(timer.asked) - found.calls * len(found.samples)


@pytest.mark.parametrize(
    ("seconds", "timings"),
    [
        (2.0, 5),  # over both budgets: one to know it, one to agree, three for a median
        (6.0, 3),  # more than ten times over: one sample has to do
        (100.0, 3),
    ],
)
def test_a_long_call_is_not_repeated_needlessly(seconds, timings):
    timer = steady(seconds)
    found = measure(nothing, timer, RULE)
    assert timer.asked == [1] * timings
    assert found.stop == "budget"
    assert len(found.samples) == timings - 2


def test_a_call_as_long_as_a_share_of_the_warm_up_gets_short_windows():
    # Windows of ten would take two seconds each, twice the time allowed for all of them.
    timer = steady(0.2)
    found = measure(nothing, timer, RULE)
    assert found.warmup_calls == 2


def test_the_kind_of_measurement_is_written_down():
    found = measure(nothing, steady(1e-3), RULE)
    assert (found.quantity, found.cache, found.timer) == ("latency", "warm", "virtual")


# What it leaves behind


@pytest.fixture
def collector():
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.usefixtures("collector")
def test_the_collector_rests_while_measuring_and_is_left_as_it_was(on):
    (gc.enable if on else gc.disable)()
    seen = set()
    measure(lambda: seen.add(gc.isenabled()), steady(1e-3), RULE)
    assert seen == {False}
    assert gc.isenabled() is on


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("dies_at", [1, 8, 25])
@pytest.mark.usefixtures("collector")
def test_the_collector_is_left_as_it_was_even_when_the_launch_raises(on, dies_at):
    (gc.enable if on else gc.disable)()
    calls = iter(range(1, 1000))

    def launch() -> None:
        if next(calls) == dies_at:
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        measure(launch, steady(1e-3), RULE)
    assert gc.isenabled() is on


# What it doubts

LONG = replace(RULE, min_samples=100)


def test_a_steady_measurement_is_not_doubted(sampled):
    assert codes(sampled([1e-3], LONG)) == []


def test_a_little_noise_is_not_doubted(sampled):
    generator = np.random.default_rng(1)
    assert codes(sampled((1e-3 * (1 + 0.03 * generator.standard_normal(500))).tolist(), LONG)) == []


def test_samples_that_change_half_way_are_drifting(sampled):
    assert codes(sampled([1e-3] * 50 + [1.08e-3] * 50, replace(LONG, rel_ci=0.05))) == ["drifting"]


def test_samples_that_spread_are_noisy(sampled):
    generator = np.random.default_rng(2)
    script = (1e-3 * (1 + 0.15 * generator.uniform(-1.7, 1.7, 1000))).tolist()
    assert codes(sampled(script, replace(LONG, rel_ci=0.05))) == ["noisy"]


def test_samples_that_are_interrupted_regularly_have_outliers(sampled):
    assert codes(sampled([1e-3 if i % 10 else 3e-3 for i in range(500)], LONG)) == ["outliers"]


def test_a_warm_up_that_never_agrees_is_unsettled():
    # Each window is half as long again as the last, until the time for warming up is over.
    timer = Scripted(lambda i: 1e-4 * 1.01 ** min(i, 450))
    found = measure(nothing, timer, replace(RULE, warmup_max=0.05))
    assert "unsettled" in codes(found)


def test_a_budget_spent_too_early_is_imprecise(sampled):
    found = sampled([1e-3 * (1 + i % 2 / 10) for i in range(1000)], replace(LONG, rel_ci=0.001))
    assert found.stop == "budget"
    assert codes(found) == ["imprecise"]


def test_a_budget_spent_on_steady_samples_is_not_imprecise(sampled):
    found = sampled([1e-3], replace(LONG, min_samples=10_000))
    assert (found.stop, codes(found)) == ("budget", [])


def test_a_call_shorter_than_the_harness_is_below_overhead():
    found = measure(nothing, steady(1e-7, own=lambda calls: 3e-7 * calls), RULE)
    assert codes(found) == ["below-overhead"]


def test_the_machine_is_asked_only_where_the_clock_is_real(sampled):
    busy = Machine(0, 1e6)
    assert codes(sampled([1e-3], machine=busy)) == []
    assert codes(sampled([1e-3], machine=busy, name="monotonic")) == ["loaded"]
