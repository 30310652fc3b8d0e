"""The process that locks clocks and sets them back, through a library that is a file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from nvml_fixtures import OTHER, UUID, Driver

from opmark.hardware.clock_guard import LockedClocks, LockRequest, lease_folder, lease_state

TDP = 0xFFFFFF01
NO_PERMISSION, NOT_SUPPORTED = 4, 3
RESET = [["ResetGpuLockedClocks", UUID], ["ResetMemoryLockedClocks", UUID]]


class Guard:
    """The process, and the run's end of its pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "opmark.hardware.clock_guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def lock(self, mhz: int | None = None, uuid: str = UUID) -> LockedClocks:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(msgspec.json.encode(LockRequest(uuid, mhz)) + b"\n")
        self.process.stdin.flush()
        return msgspec.json.decode(self.process.stdout.readline(), type=LockedClocks)

    def end(self) -> str:
        """Close the pipe, as the end of the run does; return what the guard printed."""
        _, said = self.process.communicate(timeout=60)
        return said.decode()


@pytest.fixture
def start() -> Iterator[Callable[[], Guard]]:
    started: list[Guard] = []

    def make() -> Guard:
        started.append(Guard())
        return started[-1]

    yield make
    for one in started:
        one.process.kill()
        one.process.communicate()


Start = Callable[[], Guard]


def test_by_default_it_is_the_clock_of_the_rated_power_until_the_run_ends(driver: Driver, start: Start) -> None:
    guard = start()
    assert guard.lock() == LockedClocks(1500, 3201)
    assert driver.calls == [["SetGpuLockedClocks", UUID, TDP, TDP], ["SetMemoryLockedClocks", UUID, 3201, 3201]]
    assert guard.end() == ""
    assert driver.calls[2:] == RESET
    assert lease_state(UUID) == (None, False)


def test_readings_of_the_time_before_the_lock_are_not_taken_for_the_locked_clock(driver: Driver, start: Start) -> None:
    driver.set(before=[1980, 1980, 1980, 1710])
    assert start().lock().mhz == 1500


def test_a_clock_that_the_user_names_is_locked(driver: Driver, start: Start) -> None:
    assert start().lock(1200).mhz == 1200
    assert driver.locked == 1200


def test_a_reading_far_from_what_was_asked_for_is_that_of_an_idle_gpu(driver: Driver, start: Start) -> None:
    driver.set(GetClockInfo={"1": 345, "2": 3201})
    driver.fail("nvmlDeviceSetMemoryLockedClocks", NOT_SUPPORTED)
    guard = start()
    assert guard.lock(1200) == LockedClocks(1200, None)


def test_a_driver_without_the_rated_power_has_a_default_clock(driver: Driver, start: Start) -> None:
    driver.set(tdp=None)
    guard = start()
    assert guard.lock() == LockedClocks(1900, 3201)
    guard.end()
    driver.set(GetDefaultApplicationsClock=None)
    assert start().lock().reason == "NVML: Invalid Argument"
    assert lease_state(UUID) == (None, False)


def test_without_permission_nothing_changes_and_the_reason_says_who_may(driver: Driver, start: Start) -> None:
    driver.fail("nvmlDeviceSetGpuLockedClocks", NO_PERMISSION)
    guard = start()
    assert guard.lock().reason == "NVML: Insufficient Permissions (locking clocks takes root)"
    assert lease_state(UUID) == (None, False)  # other guards may try, while this one goes on
    guard.end()
    assert driver.calls == []
    assert lease_state(UUID) == (None, False)


def test_a_gpu_that_nvml_does_not_know_is_a_reason(driver: Driver, start: Start) -> None:
    assert start().lock(uuid=OTHER).reason == "NVML: Not Found"


def test_a_driver_that_does_not_answer_is_a_reason(driver: Driver, start: Start) -> None:
    driver.fail("nvmlInit", 1)
    assert start().lock().reason == "NVML does not answer: Uninitialized"


def test_what_somebody_has_put_in_the_place_of_the_leases_is_not_followed(driver: Driver, start: Start) -> None:
    elsewhere = lease_folder().with_name("elsewhere")
    lease_folder().mkdir()
    (lease_folder() / UUID).symlink_to(elsewhere)
    assert "the lease cannot be written" in start().lock().reason
    shutil.rmtree(lease_folder())
    elsewhere.mkdir()
    lease_folder().symlink_to(elsewhere)
    assert "belongs to somebody else" in start().lock().reason
    assert not list(elsewhere.iterdir())
    assert driver.calls == []


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_that_is_asked_to_end_sets_the_clocks_back_when_it_does(
    driver: Driver, start: Start, sent: signal.Signals
) -> None:
    guard = start()
    guard.lock()
    guard.process.send_signal(sent)
    if sent == signal.SIGTERM:
        guard.process.wait(60)
        assert driver.calls[2:] == RESET
    else:
        assert guard.lock(uuid=OTHER).reason == "NVML: Not Found"  # it is still there
        assert driver.locked == 1500


def test_the_last_of_several_runs_sets_the_clocks_back(driver: Driver, start: Start) -> None:
    first, second = start(), start()
    first.lock(1200)
    assert second.lock(1000) == LockedClocks(1200, 3201, others=True)
    assert lease_state(UUID) == (LockedClocks(1200, 3201), True)
    first.end()
    assert driver.locked == 1200
    third = start()
    assert third.lock().mhz == 1200
    second.end()
    assert driver.locked == 1200
    third.end()
    assert driver.locked is None
    assert [call[0] for call in driver.calls].count("SetGpuLockedClocks") == 1


def test_clocks_are_set_back_also_where_the_folder_of_leases_is_gone(driver: Driver, start: Start) -> None:
    guard = start()
    guard.lock()
    shutil.rmtree(lease_folder())
    assert guard.end() == ""
    assert driver.locked is None


def test_runs_on_two_gpus_do_not_touch_each_other(driver: Driver, start: Start) -> None:
    driver.set(OTHER, tdp=1300)
    first, second = start(), start()
    first.lock()
    assert second.lock(uuid=OTHER) == LockedClocks(1300, 3201)
    first.end()
    assert driver.gpu(OTHER)["locked"] == 1300
    second.end()
    assert driver.gpu(OTHER)["locked"] is None


def test_what_a_killed_guard_left_locked_is_taken_over_and_set_back(driver: Driver, start: Start) -> None:
    first = start()
    first.lock(1200)
    first.process.kill()
    first.process.wait()
    assert lease_state(UUID) == (LockedClocks(1200, 3201), False)
    driver.set(GetCurrentClocksEventReasons=0x2)  # which is its own doing
    second = start()
    assert second.lock(1000) == LockedClocks(1000, 3201)
    second.end()
    assert driver.locked is None
    assert lease_state(UUID) == (None, False)


@pytest.mark.parametrize("applications", [None, {"1": 1980}])
def test_a_clock_that_somebody_has_set_is_left_alone(driver: Driver, start: Start, applications: object) -> None:
    driver.set(GetCurrentClocksEventReasons=0x2, GetApplicationsClock=applications)
    guard = start()
    assert "somebody has set its clock already, which reads 1980 MHz" in guard.lock().reason
    assert not lease_state(UUID)[1]
    guard.end()
    assert driver.calls == []


def test_a_clock_for_applications_is_no_lock_and_stays_beneath_it(driver: Driver, start: Start) -> None:
    driver.set(GetCurrentClocksEventReasons=0x2, GetApplicationsClock={"1": 1400})
    assert start().lock().mhz == 1500


def test_clocks_that_cannot_be_set_back_are_complained_about_with_a_command(driver: Driver, start: Start) -> None:
    guard = start()
    guard.lock()
    driver.fail("nvmlDeviceResetGpuLockedClocks", 15)
    assert f"could not be set back: error 15; sudo nvidia-smi -i GPU-{UUID} -rgc" in guard.end()
    assert lease_state(UUID) == (LockedClocks(1500, 3201), False)


def test_without_the_library_the_reason_names_it(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert "nvidia-ml-py is not installed" in start().lock().reason
