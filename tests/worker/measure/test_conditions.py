"""The watch: what the sensors said and when, with sensors that read out a script."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest
from msgspec.structs import replace

from opmark.schema import EFFORTS, SensorReading
from opmark.worker.measure import instruments
from opmark.worker.measure.cache import warm
from opmark.worker.measure.engine import measure
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.sampler import HostSampler

FAST, SLOW = SensorReading(clock=1.5e9), SensorReading(clock=1.0e9, throttle=("power",))


@pytest.fixture
def now(fake_time: Any) -> Any:
    return fake_time(instruments)


def test_a_look_at_the_beginning_and_one_at_the_end(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST]))
    watch.begin()
    assert watch.end(40).readings == (replace(FAST, at=0), replace(FAST, at=40))


def test_looks_between_are_not_too_often(now: Any, told_sensors: Any) -> None:
    sensors = told_sensors([FAST])
    watch = ConditionsMonitor(sensors)
    watch.begin()
    for taken in range(1, 1001):
        now.pass_(1e-3)
        watch.look(taken)
    assert sensors.looks == pytest.approx(1 + 1.0 / 0.05, abs=1)
    apart = [reading.at for reading in watch.end(1000).readings][:-1]
    assert min(after - before for before, after in pairwise(apart)) >= 49


def test_looks_between_are_often_enough_to_see_a_clock_that_moves(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST, SLOW, FAST]))
    watch.begin()
    now.pass_(0.06)
    watch.look(7)
    found = watch.end(9)
    assert [reading.at for reading in found.readings] == [0, 7, 9]
    assert found.clocks == [1.5e9, 1.0e9, 1.5e9]


def test_a_new_measurement_begins_with_no_readings(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST, FAST, SLOW]))
    watch.begin()
    watch.end(3)
    watch.begin()
    assert [reading.clock for reading in watch.end(5).readings] == [SLOW.clock] * 2


def test_the_highest_clock_is_remembered_over_the_life_of_a_worker(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([SLOW, FAST, SLOW]))
    watch.begin()
    assert watch.end(3).highest_clock == FAST.clock
    watch.begin()
    assert watch.end(3).highest_clock == FAST.clock


def test_without_sensors_there_are_no_readings_and_no_energy() -> None:
    watch = ConditionsMonitor(None)
    watch.begin()
    watch.look(1)
    watch.recover()
    found = watch.end(2)
    assert (found.readings, found.highest_clock, watch.energy()) == ((), None, None)


def test_sensors_that_tell_no_clock_leave_it_unknown(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([SensorReading(power=100.0)]))
    watch.begin()
    watch.recover()
    found = watch.end(1)
    assert (found.clocks, found.highest_clock) == ([], None)
    assert now.slept == []


def test_the_energy_is_that_of_the_sensors(told_sensors: Any) -> None:
    assert ConditionsMonitor(told_sensors([FAST], lambda: 12.5)).energy() == 12.5


# Throttled samples


class Slow(NamedTuple):
    """A timer of which each timing takes as long as a look is apart."""

    now: Any
    name: str = "virtual"
    resolution: float = 1e-9

    def time(self, launch: Any, calls: int) -> float:
        self.now.pass_(0.06)
        return 1e-3 * calls

    def overhead(self, calls: int) -> float:
        return 0.0


def test_samples_that_were_taken_while_the_clock_was_held_down_are_marked(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST, FAST, FAST, SLOW, SLOW, FAST]))
    rule = replace(EFFORTS["quick"], warmup=0, samples=8)
    (found,) = measure(HostSampler("latency", Slow(now), warm(list), batches=False), rule, watch)
    # A reading before each sample and one after: the fourth and the fifth saw it, and so did their neighbours.
    assert found.throttled == [2, 3, 4]
    assert "held down by power" in {c.code: c.message for c in found.cautions}["clocks-moved"]


def test_nothing_is_marked_where_no_clock_was_held_down(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST]))
    rule = replace(EFFORTS["quick"], warmup=0, samples=8)
    (found,) = measure(HostSampler("latency", Slow(now), warm(list), batches=False), rule, watch)
    assert (found.throttled, found.cautions) == ([], ())


# Recovery


def test_a_clock_that_is_up_is_not_waited_for(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST]))
    watch.recover()
    watch.recover()
    assert now.slept == []


@pytest.mark.parametrize(("share", "waits"), [(0.986, 0), (0.984, 3)])
def test_a_clock_is_waited_for_until_it_is_nearly_back(now: Any, told_sensors: Any, share: float, waits: int) -> None:
    low = SensorReading(clock=share * FAST.clock)
    watch = ConditionsMonitor(told_sensors([FAST, low, low, low, FAST]))
    watch.recover()
    watch.recover()
    assert len(now.slept) == waits


def test_a_clock_that_does_not_come_back_is_waited_for_a_second(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST, SLOW]))
    watch.recover()
    watch.recover()
    assert sum(now.slept) == pytest.approx(1.0, rel=0.05)


def test_looks_while_recovering_are_no_readings(now: Any, told_sensors: Any) -> None:
    watch = ConditionsMonitor(told_sensors([FAST, SLOW, SLOW, FAST]))
    watch.begin()
    watch.recover()
    assert [reading.clock for reading in watch.end(1).readings] == [FAST.clock, FAST.clock]


# The host's counters


class Times(NamedTuple):
    user: float = 0.0
    idle: float = 0.0
    iowait: float = 0.0
    steal: float = 0.0
    guest: float = 0.0


@pytest.fixture
def counted(now: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the watch says after the host's counters have moved on by so much in so many seconds."""

    def counted(seconds: float, own: float = 0.0, switches: int = 0, load: float = 0.0, **times: float) -> Any:
        usage = SimpleNamespace(ru_nivcsw=100, ru_utime=5.0, ru_stime=1.0)
        begun = Times(user=1000.0, idle=1000.0, steal=10.0)
        state = [usage, begun]
        monkeypatch.setattr(instruments.resource, "getrusage", lambda who: state[0])
        monkeypatch.setattr(psutil, "cpu_times", lambda: state[1])
        monkeypatch.setattr(instruments.os, "getloadavg", lambda: (load, 0.0, 0.0))
        watch = ConditionsMonitor(None)
        watch.begin()
        now.pass_(seconds)
        state[0] = SimpleNamespace(ru_nivcsw=100 + switches, ru_utime=5.0 + own / 2, ru_stime=1.0 + own / 2)
        state[1] = Times(*(before + times.get(name, 0.0) for name, before in zip(Times._fields, begun, strict=True)))
        return watch.end(1)

    return counted


def test_cores_that_others_kept_busy_are_all_but_our_own(counted: Callable[..., Any]) -> None:
    found = counted(2.0, own=2.0, user=5.0, idle=3.0)
    assert found.others == pytest.approx(1.5)
    assert found.elapsed == pytest.approx(2.0, rel=1e-6)


def test_waiting_for_a_disk_is_not_busy_and_a_guest_is_not_counted_twice(counted: Callable[..., Any]) -> None:
    assert counted(2.0, own=0.0, user=1.0, guest=1.0, iowait=1.0, idle=2.0).others == pytest.approx(0.5)


def test_what_was_stolen_is_a_share_of_all_time_and_nobodys_work(counted: Callable[..., Any]) -> None:
    found = counted(2.0, user=1.0, steal=1.0, idle=2.0)
    assert (found.steal, found.others) == (pytest.approx(0.25), pytest.approx(0.5))


def test_counters_that_run_behind_our_own_say_that_nobody_else_worked(counted: Callable[..., Any]) -> None:
    assert counted(1.0, own=1.0, user=0.9, idle=1.0).others == 0.0


@pytest.mark.parametrize(("seconds", "told"), [(0.099, False), (0.101, True)])
def test_counters_of_coarse_steps_say_nothing_of_a_short_time(
    counted: Callable[..., Any], seconds: float, told: bool
) -> None:
    found = counted(seconds, user=0.1, idle=0.1)
    assert (found.others is not None, found.steal is not None) == (told, told)


def test_counters_that_stand_still_say_nothing(counted: Callable[..., Any]) -> None:
    found = counted(1.0)
    assert (found.others, found.steal) == (None, None)


def test_threads_that_wait_for_a_core_are_counted_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for thread, nanoseconds in (("1", 200_000_000), ("2", 50_000_000)):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(f"900 {nanoseconds} 7\n")
    monkeypatch.setattr(instruments, "_TASKS", tmp_path)
    monitor = ConditionsMonitor(None)
    monitor.begin()
    (tmp_path / "2" / "schedstat").write_text("950 350000000 9\n")
    (tmp_path / "3").mkdir()  # a thread that has just ended
    assert monitor.end(1).waited == pytest.approx(0.3)
    (tmp_path / "2" / "schedstat").unlink()  # what that thread has waited is not known any more
    assert monitor.end(1).waited is None
    monkeypatch.setattr(instruments, "_TASKS", tmp_path / "none")
    assert monitor.end(1).waited is None


def test_switches_are_counted_from_the_beginning_and_the_load_is_that_of_the_end(counted: Callable[..., Any]) -> None:
    found = counted(1.0, switches=7, load=2.5)
    assert (found.switches, found.load) == (7, 2.5)


def test_the_machine_is_looked_at_as_it_is() -> None:
    watch = ConditionsMonitor(None)
    watch.begin()
    start = time.process_time()
    while time.process_time() - start < 0.01:
        pass
    found = watch.end(1)
    assert found.elapsed >= 0.01
    assert found.switches >= 0
    assert found.load >= 0
