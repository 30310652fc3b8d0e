"""The host's clock: exactly with a clock that only counts, and in proportion with the real one."""

from __future__ import annotations

import operator
from functools import partial
from types import SimpleNamespace

import pytest

from opmark.measure import clock
from opmark.measure.clock import WallClock


class Counter:
    """A clock that moves on by one step when it is read, and by what launches say they take."""

    def __init__(self, step: int) -> None:
        self.now, self.step = 0, step

    def read(self) -> int:
        self.now += self.step
        return self.now

    def work(self, nanoseconds: int):
        def launch() -> None:
            self.now += nanoseconds

        return launch


@pytest.fixture
def counter(monkeypatch) -> Counter:
    counter = Counter(step=25)
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=counter.read))
    return counter


def net(timer: WallClock, launch, calls: int) -> float:
    return timer.time(launch, calls) - timer.overhead(calls)


def test_the_resolution_is_the_smallest_step(counter):
    assert WallClock().resolution == pytest.approx(25e-9)


def test_a_disturbance_now_and_then_does_not_show_in_what_the_clock_says_of_itself(counter):
    plain, readings = counter.read, iter(range(10**6))

    def disturbed() -> int:
        counter.now += 5000 if next(readings) % 7 == 0 else 0
        return plain()

    clock.time.perf_counter_ns = disturbed
    timer = WallClock()
    assert timer.resolution == pytest.approx(25e-9)
    assert timer.overhead(1) == timer.overhead(1000) == pytest.approx(25e-9)


def test_the_cost_of_a_call_is_apart_from_the_cost_of_a_sample(counter, monkeypatch):
    empty = counter.work(40)
    monkeypatch.setattr(clock, "operator", SimpleNamespace(truth=lambda value: empty()))
    timer = WallClock()
    assert timer.overhead(1) == pytest.approx(65e-9)
    assert timer.overhead(10) == pytest.approx(425e-9)


@pytest.mark.parametrize("calls", [1, 7, 1000])
def test_what_is_left_is_exactly_what_the_launches_took(counter, calls):
    assert net(WallClock(), counter.work(300), calls) == pytest.approx(calls * 300e-9)


def test_the_cost_of_reading_the_clock_is_a_samples_own(counter):
    timer = WallClock()
    assert timer.overhead(1) == timer.overhead(1000) == pytest.approx(25e-9)


def test_waiting_is_a_part_of_every_call(counter):
    timer = WallClock(counter.work(1000))
    assert net(timer, counter.work(300), 5) == pytest.approx(5 * 1300e-9)


def test_work_from_before_is_waited_for_and_not_counted(counter):
    backlog = [50_000]

    def synchronize() -> None:
        counter.now += backlog.pop() if backlog else 0

    assert net(WallClock(synchronize), counter.work(300), 2) == pytest.approx(2 * 300e-9)
    assert not backlog


def test_every_call_is_waited_for_and_once_before():
    seen: list[str] = []
    timer = WallClock(lambda: seen.append("wait"))
    assert seen == [], "making the clock waits for nothing"
    timer.time(lambda: seen.append("call"), 3)
    assert seen == ["wait", "call", "wait", "call", "wait", "call", "wait"]


def test_without_a_device_nothing_is_waited_for():
    seen: list[str] = []
    WallClock().time(lambda: seen.append("call"), 4)
    assert seen == ["call"] * 4


def test_the_overhead_grows_with_the_calls_and_is_never_negative():
    timer = WallClock()
    assert 0 <= timer.overhead(1) < timer.overhead(10) < timer.overhead(1000)


def test_the_overhead_is_small_against_real_work():
    timer = WallClock()
    seconds = min(timer.time(lambda: sum(range(3000)), 20) for _ in range(20))
    assert timer.overhead(20) < 0.05 * seconds


def test_the_overhead_is_what_an_empty_launch_takes():
    # Implementations are partial calls of a framework's function; this one has a function that does nothing.
    empty = partial(operator.truth, None)
    overheads, seen = [], []
    for _ in range(5):  # by turns, so that a busy moment meets both
        timer = WallClock()
        overheads.append(timer.overhead(1000))
        seen.append(min(timer.time(empty, 1000) for _ in range(20)))
    assert 0.5 * min(seen) < min(overheads) < 1.5 * min(seen)


def test_twice_the_work_takes_about_twice_the_time():
    timer = WallClock()
    pairs = [[net(timer, lambda n=n: sum(range(n)), 10) for n in (4000, 8000)] for _ in range(40)]
    once, twice = (min(times) for times in zip(*pairs, strict=True))
    assert twice / once == pytest.approx(2, rel=0.25)


def test_the_clock_is_finer_than_a_sample_needs():
    # A thousand steps make a sample; a clock of microseconds would need a millisecond for each.
    assert 0 < WallClock().resolution < 1e-5


def test_it_says_what_it_is():
    timer = WallClock()
    assert (timer.name, timer.quantity) == ("monotonic", "latency")
