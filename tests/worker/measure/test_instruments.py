"""What a worker measures with: the backend's own where it has some, else the host's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from opmark.frameworks.null.backend import VARIABLE, NullBackend, NullDevice, NullDeviceClock, NullSensors, VirtualTimer
from opmark.hardware.sensors import last_level_bytes
from opmark.plugin import Backend, Timer
from opmark.plugin.registry import backend
from opmark.worker.measure import instruments as module
from opmark.worker.measure.clock import WallClock
from opmark.worker.measure.instruments import READ, Instruments, ResidentPages, sensors_of


def make_instruments(name: str, live: Backend | None = None) -> Instruments:
    info = backend(name)
    return Instruments.of(info, live or info.load(threads=1), None)


def test_a_backend_that_is_done_when_it_returns_has_the_hosts_clock_twice() -> None:
    timers = make_instruments("numpy-cpu").timers
    assert {name: type(timer) for name, timer in timers.items()} == {"latency": WallClock, "throughput": WallClock}


def test_the_timers_of_a_backend_come_before_the_hosts() -> None:
    assert {type(timer) for timer in make_instruments("null").timers.values()} == {VirtualTimer}


def test_a_backend_that_returns_early_is_waited_for() -> None:
    waited: list[None] = []

    class Early(NullBackend):
        asynchronous = True

        def timers(self) -> dict[str, Timer]:
            return {}

        def synchronize(self) -> None:
            waited.append(None)

    timers = make_instruments("null", Early(backend("null"), 1)).timers
    assert timers.keys() == {"latency", "host_time", "throughput"}
    timers["latency"].time(lambda: None, 3)
    assert len(waited) == 4  # once before, and once a call
    waited.clear()
    timers["throughput"].time(lambda: None, 3)
    assert len(waited) == 2  # before the first and after the last


def test_only_a_device_has_a_clock_of_its_own() -> None:
    assert make_instruments("numpy-cpu").clock is None
    device = make_instruments("null-device").clock
    assert device is not None
    assert device.name == "cupti"


class OnCuda(NullDevice):
    """A backend on an NVIDIA GPU that is not there."""

    def __init__(self, clock: Any) -> None:
        super().__init__(dataclasses.replace(backend("null-device"), device="cuda"), 1)
        self._own = clock

    def device_clock(self) -> Any:
        return self._own


class OtherClock(NullDeviceClock):
    name = "torch-profiler"

    def __init__(self, *, replaceable: bool) -> None:
        self.replaceable = replaceable


@pytest.mark.parametrize("replaceable", [None, True, False])
@pytest.mark.parametrize("why", ["", "cupti-python is not installed"])
def test_cupti_is_the_clock_of_an_nvidia_gpu_unless_the_backend_insists_on_its_own(
    monkeypatch: pytest.MonkeyPatch, replaceable: bool | None, why: str
) -> None:
    own = None if replaceable is None else OtherClock(replaceable=replaceable)
    cupti = None if why else NullDeviceClock()
    asked: list[Any] = []

    def open_cupti(synchronize: Any, other: Any) -> Any:
        asked.append(other)
        return cupti, why

    monkeypatch.setattr(module, "open_cupti", open_cupti)
    live = OnCuda(own)
    found = Instruments.of(live.info, live, None)
    assert found.clock is (own if replaceable is False else cupti or own)
    assert asked == ([] if replaceable is False else [own])
    assert found.why_no_cupti == ("" if replaceable is False else why)


def test_the_cache_is_that_of_the_device_or_of_the_processor() -> None:
    assert make_instruments("null-device").cache_bytes == NullDevice(backend("null-device"), 1).cache_bytes()
    assert make_instruments("numpy-cpu").cache_bytes == last_level_bytes()
    assert make_instruments("null").cache_bytes is None


def test_memory_that_nobody_counts_is_that_of_the_process() -> None:
    assert isinstance(make_instruments("numpy-cpu").memory, ResidentPages)


# Memory to overwrite the caches with.


class Counting(NullBackend):
    def __init__(self) -> None:
        super().__init__(backend("null"), 1)
        self.asked: list[int] = []

    def overwrite(self, nbytes: int) -> Any:
        self.asked.append(nbytes)
        return super().overwrite(nbytes)


def test_memory_to_overwrite_is_made_when_first_needed_and_kept() -> None:
    live = Counting()
    tools = make_instruments("null", live)
    assert live.asked == [1], "the smallest call there is"
    first = tools.overwrite(live, 1000)
    assert tools.overwrite(live, 1000) is first
    assert tools.overwrite(live, 10) is first
    assert live.asked == [1, 1000]


def test_memory_to_overwrite_grows_where_more_is_asked_for() -> None:
    live = Counting()
    tools = make_instruments("null", live)
    first = tools.overwrite(live, 1000)
    assert tools.overwrite(live, 1001) is not first
    assert live.asked == [1, 1000, 1001]


# The smallest call.


def test_the_least_that_a_call_takes_is_measured_once_when_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fastest(timer: Timer, launch: Any) -> float:
        asked.append((timer, launch))
        return 0.25

    monkeypatch.setattr(module, "fastest_call", fastest)
    tools = make_instruments("null")
    assert asked == []
    assert (tools.least_call, tools.least_call) == (0.25, 0.25)
    assert asked == [(tools.timers["latency"], tools.smallest)]


@pytest.mark.parametrize("name", ["null", "null-device", "numpy-cpu", "torch-cpu"])
def test_every_backend_has_a_smallest_call(name: str) -> None:
    assert 0 <= make_instruments(name).least_call < 1


# Sensors.


def test_the_sensors_of_a_backend_come_first() -> None:
    found, why = sensors_of(backend("null-device"), backend("null-device").load(1), {"gpu_uuid": "GPU-1"})
    assert isinstance(found, NullSensors)
    assert why == READ


def test_a_gpu_is_asked_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def nvml(uuid: str) -> tuple[None, str]:
        asked.append(uuid)
        return None, "no permission"

    monkeypatch.setattr(module, "nvml_sensors", nvml)
    live = backend("null").load(1)
    assert sensors_of(backend("null"), live, {"gpu_uuid": "GPU-1"}) == (None, "no permission")
    assert asked == ["GPU-1"]


def test_without_a_driver_there_are_no_sensors_and_a_reason() -> None:
    found, why = sensors_of(backend("null"), backend("null").load(1), {"gpu_uuid": "GPU-that-nobody-has"})
    assert found is None
    assert why


def test_a_device_that_nobody_knows_has_no_sensors_and_says_so() -> None:
    found, why = sensors_of(backend("null"), backend("null").load(1), {})
    assert found is None
    assert "none" in why


def test_a_processor_has_those_that_its_kernel_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CpuSensors, "detect", classmethod(lambda cls: None))
    found, why = sensors_of(backend("numpy-cpu"), backend("numpy-cpu").load(1), {})
    assert found is None
    assert "virtual machine" in why


def test_a_drill_takes_the_sensors_away(monkeypatch: pytest.MonkeyPatch) -> None:
    info = backend("null-device")
    monkeypatch.setenv(VARIABLE, "no-sensors")
    found, why = sensors_of(info, info.load(1), {})
    assert found is None
    assert why != READ
    monkeypatch.delenv(VARIABLE)
    assert sensors_of(info, info.load(1), {})[0] is not None
