"""The engine with invented clocks: what it does is known to the call, whatever the machine is doing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.plugin import Launch
from opmark.schema import Conditions, Measurement, Sampling, SensorReading
from opmark.stats import relative_half_width
from opmark.worker.measure import clock, engine, sampler
from opmark.worker.measure.cache import LaunchSource, warm
from opmark.worker.measure.clock import host_timers
from opmark.worker.measure.engine import measure
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.sampler import HostSampler, TraceSampler

RULE = Sampling(
    warmup_min=0.0, warmup_max=1.0, warmup_agreement=0.02,
    sample_time=1e-4, min_samples=20, min_time=0.0, max_time=0.5, rel_ci=0.01,
)  # fmt: skip


QUIET = Conditions()


def nothing() -> None:
    return None


def run(
    timer: Any,
    rule: Sampling = RULE,
    launch: Launch = nothing,
    quantity: str = "latency",
    watch: ConditionsMonitor | None = None,
) -> Measurement:
    (found,) = measure(HostSampler(quantity, timer, warm(launch), batches=True), rule, watch or ConditionsMonitor(None))
    return found


@pytest.fixture
def sampled(scripted: Any, told_watch: Any) -> Callable[..., Measurement]:
    """Measures with the given durations as samples (the last one repeats), after a warm-up at `before` seconds."""

    def sampled(
        samples: list[float], rule: Sampling = RULE, conditions: Conditions = QUIET, before: float = 1e-3,
        **more: Any,
    ) -> Measurement:  # fmt: skip
        begun: list[int] = []
        timer = scripted(lambda i: samples[min(i - begun[0], len(samples) - 1)] if begun else before, **more)
        return run(timer, rule, watch=told_watch(conditions, lambda: begun.append(len(timer.asked))))

    return sampled


def codes(found: Measurement) -> list[str]:
    return [caution.code for caution in found.cautions]


# Calls a sample


def test_a_call_that_is_long_enough_is_a_sample_of_its_own(scripted: Any) -> None:
    assert run(scripted.steady(1e-3)).calls == 1


def test_short_calls_are_batched_until_a_sample_is_long_enough(scripted: Any) -> None:
    found = run(scripted.steady(1e-6))
    assert 100 <= found.calls <= 111


def test_a_sample_lasts_a_thousand_steps_of_the_clock(scripted: Any) -> None:
    found = run(scripted.steady(1e-6, resolution=1e-6))
    assert 1000 <= found.calls <= 1101


def test_a_call_too_short_for_any_clock_is_batched_a_million_times_and_no_more(scripted: Any) -> None:
    timer = scripted.steady(1e-12)
    assert run(timer, replace(RULE, warmup_max=1e-5, max_time=1e-5)).calls == 1_000_000
    assert max(timer.asked) == 1_000_000


def test_the_number_of_calls_never_grows_more_than_tenfold_at_once(scripted: Any) -> None:
    timer = scripted.steady(1e-7)
    run(timer)
    assert timer.growing()[:3] == [1, 10, 100]


@given(st.floats(1e-9, 1.0), st.floats(1e-6, 1e-2))
@settings(deadline=None, max_examples=50)
def test_whatever_a_call_takes_the_batch_is_just_long_enough(scripted: Any, seconds: float, sample_time: float) -> None:
    timer = scripted.steady(seconds)
    found = run(timer, replace(RULE, sample_time=sample_time))
    tried = timer.growing()
    assert all(before < after <= 10 * before for before, after in pairwise(tried))
    assert found.calls * seconds >= sample_time * (1 - 1e-9) or found.calls == 1_000_000
    assert found.calls == 1 or found.calls <= 1.1 * sample_time / seconds + 1


def test_a_slow_start_makes_the_batch_grow_carefully(scripted: Any) -> None:
    # By the word of the first call ten would do, by that of the next ones a hundred.
    timer = scripted(lambda i: 1e-5 if i == 0 else 1e-6)
    assert 100 <= run(timer).calls <= 111


def test_a_slow_first_call_does_not_settle_the_batch(scripted: Any) -> None:
    # A disturbance, or caches that are still cold: a hundred such calls make a sample afterwards.
    timer = scripted(lambda i: 1e-3 if i == 0 else 1e-6)
    assert run(timer).calls >= 90


def test_every_sample_has_the_same_number_of_calls(scripted: Any) -> None:
    timer = scripted.steady(1e-6)
    found = run(timer)
    assert set(timer.asked[len(timer.growing()) :]) == {found.calls}


# What is taken off


def test_samples_are_seconds_a_call(scripted: Any) -> None:
    found = run(scripted.steady(1e-6))
    assert found.samples == pytest.approx([1e-6] * len(found.samples))


def test_the_harness_is_taken_off_call_by_call(scripted: Any) -> None:
    own = lambda calls: 5e-7 + calls * 2e-7  # noqa: E731
    found = run(scripted.steady(1e-6, own=own))
    assert found.calls > 1
    assert found.overhead == pytest.approx(5e-7 / found.calls + 2e-7)
    assert found.samples == pytest.approx([1e-6] * len(found.samples))


def test_less_than_nothing_counts_as_nothing(scripted: Any) -> None:
    timer = scripted(lambda i: 1e-4)
    timer.overhead = lambda calls: 2e-4 * calls
    found = run(timer)
    assert set(found.samples) == {0.0}
    assert "below-overhead" in codes(found)


# How long it goes on


def test_steady_samples_stop_as_soon_as_there_are_enough(scripted: Any) -> None:
    found = run(scripted.steady(1e-3))
    assert (found.stop, len(found.samples)) == ("precise", 20)


def test_the_shortest_time_is_kept(scripted: Any) -> None:
    found = run(scripted.steady(1e-3), replace(RULE, min_time=0.1))
    assert found.stop == "precise"
    assert 100 <= len(found.samples) <= 111


def test_the_budget_is_not_overdrawn_by_more_than_a_sample(sampled: Callable[..., Measurement]) -> None:
    # Two values by turns never get precise.
    found = sampled([1e-3 * (1 + i % 2) for i in range(2000)], replace(RULE, rel_ci=1e-6))
    assert found.stop == "budget"
    assert RULE.max_time <= sum(found.samples) < RULE.max_time + 2e-3


def test_what_stopped_as_precise_is_precise_in_what_is_stored(sampled: Callable[..., Measurement]) -> None:
    # Nine tenths of each timing are the harness: what is left spreads ten times as much.
    generator = np.random.default_rng(0)
    samples = (1e-4 * (1 + 0.05 * generator.standard_normal(20_000))).tolist()
    found = sampled(samples, replace(RULE, max_time=10.0), own=lambda calls: 9e-4 * calls, before=1e-4)
    assert found.stop == "precise"
    assert relative_half_width(found.samples) <= RULE.rel_ci


def test_samples_are_kept_in_the_order_taken_outliers_included(sampled: Callable[..., Measurement]) -> None:
    script = [1e-3] * 9 + [7e-3] + [1e-3] * 10
    assert sampled(script).samples[:20] == pytest.approx(script)


def test_warm_up_is_counted_and_kept_apart(scripted: Any) -> None:
    timer = scripted.steady(1e-3)
    found = run(timer, replace(RULE, warmup_min=0.05))
    assert len(timer.asked) == found.warmup_calls + len(found.samples)
    assert found.warmup_time == pytest.approx(found.warmup_calls * 1e-3)
    assert 0.05 <= found.warmup_time < 0.07


def test_warm_up_goes_on_until_two_windows_agree(scripted: Any) -> None:
    timer = scripted(lambda i: 1e-3 * (1 + 10 * 0.9**i))
    found = run(timer)
    assert median(found.samples) < 1.1e-3
    assert "unsettled" not in codes(found)


def test_the_search_for_the_batch_is_warm_up_too(scripted: Any) -> None:
    timer = scripted.steady(1e-6)
    found = run(timer)
    assert found.warmup_calls == sum(timer.asked) - found.calls * len(found.samples)


@pytest.mark.parametrize(
    ("seconds", "timings"),
    [
        (2.0, 5),  # over both budgets: one to know it, one to agree, three for a median
        (6.0, 3),  # more than ten times over: one sample has to do
        (100.0, 3),
    ],
)
def test_a_long_call_is_not_repeated_needlessly(scripted: Any, seconds: float, timings: int) -> None:
    timer = scripted.steady(seconds)
    found = run(timer)
    assert timer.asked == [1] * timings
    assert found.stop == "budget"
    assert len(found.samples) == timings - 2


def test_a_call_as_long_as_a_share_of_the_warm_up_gets_short_windows(scripted: Any) -> None:
    # Windows of ten would take two seconds each, twice the time allowed for all of them.
    timer = scripted.steady(0.2)
    found = run(timer)
    assert found.warmup_calls == 2


def test_what_the_search_for_the_batch_showed_is_the_first_window(scripted: Any) -> None:
    # Both batches of it took as long as the next window: a second window would tell nothing new.
    timer = scripted.steady(1e-6)
    found = run(timer)
    assert found.warmup_calls == sum(timer.growing()) + found.calls + 10 * found.calls


def test_the_machine_is_watched_from_the_first_sample_to_the_last(scripted: Any, told_watch: Any) -> None:
    timer = scripted.steady(1e-3)
    begun: list[int] = []
    watch = told_watch(begins=lambda: begun.append(sum(timer.asked)))
    found = run(timer, watch=watch)
    assert begun == [found.warmup_calls]
    assert watch.looks == list(range(1, 21))
    assert watch.ended == [20]


def test_the_conditions_are_stored_with_the_samples(sampled: Callable[..., Measurement]) -> None:
    conditions = Conditions(readings=(SensorReading(clock=1e9),), highest_clock=1e9)
    assert sampled([1e-3], conditions=conditions).conditions == conditions


def test_the_kind_of_measurement_is_written_down(scripted: Any) -> None:
    supply = LaunchSource([nothing], cache="cold", control="by a spell")
    (found,) = measure(
        HostSampler("latency", scripted.steady(1e-3), supply, batches=True), RULE, ConditionsMonitor(None)
    )
    assert (found.quantity, found.cache, found.timer) == ("latency", "cold", "virtual")
    assert found.control == "by a spell"
    assert found.kernels == ()


# As often as the user says


@pytest.mark.parametrize("samples", [1, 9, 23])
@pytest.mark.parametrize("warmup", [0, 7])
def test_calls_are_made_exactly_as_often_as_asked_for(scripted: Any, warmup: int, samples: int) -> None:
    made: list[int] = []
    timer = scripted(lambda i: 1e-7 * (1 + i % 2))
    found = run(timer, replace(RULE, warmup=warmup, samples=samples), lambda: made.append(len(timer.asked)))
    assert timer.asked == [1] * (warmup + samples)
    assert len(made) == warmup + samples
    assert found.warmup_samples == pytest.approx([1e-7 * (1 + i % 2) for i in range(warmup)]), "warm-up comes first"
    assert (found.stop, found.calls, found.warmup_calls, len(found.samples)) == ("count", 1, warmup, samples)


def test_a_count_of_samples_is_kept_however_long_they_take(scripted: Any) -> None:
    found = run(scripted.steady(100.0), replace(RULE, warmup=0, samples=12))
    assert (found.stop, len(found.samples)) == ("count", 12)


def test_a_count_of_samples_leaves_the_warm_up_to_what_it_shows(scripted: Any) -> None:
    timer = scripted(lambda i: 1e-3 * (1 + 10 * 0.9**i))
    found = run(timer, replace(RULE, samples=5))
    assert median(found.samples) < 1.1e-3
    assert found.warmup_calls > 20
    assert len(found.samples) == 5


def test_a_count_of_warm_up_leaves_the_samples_to_what_they_show(scripted: Any) -> None:
    timer = scripted.steady(1e-6)
    found = run(timer, replace(RULE, warmup=3))
    assert (found.stop, len(found.samples)) == ("precise", 20)
    assert found.calls >= 100
    assert found.warmup_calls == sum(timer.asked) - found.calls * len(found.samples)
    assert found.warmup_samples == pytest.approx([1e-6] * 3)


def test_a_fixed_warm_up_is_never_unsettled(scripted: Any) -> None:
    timer = scripted(lambda i: 1e-3 * 2**i)
    assert "unsettled" not in codes(run(timer, replace(RULE, warmup=2, samples=4)))


def test_the_time_of_a_fixed_warm_up_is_known(fake_time: Any) -> None:
    work = fake_time(clock, engine, sampler).work(1e-3)
    found = run(host_timers(None)["latency"], replace(RULE, warmup=10, samples=5), work)
    assert found.warmup_time == pytest.approx(10e-3, rel=0.01)


def test_so_many_back_to_back_calls_are_one_sample(scripted: Any) -> None:
    timer = scripted.steady(1e-6)
    found = run(timer, replace(RULE, warmup=2, samples=30), quantity="throughput")
    assert timer.asked == [1, 1, 30], "each call of the warm-up, then all of them in one stretch"
    assert found.samples == pytest.approx([1e-6])
    assert (found.stop, found.calls) == ("count", 30)


# More than one quantity


def traced(device: Any, launch: Launch, rule: Sampling = RULE) -> list[Measurement]:
    return measure(TraceSampler(device, warm(launch)), rule, ConditionsMonitor(None))


def test_one_measurement_a_quantity_from_the_same_calls(device: Any, kernels: Callable[..., Launch]) -> None:
    busy, span = traced(device, kernels(2e-6, 3e-6))
    assert (busy.quantity, span.quantity) == ("device_time", "device_span")
    assert busy.samples == pytest.approx([5e-6] * len(busy.samples))
    assert span.samples == pytest.approx([5.5e-6] * len(busy.samples))
    assert busy.conditions == span.conditions
    assert (busy.timer, busy.calls, busy.overhead) == ("told", 1, 0.0)


def test_kernels_belong_to_the_time_that_is_their_sum(device: Any, kernels: Callable[..., Launch]) -> None:
    busy, span = traced(device, kernels(2e-6, 3e-6))
    assert sum(kernel.time for kernel in busy.kernels) == pytest.approx(median(busy.samples))
    assert span.kernels == ()


@pytest.mark.parametrize("samples", [1, 7, 120])
def test_a_count_of_samples_is_exact_where_many_are_taken_at_once(
    device: Any, kernels: Callable[..., Launch], samples: int
) -> None:
    device.lost = lambda trace, call: trace > 0 and call % 3 == 1
    for found in traced(device, kernels(2e-6), replace(RULE, warmup=0, samples=samples)):
        assert (found.stop, len(found.samples)) == ("count", samples)


def test_what_the_profiler_lost_is_no_sample_and_is_said(device: Any, kernels: Callable[..., Launch]) -> None:
    device.lost = lambda trace, call: call % 3 == 1
    found, _ = traced(device, kernels(2e-6))
    assert found.samples == pytest.approx([2e-6] * len(found.samples))
    assert "records-lost" in codes(found)


def test_calls_that_run_nothing_end_soon_and_are_doubted(device: Any, kernels: Callable[..., Launch]) -> None:
    found, _ = traced(device, kernels())
    assert found.stop == "precise"
    assert set(found.samples) == {0.0}
    assert set(codes(found)) - {"loaded"} == {"no-kernels"}, "others may be using this machine"


# What it leaves behind


@pytest.fixture
def collector() -> Iterator[None]:
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.usefixtures("collector")
def test_the_collector_rests_while_measuring_and_is_left_as_it_was(scripted: Any, on: bool) -> None:
    (gc.enable if on else gc.disable)()
    seen = set()
    run(scripted.steady(1e-3), launch=lambda: seen.add(gc.isenabled()))
    assert seen == {False}
    assert gc.isenabled() is on


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("dies_at", [1, 8, 25])
@pytest.mark.usefixtures("collector")
def test_the_collector_is_left_as_it_was_even_when_the_launch_raises(scripted: Any, on: bool, dies_at: int) -> None:
    (gc.enable if on else gc.disable)()
    calls = iter(range(1, 1000))

    def launch() -> None:
        if next(calls) == dies_at:
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        run(scripted.steady(1e-3), launch=launch)
    assert gc.isenabled() is on


# What it doubts

LONG = replace(RULE, min_samples=100)


def test_a_steady_measurement_is_not_doubted(sampled: Callable[..., Measurement]) -> None:
    assert codes(sampled([1e-3], LONG)) == []


def test_a_little_noise_is_not_doubted(sampled: Callable[..., Measurement]) -> None:
    generator = np.random.default_rng(1)
    assert codes(sampled((1e-3 * (1 + 0.03 * generator.standard_normal(500))).tolist(), LONG)) == []


def test_samples_that_change_half_way_are_drifting(sampled: Callable[..., Measurement]) -> None:
    assert codes(sampled([1e-3] * 50 + [1.08e-3] * 50, replace(LONG, samples=100))) == ["drifting"]


def test_samples_that_spread_are_noisy(sampled: Callable[..., Measurement]) -> None:
    generator = np.random.default_rng(2)
    script = (1e-3 * (1 + 0.15 * generator.uniform(-1.7, 1.7, 1000))).tolist()
    assert codes(sampled(script, replace(LONG, rel_ci=0.05))) == ["noisy"]


def test_samples_that_are_interrupted_regularly_have_outliers(sampled: Callable[..., Measurement]) -> None:
    assert codes(sampled([1e-3 if i % 10 else 3e-3 for i in range(500)], LONG)) == ["outliers"]


def test_a_warm_up_that_never_agrees_is_unsettled(scripted: Any) -> None:
    # Each window is half as long again as the last, until the time for warming up is over.
    timer = scripted(lambda i: 1e-4 * 1.01 ** min(i, 450))
    found = run(timer, replace(RULE, warmup_max=0.05))
    assert "unsettled" in codes(found)


def test_a_budget_spent_too_early_is_imprecise(sampled: Callable[..., Measurement]) -> None:
    found = sampled([1e-3 * (1 + i % 2 / 10) for i in range(1000)], replace(LONG, rel_ci=0.001))
    assert found.stop == "budget"
    assert codes(found) == ["imprecise"]


def test_a_budget_spent_on_steady_samples_is_not_imprecise(sampled: Callable[..., Measurement]) -> None:
    found = sampled([1e-3], replace(LONG, min_samples=10_000))
    assert (found.stop, codes(found)) == ("budget", [])


def test_a_call_shorter_than_the_harness_is_below_overhead(scripted: Any) -> None:
    found = run(scripted.steady(1e-7, own=lambda calls: 3e-7 * calls))
    assert codes(found) == ["below-overhead"]


def test_the_machine_is_asked_only_where_the_clock_is_real(sampled: Callable[..., Measurement]) -> None:
    busy = Conditions(load=1e6)
    assert codes(sampled([1e-3], conditions=busy)) == []
    assert codes(sampled([1e-3], conditions=busy, name="monotonic")) == ["loaded"]
