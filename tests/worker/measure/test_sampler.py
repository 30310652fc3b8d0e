"""Samplers: what makes a sample, what only costs of the budget, and what is no sample at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.errors import TimerFailed
from opmark.frameworks.null.backend import VARIABLE, NullDeviceClock
from opmark.plugin import Activity, Launch, Trace
from opmark.schema import EFFORTS, Kernel
from opmark.worker.measure import clock, sampler
from opmark.worker.measure.cache import LaunchSource, warm
from opmark.worker.measure.clock import host_timers
from opmark.worker.measure.sampler import (
    EventSampler,
    GraphSampler,
    HostSampler,
    TraceSampler,
    burst,
    busy,
    fit_batch,
    profile_of,
    span,
)

QUICK = EFFORTS["quick"]
Kernels = Callable[..., Launch]


def nothing() -> None:
    return None


def named(seen: list[str], name: str, work: Launch = nothing) -> Launch:
    def launch() -> Any:
        seen.append(name)
        return work()

    return launch


@pytest.fixture
def now(fake_time: Any) -> Any:
    return fake_time(clock, sampler)


# The host's clock


def test_a_sample_of_the_host_is_what_a_call_takes(now: Any) -> None:
    found = HostSampler("latency", host_timers(None)["latency"], warm(now.work(3e-4)), batches=True)
    found.prepare(QUICK)
    assert found.take(5).rows == [pytest.approx((3e-4,))] * 5


@pytest.mark.parametrize(("quantity", "least"), [("latency", 1e-4), ("throughput", 2e-3)])
def test_short_calls_are_batched_and_a_stretch_is_twenty_times_a_sample(now: Any, quantity: str, least: float) -> None:
    found = HostSampler(quantity, host_timers(None)[quantity], warm(now.work(1e-5)), batches=True)
    found.prepare(QUICK)
    assert least <= found.calls * 1e-5 <= 1.2 * least
    assert found.take(1).rows == [pytest.approx((1e-5,))]


def test_calls_that_are_looked_at_alone_are_not_batched(scripted: Any) -> None:
    timer = scripted.steady(1e-9)
    found = HostSampler("latency", timer, warm(nothing), batches=False)
    spent, shown = found.prepare(QUICK)
    assert (found.calls, spent.calls, shown) == (1, 2, [1e-9, 1e-9])
    found.take(3)
    assert timer.asked == [1] * 5


def test_sets_of_data_take_turns_one_call_each(scripted: Any) -> None:
    seen: list[str] = []
    supply = LaunchSource([named(seen, name) for name in "abc"], cache="cold")
    found = HostSampler("latency", scripted.steady(1e-9), supply, batches=True)
    found.prepare(QUICK)
    found.take(7)
    assert found.calls == 1
    assert "".join(seen) == "abcabcabc"


@pytest.mark.parametrize("rule", [QUICK, replace(QUICK, samples=60)], ids=["by precision", "by count"])
def test_back_to_back_calls_of_a_rotation_go_through_all_sets(now: Any, rule: Any) -> None:
    # The same set again would find its data in the cache.
    seen: list[str] = []
    supply = LaunchSource([named(seen, name, now.work(1e-5)) for name in "abc"], cache="cold")
    found = HostSampler("throughput", host_timers(None)["throughput"], supply, batches=True)
    found.prepare(rule)
    seen.clear()
    found.take(1)
    assert found.calls == len(seen) >= 60
    assert all(before != after for before, after in pairwise(seen))


def test_the_caches_are_overwritten_before_every_call(scripted: Any) -> None:
    seen: list[str] = []
    supply = LaunchSource([named(seen, "call")], named(seen, "overwrite"), "cold")
    found = HostSampler("latency", scripted.steady(1e-9), supply, batches=True)
    found.prepare(QUICK)
    found.take(3)
    assert found.calls == 1
    assert seen == ["overwrite", "call"] * 5


@pytest.mark.parametrize("waits", [False, True])
def test_overwriting_is_no_part_of_a_sample_but_of_the_budget(now: Any, waits: bool) -> None:
    timer = host_timers((lambda: None) if waits else None)["latency"]
    found = HostSampler("latency", timer, LaunchSource([now.work(1e-4)], now.work(5e-3), "cold"), batches=False)
    found.prepare(QUICK)
    taken = found.take(10)
    assert taken.rows == [pytest.approx((1e-4,))] * 10
    assert taken.seconds == pytest.approx(10 * 5.1e-3, rel=0.01)


def test_waiting_for_the_device_is_no_part_of_the_host_time_but_of_the_budget(now: Any) -> None:
    # A call that returns after 5 us and has the device work for 1 ms: a budget of launches alone would last 200 times.
    found = HostSampler("host_time", host_timers(now.work(1e-3))["host_time"], warm(now.work(5e-6)), batches=False)
    found.prepare(QUICK)
    taken = found.take(10)
    assert taken.rows == [pytest.approx((5e-6,))] * 10
    assert taken.seconds >= 10e-3


def test_a_clock_that_stands_still_spends_the_budget_nevertheless(scripted: Any) -> None:
    found = HostSampler("latency", scripted.steady(0.0, resolution=1e-6), warm(nothing), batches=False)
    found.prepare(QUICK)
    assert found.take(1).seconds == 1e-6


def test_only_a_clock_that_is_made_up_is_virtual(scripted: Any) -> None:
    assert HostSampler("latency", scripted.steady(1.0), warm(nothing), batches=True).virtual
    assert not HostSampler("latency", scripted.steady(1.0, name="told"), warm(nothing), batches=True).virtual


def test_the_host_knows_no_kernels(scripted: Any) -> None:
    found = HostSampler("latency", scripted.steady(1.0), warm(nothing), batches=True)
    assert found.kernels() == ()
    assert not found.traces


def test_what_finding_the_batch_cost_is_counted() -> None:
    asked: list[int] = []

    def timed(calls: int) -> float:
        asked.append(calls)
        return calls * 1e-6

    calls, shown, spent = fit_batch(timed, 1e-4, 1e-9)
    assert spent == (sum(asked), pytest.approx(sum(asked) * 1e-6))
    assert asked[-2:] == [calls, calls]
    assert shown == [calls * 1e-6] * 2


@pytest.mark.parametrize(("second", "calls"), [(0.51, 1), (0.49, 2)])
def test_a_batch_is_long_enough_if_it_is_nearly_so_twice(second: float, calls: int) -> None:
    told = iter([1.0, second, 1.0, 1.0])
    assert fit_batch(lambda calls: next(told), 1.0, 1e-9)[0] == calls


@given(st.floats(1e-12, 1.0), st.floats(1e-6, 1e-2))
@settings(deadline=None)
def test_whatever_a_call_takes_the_search_ends_soon_and_near_the_target(seconds: float, target: float) -> None:
    calls, _, spent = fit_batch(lambda calls: calls * seconds, target, 1e-9)
    assert calls * seconds >= target * (1 - 1e-9) or calls == 1_000_000
    assert calls == 1 or calls <= 1.1 * target / seconds + 1
    assert spent.calls <= 4 * calls


# The device's own records


def traced(device: Any, launch: Launch, before: Launch | None = None) -> TraceSampler:
    found = TraceSampler(device, LaunchSource([launch], before, "cold" if before else "warm"))
    found.prepare(QUICK)
    return found


def test_a_kernel_that_is_launched_twice_counts_twice(now: Any, device: Any, kernels: Kernels) -> None:
    found = traced(device, kernels(("scale", 2e-6), ("add", 1e-6), ("scale", 2e-6)))
    assert found.take(5).rows == [pytest.approx((5e-6, 6e-6))] * 5
    assert found.kernels() == (Kernel("scale", 2.0, pytest.approx(4e-6)), Kernel("add", 1.0, pytest.approx(1e-6)))


def test_copies_and_fills_count_as_kernels_do(now: Any, device: Any, kernels: Kernels) -> None:
    found = traced(device, kernels(("Memset", 1e-6), ("Memcpy", 2e-6)))
    assert found.take(1).rows == [pytest.approx((3e-6, 3.5e-6))]


def test_the_profile_is_the_mean_of_the_calls_that_have_records() -> None:
    one, two = [Activity("a", 0.0, 2e-6), Activity("b", 0.0, 5e-6)], [Activity("a", 0.0, 4e-6)]
    assert profile_of([one, [], two]) == (
        Kernel("a", 1.0, pytest.approx(3e-6)),
        Kernel("b", 0.5, pytest.approx(2.5e-6)),
    )
    assert profile_of([[], []]) == ()


def test_kernels_that_overlap_are_busy_longer_than_they_span() -> None:
    both = [Activity("a", 0.0, 2e-6), Activity("b", 1e-6, 3e-6)]
    assert (busy(both), span(both)) == (pytest.approx(4e-6), pytest.approx(3e-6))
    assert (busy([]), span([])) == (0, 0.0)


def test_calls_that_lost_their_records_are_no_samples(now: Any, device: Any, kernels: Kernels) -> None:
    device.lost = lambda trace, call: trace > 0 and call % 3 == 2
    found = traced(device, kernels(2e-6))
    assert found.take(9).rows == [pytest.approx((2e-6, 2e-6))] * 6
    found.take(3)
    assert found.lost == 4
    assert found.kernels() == (Kernel("kernel", 1.0, pytest.approx(2e-6)),)


def test_a_call_that_launched_nothing_took_no_time(now: Any, device: Any, kernels: Kernels) -> None:
    found = traced(device, kernels())
    assert found.take(3).rows == [(0.0, 0.0)] * 3
    assert found.kernels() == ()


@pytest.mark.parametrize("since", [0, 1])
def test_where_all_records_are_lost_the_clock_has_failed(now: Any, device: Any, kernels: Kernels, since: int) -> None:
    device.lost = lambda trace, call: trace >= since
    with pytest.raises(TimerFailed, match="told lost the records of all 3 calls"):
        traced(device, kernels(2e-6)).take(3)
    assert len(device.traces) == since + 1


def test_a_trial_that_lost_some_is_good_enough(now: Any, device: Any, kernels: Kernels) -> None:
    device.lost = lambda trace, call: trace == 0 and call < 2
    assert len(traced(device, kernels(2e-6)).take(5).rows) == 5


def test_work_that_no_call_launched_is_counted(now: Any, device: Any, kernels: Kernels) -> None:
    device.stray = lambda trace: trace
    found = traced(device, kernels(2e-6))
    found.take(5)
    found.take(5)
    assert found.stray == 1 + 2


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([1e-6], 50),  # short: a session of many
        ([1e-3], 20),  # so that a burst is no longer than 20 ms
        ([1.0], 5),  # never fewer
        ([1e-6] * 98, 9),  # the queue of the device holds 900 launches
        ([1e-6] * 2000, 5),
    ],
)
def test_a_session_is_a_short_burst_that_fits_the_queue(
    now: Any, device: Any, kernels: Kernels, parts: list[float], calls: int
) -> None:
    assert traced(device, kernels(*parts)).chunk(QUICK) == calls


@pytest.mark.parametrize("made", [TraceSampler, partial(EventSampler, "event_time")])
def test_the_slowest_call_of_the_trial_says_how_long_a_burst_may_be(
    now: Any, device: Any, kernels: Kernels, made: Callable[..., Any]
) -> None:
    found = made(device, LaunchSource([kernels(1e-6), kernels(1e-3), kernels(1e-6)]))
    found.prepare(QUICK)
    assert 15 <= found.chunk(QUICK) <= 20


@given(st.floats(0.0, 1e3))
def test_a_burst_is_of_some_calls_and_no_longer_than_it_must_be(seconds: float) -> None:
    calls = burst(seconds)
    assert 5 <= calls <= 50
    assert calls == 5 or calls * seconds <= 0.02 * (1 + 1e-9)


@pytest.mark.parametrize("cost", [1e-6, 1e-4, 1e-2])
def test_the_device_is_held_while_calls_are_launched_but_not_for_long(
    now: Any, device: Any, kernels: Kernels, cost: float
) -> None:
    work = kernels(1e-6)

    def launch() -> Any:
        now.pass_(cost)
        return work()

    found = traced(device, launch)
    found.take(50)
    (trial, _, not_held), (_, _, hold) = device.traces
    assert (trial, not_held) == (3, 0.0)
    assert min(0.02, 50 * cost) <= hold <= min(0.02, 200 * cost)


def test_getting_ready_is_counted_to_the_call(now: Any, device: Any, kernels: Kernels) -> None:
    seen: list[str] = []
    spent, shown = TraceSampler(device, warm(named(seen, "call", kernels(1e-6)))).prepare(QUICK)
    assert spent.calls == len(seen)
    assert shown == []


def test_what_comes_before_a_call_is_left_to_the_clock_to_leave_out(now: Any, device: Any, kernels: Kernels) -> None:
    overwrite = now.work(5e-3)
    found = traced(device, kernels(2e-6), overwrite)
    taken = found.take(4)
    assert device.traces[-1][:2] == (4, overwrite)
    assert taken.rows == [pytest.approx((2e-6, 2e-6))] * 4
    assert taken.seconds >= 4 * 5e-3


@pytest.mark.parametrize(("seconds", "pauses"), [(0.9e-3, []), (1.1e-3, [5.5e-3]), (4e-3, [0.02]), (0.5, [1.0])])
def test_after_a_long_burst_the_device_rests_as_long_as_it_has_worked(
    now: Any, device: Any, kernels: Kernels, seconds: float, pauses: list[float]
) -> None:
    found = traced(device, kernels(seconds))
    taken = found.take(5)
    assert now.slept == pytest.approx(pauses)
    assert taken.seconds >= sum(pauses), "a rest costs of the budget"


@pytest.mark.parametrize(
    ("fault", "samples", "works", "lost", "stray"),
    [("lost", 6, True, 3, 0), ("stray", 9, True, 0, 1), ("idle", 9, False, 0, 0)],
)
def test_a_device_on_its_bad_days(
    monkeypatch: pytest.MonkeyPatch, fault: str, samples: int, works: bool, lost: int, stray: int
) -> None:
    monkeypatch.setenv(VARIABLE, fault)
    found = TraceSampler(NullDeviceClock(), warm(lambda: 1e-6))
    found.prepare(QUICK)
    rows = found.take(9).rows
    assert (len(rows), found.lost, found.stray) == (samples, lost, stray)
    assert all((row[0] > 0) is works for row in rows)


@pytest.mark.parametrize("fault", ["all-lost", "no-profiler"])
def test_a_device_on_its_worst_days(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv(VARIABLE, fault)
    with pytest.raises(TimerFailed):
        TraceSampler(NullDeviceClock(), warm(lambda: 1e-6)).prepare(QUICK)


class Gated(NullDeviceClock):
    """Lets the device go when all calls are queued, unless a call waits for it."""

    opens_gate = True

    def __init__(self, *, waits: bool = False, most: int = 1000) -> None:
        """`most`: calls that can be launched while the device is held."""
        self.waits = waits
        self.most = most
        self.seen: list[tuple[int, float]] = []
        """Calls and limit of each trace."""

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        self.seen.append((len(launches), hold))
        for launch in launches:
            if before:
                before()
            launch()
        calls = [[Activity("kernel", 0.0, 1e-6)] for _ in launches]
        return Trace(calls, queued=not self.waits and len(launches) <= self.most)


def test_a_device_that_is_let_go_is_held_in_the_trial_too(now: Any) -> None:
    clock = Gated()
    found = TraceSampler(clock, warm(nothing))
    found.prepare(QUICK)
    found.take(found.chunk(QUICK))
    (trial, first), (many, later) = clock.seen
    assert (trial, many) == (3, QUICK.min_samples)
    assert 0 < first <= later


def test_calls_that_wait_for_the_device_are_not_held(now: Any) -> None:
    clock = Gated(waits=True)
    found = TraceSampler(clock, warm(nothing))
    found.prepare(QUICK)
    found.take(4)
    assert [limit > 0 for _, limit in clock.seen] == [True, True, False]

    assert not found.queues


def test_fewer_calls_are_made_at_once_where_launching_takes_longer_than_the_device_is_held(now: Any) -> None:
    clock = Gated(most=6)
    found = TraceSampler(clock, warm(nothing))
    found.prepare(QUICK)
    assert len(found.take(20).rows) == 5
    assert found.queues
    assert found.chunk(QUICK) == 5
    assert [calls for calls, _ in clock.seen] == [3, 20, 10, 5]


def test_a_call_that_begins_to_wait_for_the_device_is_held_no_longer(now: Any) -> None:
    clock = Gated()
    found = TraceSampler(clock, warm(nothing))
    found.prepare(QUICK)
    clock.waits = True
    assert len(found.take(4).rows) == 1
    assert not found.queues
    assert [calls for calls, limit in clock.seen if limit] == [3, 4, 2, 1]


@pytest.mark.parametrize(
    ("ahead", "flushes", "calls"), [(30, False, 30), (30, True, 15), (1000, True, 50), (1, True, 1)]
)
def test_no_more_calls_are_queued_than_the_framework_has_ahead(now: Any, ahead: int, flushes: bool, calls: int) -> None:
    supply = LaunchSource([nothing], nothing if flushes else None)
    found = TraceSampler(Gated(), supply, ahead=ahead)
    found.prepare(replace(QUICK, min_samples=100))
    assert found.chunk(QUICK) == calls


def test_a_backend_whose_calls_wait_is_never_held(now: Any) -> None:
    clock = Gated()
    found = TraceSampler(clock, warm(nothing), ahead=0)
    found.prepare(QUICK)
    found.take(2)
    assert [limit for _, limit in clock.seen] == [0.0, 0.0]


def test_unqueued_calls_find_the_device_idle(now: Any) -> None:
    seen: list[str] = []
    supply = LaunchSource([named(seen, "call")], named(seen, "overwrite"), "cold")
    clock = Gated()
    found = TraceSampler(clock, supply, wait=named(seen, "wait"))
    assert found.quantities == ("unqueued_time",)
    found.prepare(QUICK)
    taken = found.take(2)
    assert taken.rows == [pytest.approx((1e-6,))] * 2
    assert seen == ["overwrite", "wait", "call"] * 5
    assert [limit for _, limit in clock.seen] == [0.0, 0.0]


def test_the_time_of_a_device_is_real_and_only_its_profiler_sees_what_it_ran(device: Any, kernels: Kernels) -> None:
    supply = warm(kernels(1e-6))
    samplers = TraceSampler(device, supply), EventSampler("device_span", device, supply), GraphSampler(device, supply)
    assert [(found.timer, found.virtual, found.traces, found.lost) for found in samplers] == [
        ("told", False, True, 0),
        ("events", False, False, 0),
        ("graph", False, False, 0),
    ]


# Events


def test_an_event_around_a_call_is_not_a_part_of_its_span(now: Any, device: Any, kernels: Kernels) -> None:
    found = EventSampler("device_span", device, warm(kernels(4e-6)))
    found.prepare(QUICK)
    assert found.overhead == device.event
    assert found.take(3).rows == [pytest.approx((4e-6,))] * 3


def test_the_time_between_two_events_is_taken_as_it_comes(now: Any, device: Any, kernels: Kernels) -> None:
    found = EventSampler("event_time", device, warm(kernels(4e-6)))
    found.prepare(QUICK)
    assert found.overhead == 0.0
    assert found.take(3).rows == [pytest.approx((4e-6 + device.event,))] * 3
    assert {hold for _, _, hold in device.queues} == {0.0}


def test_the_device_is_held_for_a_span_so_that_no_launch_is_seen(now: Any, device: Any, kernels: Kernels) -> None:
    work = kernels(1e-6)

    def launch() -> Any:
        now.pass_(1e-5)
        return work()

    found = EventSampler("device_span", device, warm(launch))
    found.prepare(QUICK)
    found.take(found.chunk(QUICK))
    calls, _, hold = device.queues[-1]
    assert calls * 1e-5 <= hold <= min(0.02, 4 * calls * 1e-5)


def test_a_span_shorter_than_an_event_is_never_negative(now: Any, device: Any, kernels: Kernels) -> None:
    found = EventSampler("device_span", device, warm(kernels(4e-6)))
    found.prepare(QUICK)
    found.overhead = 1.0
    assert found.take(2).rows == [(0.0,)] * 2


@pytest.mark.parametrize(("seconds", "calls"), [(1e-6, 50), (1e-3, 19), (1.0, 5)])
def test_events_come_in_short_bursts_too(now: Any, device: Any, kernels: Kernels, seconds: float, calls: int) -> None:
    found = EventSampler("event_time", device, warm(kernels(seconds)))
    found.prepare(QUICK)
    assert found.chunk(QUICK) == calls


def test_events_overwrite_the_caches_before_each_call(now: Any, device: Any, kernels: Kernels) -> None:
    overwrite = now.work(5e-3)
    found = EventSampler("device_span", device, LaunchSource([kernels(4e-6)], overwrite, "cold"))
    found.prepare(QUICK)
    taken = found.take(4)
    assert device.queues[-1][:2] == (4, overwrite)
    assert taken.rows == [pytest.approx((4e-6,))] * 4
    assert taken.seconds >= 4 * 5e-3


@pytest.mark.parametrize("quantity", ["device_span", "event_time"])
def test_getting_ready_for_events_is_counted_to_the_call(
    now: Any, device: Any, kernels: Kernels, quantity: str
) -> None:
    seen: list[str] = []
    spent, _ = EventSampler(quantity, device, warm(named(seen, "call", kernels(1e-6)))).prepare(QUICK)
    assert spent.calls == len(seen)


# Graphs


@pytest.mark.parametrize(("sets", "calls"), [(1, 20), (3, 18), (7, 14), (20, 20), (21, 21), (64, 64)])
def test_a_graph_holds_every_set_equally_often(device: Any, kernels: Kernels, sets: int, calls: int) -> None:
    launches = [kernels(1e-6) for _ in range(sets)]
    found = GraphSampler(device, LaunchSource(launches, cache="cold"))
    found.prepare(QUICK)
    assert found.calls == calls
    assert device.captured == launches * (calls // sets)


def test_getting_a_graph_ready_runs_its_calls_and_shows_nothing_of_them(device: Any, kernels: Kernels) -> None:
    found = GraphSampler(device, warm(kernels(1e-6)))
    spent, shown = found.prepare(QUICK)
    assert spent.calls >= found.calls
    assert shown == []


def test_a_replay_is_a_sample_a_call(device: Any, kernels: Kernels) -> None:
    found = GraphSampler(device, warm(kernels(4e-6)))
    found.prepare(QUICK)
    assert found.take(3).rows == [pytest.approx((4e-6,))] * 3


def test_a_replay_costs_of_the_budget_what_all_its_calls_take(device: Any, kernels: Kernels) -> None:
    found = GraphSampler(device, warm(kernels(1.0)))
    found.prepare(QUICK)
    assert found.take(2).seconds == pytest.approx(2 * 20 * 1.0)


def test_a_graph_that_runs_nothing_spends_the_budget_nevertheless(device: Any, kernels: Kernels) -> None:
    found = GraphSampler(device, warm(kernels()))
    found.prepare(QUICK)
    assert found.take(1).seconds > 0


def test_what_cannot_be_captured_has_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no-graphs")
    with pytest.raises(TimerFailed, match="captured"):
        GraphSampler(NullDeviceClock(), warm(lambda: 1e-6)).prepare(QUICK)
