"""A device that is not there, and what may go wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from opmark.errors import TimerFailed
from opmark.frameworks.null.backend import (
    FAULTS,
    VARIABLE,
    NullDeviceClock,
    NullLaunch,
    NullSensors,
    VirtualTimer,
    faults,
)
from opmark.plugin.registry import backend

LAUNCH = NullLaunch(1e-4)


@pytest.fixture(autouse=True)
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def live() -> Any:
    return backend("null-device").load(threads=1)


def _durations(call: Any) -> list[float]:
    return [activity.end - activity.start for activity in call]


def test_it_has_what_a_gpu_has(live: Any) -> None:
    assert live.asynchronous
    assert isinstance(live.device_clock(), NullDeviceClock)
    assert isinstance(live.sensors(), NullSensors)
    assert live.cache_bytes() > 0
    assert live.why_unavailable() is None
    timers = live.timers()
    assert set(timers) == {"latency", "host_time", "throughput"}
    assert all(isinstance(timer, VirtualTimer) for timer in timers.values())


def test_a_call_is_two_kernels_with_a_gap_between_them() -> None:
    trace = NullDeviceClock().trace([LAUNCH] * 20, None, 0.0)
    assert (trace.lost, trace.stray) == (0, 0)
    assert len(trace.calls) == 20
    for first, second in trace.calls:
        assert (first.name, second.name) == ("first", "second")
        assert first.start < first.end < second.start < second.end
        busy = sum(_durations([first, second]))
        assert LAUNCH.seconds <= busy < 1.02 * LAUNCH.seconds
        assert second.end - first.start == pytest.approx(1.05 * busy)
        assert _durations([first]) == pytest.approx([3 * _durations([second])[0]])


def test_two_clocks_say_the_same_and_one_says_something_new_each_time() -> None:
    first, second = (NullDeviceClock().trace([LAUNCH] * 5, None, 0.0) for _ in range(2))
    assert first == second
    assert len({call[0].end for call in first.calls}) == 5


def test_the_launches_are_really_called_so_that_their_failure_shows() -> None:
    def fails() -> None:
        raise MemoryError

    clock = NullDeviceClock()
    for ask in (lambda: clock.trace([fails], None, 0.0), lambda: clock.queued([fails], None, 0.0),
                lambda: clock.capture([fails])):  # fmt: skip
        with pytest.raises(MemoryError):
            ask()


def test_events_say_the_time_of_the_call_and_a_little_of_their_own() -> None:
    clock = NullDeviceClock()
    empty = clock.queued([NullLaunch(0.0)] * 3, None, 0.0)
    assert len(set(empty)) == 1
    assert empty[0] > 0
    for value in clock.queued([LAUNCH] * 10, None, 0.0):
        assert value - empty[0] == pytest.approx(LAUNCH.seconds, rel=0.02)


def test_a_replay_gives_the_time_of_one_launch() -> None:
    replay = NullDeviceClock().capture([NullLaunch(1e-4), NullLaunch(3e-4)])
    assert replay() == pytest.approx(2e-4, rel=0.02)
    assert replay() != replay()


def test_readings_are_steady_and_energy_only_grows() -> None:
    sensors = NullSensors()
    readings = [sensors.read() for _ in range(10)]
    assert len(set(readings)) == 1
    assert readings[0].throttle == ()
    joules = [sensors.energy() for _ in range(5)]
    assert joules == sorted(set(joules))


def test_nothing_is_wrong_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults() == frozenset()
    monkeypatch.setenv(VARIABLE, "")
    assert faults() == frozenset()


def test_faults_are_named_by_comma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "lost,stray")
    assert faults() == {"lost", "stray"}


def test_a_fault_that_there_is_not_is_refused_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "lost,on-fire")
    with pytest.raises(ValueError, match="no fault named on-fire") as caught:
        faults()
    assert all(name in str(caught.value) for name in FAULTS)


def test_a_profiler_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no-profiler")
    with pytest.raises(TimerFailed, match="in use"):
        NullDeviceClock().trace([LAUNCH], None, 0.0)
    assert NullDeviceClock().queued([LAUNCH], None, 0.0)


def test_a_profiler_that_loses_some_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "lost")
    trace = NullDeviceClock().trace([LAUNCH] * 7, None, 0.0)
    assert [bool(call) for call in trace.calls] == [True, True, False, True, True, False, True]
    assert trace.lost == 2


def test_a_profiler_that_loses_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "all-lost")
    trace = NullDeviceClock().trace([LAUNCH] * 4, None, 0.0)
    assert (trace.calls, trace.lost) == ([[]] * 4, 4)


def test_calls_that_launch_nothing_have_lost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "idle")
    trace = NullDeviceClock().trace([LAUNCH] * 4, None, 0.0)
    assert (trace.calls, trace.lost) == ([[]] * 4, 0)


def test_work_that_no_call_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "stray")
    trace = NullDeviceClock().trace([LAUNCH] * 4, None, 0.0)
    assert trace.stray > 0
    assert all(trace.calls)


def test_events_that_say_twice_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    (right,) = NullDeviceClock().queued([LAUNCH], None, 0.0)
    monkeypatch.setenv(VARIABLE, "events-off")
    (wrong,) = NullDeviceClock().queued([LAUNCH], None, 0.0)
    assert wrong - right == pytest.approx(LAUNCH.seconds, rel=0.02)


def test_calls_that_cannot_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no-graphs")
    with pytest.raises(TimerFailed, match="captured"):
        NullDeviceClock().capture([LAUNCH])


def test_a_device_without_sensors(monkeypatch: pytest.MonkeyPatch, live: Any) -> None:
    monkeypatch.setenv(VARIABLE, "no-sensors")
    assert live.sensors() is None


def test_a_clock_that_the_power_limit_pulls_down_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "throttled")
    sensors = NullSensors()
    readings = [sensors.read() for _ in range(8)]
    assert readings[0].throttle == ()
    assert readings[-1].throttle == ("power",)
    assert readings[-1].clock < 0.9 * readings[0].clock
    assert {reading.throttle for reading in readings if reading.clock == readings[0].clock} == {()}
