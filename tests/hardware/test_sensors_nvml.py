"""Sensors of a GPU, through a fake library."""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvml_fixtures import OTHER, Driver

from opmark.hardware.sensors import NvmlSensors, nvml_sensors, throttle_reasons, visible_gpu, visible_handles
from opmark.schema import SensorReading

UUID = "8a6c2c0e-1111-2222-3333-444455556666"
BITS = {0x4: "power", 0x8: "hardware", 0x20: "temperature", 0x40: "temperature", 0x80: "power"}
# Idle, clocks set by the user, sync boost, display: less speed, but on purpose.
HARMLESS = (0x1, 0x2, 0x10, 0x100)


class OldestNvml(ModuleType):
    """A fake pynvml: functions that take a handle, and one kind of error for everything."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.silent: set[str] = set()
        self.bits = self.old_bits = 0
        self.initialised = False

    def nvmlInit(self) -> None:
        self._answer("nvmlInit", None)
        self.initialised = True

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        assert self.initialised
        if uuid != f"GPU-{UUID}":
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index:
            raise self.NVMLError("Invalid Argument")
        return "handle"

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"NVIDIA Example"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return f"GPU-{UUID}"

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return self._answer("nvmlDeviceGetClockInfo", {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 3201}[kind])

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return self._answer("nvmlDeviceGetPowerUsage", 699_500)

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        return self._answer("nvmlDeviceGetTemperature", {self.NVML_TEMPERATURE_GPU: 71}[kind])

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return self._answer("nvmlDeviceGetTotalEnergyConsumption", 12_345)

    def _answer(self, function: str, value: Any) -> Any:
        if function in self.silent:
            raise self.NVMLError("Not Supported")
        return value


class OldNvml(OldestNvml):
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self._answer("nvmlDeviceGetCurrentClocksThrottleReasons", self.old_bits)


class Nvml(OldNvml):
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return self._answer("nvmlDeviceGetCurrentClocksEventReasons", self.bits)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    module = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def _sensors() -> NvmlSensors:
    sensors, why = nvml_sensors(UUID)
    assert sensors is not None
    assert why == ""
    return sensors


@pytest.mark.parametrize(("bit", "word"), BITS.items())
def test_each_reason_has_its_word(bit: int, word: str) -> None:
    assert throttle_reasons(bit) == (word,)


@pytest.mark.parametrize("bit", HARMLESS)
def test_a_clock_that_is_low_on_purpose_is_not_held_down(bit: int) -> None:
    assert throttle_reasons(bit) == ()


@settings(deadline=None)
@given(st.sets(st.sampled_from([*BITS, *HARMLESS, 1 << 40])))
def test_several_reasons_are_each_said_once(bits: set[int]) -> None:
    found = throttle_reasons(reduce(or_, bits, 0))
    assert len(found) == len(set(found))
    assert set(found) == {BITS[bit] for bit in bits & BITS.keys()}


@pytest.mark.usefixtures("nvml")
def test_a_reading_is_in_base_units() -> None:
    assert _sensors().read() == SensorReading(clock=1.98e9, power=pytest.approx(699.5), temperature=71.0)
    assert _sensors().energy() == pytest.approx(12.345)


def test_a_reading_says_why_the_clock_is_held_down(nvml: Nvml) -> None:
    sensors = _sensors()
    nvml.bits = 0x4 | 0x40
    assert sensors.read().throttle == ("power", "temperature")
    nvml.bits = 0x1
    assert sensors.read().throttle == ()


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetClockInfo", "clock"),
        ("nvmlDeviceGetPowerUsage", "power"),
        ("nvmlDeviceGetTemperature", "temperature"),
    ],
)
def test_what_the_gpu_does_not_tell_is_none_and_the_rest_is_there(nvml: Nvml, function: str, field: str) -> None:
    nvml.silent.add(function)
    reading = _sensors().read()
    told = {name: getattr(reading, name) for name in ("clock", "power", "temperature")}
    assert told.pop(field) is None
    assert None not in told.values()


def test_reasons_and_energy_that_the_gpu_does_not_tell(nvml: Nvml) -> None:
    nvml.bits = 0x4
    nvml.silent |= {
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetTotalEnergyConsumption",
    }
    assert _sensors().read().throttle == ()
    assert _sensors().energy() is None


def test_a_function_that_an_old_library_does_not_have_is_not_told_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", OldestNvml())
    reading = _sensors().read()
    assert reading.throttle == ()
    assert reading.clock is not None


def test_an_old_library_tells_the_reasons_by_their_old_name(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = OldNvml()
    nvml.old_bits = 0x4
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert _sensors().read().throttle == ("power",)


def test_an_old_driver_tells_the_reasons_by_their_old_name(nvml: Nvml) -> None:
    nvml.silent.add("nvmlDeviceGetCurrentClocksEventReasons")
    nvml.old_bits = 0x20
    assert _sensors().read().throttle == ("temperature",)


def test_no_reason_by_the_new_name_is_not_asked_for_again(nvml: Nvml) -> None:
    """Zero is a valid answer."""
    nvml.bits, nvml.old_bits = 0, 0x4
    assert _sensors().read().throttle == ()


def test_a_library_that_is_not_installed_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sensors, why = nvml_sensors(UUID)
    assert sensors is None
    assert "nvidia-ml-py is not installed" in why
    assert "pip install" in why


def test_a_driver_that_does_not_answer_is_a_reason(nvml: Nvml) -> None:
    nvml.silent.add("nvmlInit")
    assert nvml_sensors(UUID) == (None, "NVML does not answer: Not Supported")


@pytest.mark.usefixtures("nvml")
def test_a_gpu_that_nvml_does_not_know_is_a_reason() -> None:
    assert nvml_sensors("another") == (None, "NVML does not answer: Not Found")


@pytest.mark.parametrize(
    ("told", "there"), [(None, True), ("0", True), (f"GPU-{UUID},1", True), ("1", False), ("-1", False), ("", False)]
)
def test_the_gpu_that_a_framework_finds_first_is_named(told: str | None, there: bool, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", OldestNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if told is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told)
    assert visible_gpu() == ({"gpu": "NVIDIA Example", "gpu_uuid": UUID} if there else {})


def test_without_the_library_no_gpu_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert visible_gpu() == {}


# Which of several GPUs a framework uses.


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        (" 1 , 0", [1, 0]),
        ("GPU-1b2d", [1]),
        (f"GPU-{UUID},GPU-1b2d", [0, 1]),
        ("0,7,1", [0]),  # CUDA ends at the first that is not there
        ("GPU-", []),  # and takes no name that several have
        ("-1", []),
        ("", []),
    ],
)
def test_the_gpus_that_cuda_shows_in_its_order(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, listed: str | None, found: list[int]
) -> None:
    import pynvml

    driver.set(OTHER, GetName="NVIDIA Other")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert visible_handles(pynvml) == [(index, (UUID, OTHER)[index]) for index in found]
    first = [{"gpu": ("NVIDIA Example", "NVIDIA Other")[i], "gpu_uuid": (UUID, OTHER)[i]} for i in found[:1]]
    assert visible_gpu() == (first[0] if first else {})


def test_a_part_of_a_gpu_is_found_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Divided(OldestNvml):
        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
            assert uuid == "MIG-part"
            return "part"

        def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: str) -> str:
            return {"part": "handle"}[part]

        def nvmlDeviceGetIndex(self, handle: str) -> int:
            return {"handle": 0}[handle]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-part")
    assert visible_handles(Divided()) == [(0, "part")]


def test_each_of_two_gpus_has_its_own_sensors(driver: Driver) -> None:
    driver.set(OTHER, GetClockInfo={"1": 1200, "2": 3201})
    clocks = [sensors.read().clock for uuid in (UUID, OTHER) if (sensors := nvml_sensors(uuid)[0])]
    assert clocks == [1.98e9, 1.2e9]
