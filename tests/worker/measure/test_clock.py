"""The host's clock: exactly with a clock that only counts, and in proportion with the processor time of this
thread."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from opmark.plugin import Launch, Timer
from opmark.worker.measure import clock
from opmark.worker.measure.clock import host_timers


@pytest.fixture
def counter(fake_time: Any) -> Any:
    """A clock that moves on by 25 ns when it is read, and by what launches say they take."""
    return fake_time(clock)


def plain() -> Timer:
    return host_timers(None)["latency"]


def net(timer: Timer, launch: Launch, calls: int) -> float:
    return timer.time(launch, calls) - timer.overhead(calls)


def test_a_host_that_is_done_when_it_returns_has_no_time_of_its_own_beside_the_latency() -> None:
    assert set(host_timers(None)) == {"latency", "throughput"}
    assert set(host_timers(lambda: None)) == {"latency", "host_time", "throughput"}


def test_the_resolution_is_the_smallest_step(counter: Any) -> None:
    assert plain().resolution == pytest.approx(25e-9)


def test_a_disturbance_now_and_then_does_not_show_in_what_the_clock_says_of_itself(counter: Any) -> None:
    undisturbed, readings = counter.perf_counter_ns, iter(range(10**6))

    def disturbed() -> int:
        counter.now += 5000 if next(readings) % 7 == 0 else 0
        return undisturbed()

    counter.perf_counter_ns = disturbed
    timer = plain()
    assert timer.resolution == pytest.approx(25e-9)
    assert timer.overhead(1) == timer.overhead(1000) == pytest.approx(25e-9)


def test_the_cost_of_a_call_is_apart_from_the_cost_of_a_sample(counter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = counter.work(40e-9)
    monkeypatch.setattr(clock, "operator", SimpleNamespace(truth=lambda value: empty()))
    timer = plain()
    assert timer.overhead(1) == pytest.approx(65e-9)
    assert timer.overhead(10) == pytest.approx(425e-9)


@pytest.mark.parametrize("quantity", ["latency", "host_time", "throughput"])
def test_what_is_left_of_a_call_is_exactly_what_it_took(counter: Any, quantity: str) -> None:
    assert net(host_timers(lambda: None)[quantity], counter.work(300e-9), 1) == pytest.approx(300e-9)


@pytest.mark.parametrize("calls", [1, 7, 1000])
@pytest.mark.parametrize("quantity", ["latency", "throughput"])
def test_what_is_left_of_many_calls_is_exactly_what_they_took(counter: Any, quantity: str, calls: int) -> None:
    assert net(host_timers(None)[quantity], counter.work(300e-9), calls) == pytest.approx(calls * 300e-9)


def test_the_cost_of_reading_the_clock_is_a_samples_own(counter: Any) -> None:
    timer = plain()
    assert timer.overhead(1) == timer.overhead(1000) == pytest.approx(25e-9)


@pytest.mark.parametrize(
    ("quantity", "nanoseconds"),
    [("latency", 5 * (300 + 1000)), ("throughput", 5 * 300 + 1000), ("host_time", 5 * (300 + 25) - 25)],
)
def test_waiting_is_a_part_of_every_call_or_of_all_together_or_of_none(
    counter: Any, quantity: str, nanoseconds: int
) -> None:
    timer = host_timers(counter.work(1e-6))[quantity]
    assert net(timer, counter.work(300e-9), 5) == pytest.approx(nanoseconds * 1e-9)


@pytest.mark.parametrize("quantity", ["latency", "throughput", "host_time"])
def test_work_from_before_is_waited_for_and_not_counted(counter: Any, quantity: str) -> None:
    backlog = [50e-6]

    def synchronize() -> None:
        counter.pass_(backlog.pop() if backlog else 0)

    assert net(host_timers(synchronize)[quantity], counter.work(300e-9), 1) == pytest.approx(300e-9)
    assert not backlog


@pytest.mark.parametrize(
    ("quantity", "order"),
    [
        ("latency", "wait call wait call wait call wait"),
        ("host_time", "wait call wait call wait call wait"),
        ("throughput", "wait call call call wait"),
    ],
)
def test_the_device_is_idle_before_and_after(quantity: str, order: str) -> None:
    seen: list[str] = []
    timer = host_timers(lambda: seen.append("wait"))[quantity]
    assert seen == [], "making the clock waits for nothing"
    timer.time(lambda: seen.append("call"), 3)
    assert seen == order.split()


def test_without_a_device_nothing_is_waited_for() -> None:
    seen: list[str] = []
    plain().time(lambda: seen.append("call"), 4)
    assert seen == ["call"] * 4


def test_what_the_harness_costs_is_asked_once_for_all_timers(counter: Any) -> None:
    host_timers(None)
    asked = counter.now
    host_timers(lambda: None)
    assert counter.now == asked


@pytest.fixture
def thread_clock(fake_time: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Timer]:
    """Asks the machine anew with each call. What it says is the processor time of this thread: while others have the
    core, that stands still."""
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=time.thread_time_ns))

    def anew() -> Timer:
        clock._own_cost.cache_clear()
        clock._resolution.cache_clear()
        return plain()

    return anew


def test_the_overhead_grows_with_the_calls_and_is_never_negative(thread_clock: Callable[[], Timer]) -> None:
    timer = thread_clock()
    assert 0 <= timer.overhead(1) < timer.overhead(10) < timer.overhead(1000)


def test_the_overhead_is_small_against_real_work(thread_clock: Callable[[], Timer]) -> None:
    timer = thread_clock()
    seconds = min(timer.time(lambda: sum(range(3000)), 20) for _ in range(20))
    assert timer.overhead(20) < 0.05 * seconds


def test_the_overhead_is_what_an_empty_launch_takes(thread_clock: Callable[[], Timer]) -> None:
    # Implementations are partial calls of a framework's function; this one has a function that does nothing.
    empty = partial(operator.truth, None)
    overheads, seen = [], []
    for _ in range(5):  # by turns, so that a busy moment meets both
        timer = thread_clock()
        overheads.append(timer.overhead(1000))
        seen.append(min(timer.time(empty, 1000) for _ in range(20)))
    assert 0.5 * min(seen) < min(overheads) < 1.5 * min(seen)


def test_twice_the_work_takes_about_twice_the_time(thread_clock: Callable[[], Timer]) -> None:
    timer = thread_clock()
    pairs = [[net(timer, lambda n=n: sum(range(n)), 10) for n in (4000, 8000)] for _ in range(40)]
    once, twice = (min(times) for times in zip(*pairs, strict=True))
    assert twice / once == pytest.approx(2, rel=0.25)


def test_the_clock_is_finer_than_a_sample_needs(fake_time: Any) -> None:
    # A thousand steps make a sample; a clock of microseconds would need a millisecond for each.
    assert 0 < plain().resolution < 1e-5


def test_it_says_what_it_is() -> None:
    assert {timer.name for timer in host_timers(lambda: None).values()} == {"monotonic"}
