"""What would make times on a GPU unsteady, through a library that is a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest
from nvml_fixtures import OTHER, UUID, Driver

from opmark.hardware import gpu_disturbances as module
from opmark.hardware.clock_guard import LockedClocks
from opmark.hardware.gpu_disturbances import gpu_disturbances
from opmark.schema import DiagnosisItem

WELL = {
    "GetPersistenceMode": 1, "GetCurrentClocksEventReasons": 0x2, "GetPowerManagementLimit": 700_000,
    "GetPowerManagementDefaultLimit": 700_000, "GetPowerManagementLimitConstraints": [200_000, 700_000],
    "GetTemperature": {"0": 41}, "GetTemperatureThreshold": {"1": 95}, "GetComputeRunningProcesses": [],
    "GetGraphicsRunningProcesses": [], "GetEccMode": [1, 1], "GetTotalEccErrors": {"0": 0},
    "GetRemappedRows": [0, 0, 0, 0], "GetMigMode": [0, 0], "GetComputeMode": 0, "GetCurrPcieLinkWidth": 16,
    "GetMaxPcieLinkWidth": 16,
}  # fmt: skip
"""A GPU that is fit to measure on: somebody has locked its clock."""


@pytest.fixture(autouse=True)
def without_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(psutil, "process_iter", lambda attributes: [])


def troubles(driver: Driver, **answers: Any) -> list[DiagnosisItem]:
    driver.set(**WELL)
    driver.set(**answers)
    first, *others = gpu_disturbances()
    assert first.ok
    assert not any(item.ok for item in others)
    assert all(item.hint for item in others)
    return others


def test_a_gpu_that_is_fit_is_one_line(driver: Driver) -> None:
    assert troubles(driver) == []
    (line,) = gpu_disturbances()
    assert line.name == "GPU 0"
    assert line.found == (
        "NVIDIA Example: persistence mode on, clock 1980 MHz, held by a user's setting, power limit 700 W, "
        "temperature 41 °C, other processes none, ECC on, MIG mode off, PCIe link x16"
    )


@pytest.mark.parametrize(
    ("answers", "name", "found", "hint"),
    [
        ({"GetPersistenceMode": 0}, "persistence mode", "off: the driver unloads", "sudo nvidia-smi -i 0 -pm 1"),
        ({"GetCurrentClocksEventReasons": 0}, "clock", "not locked, 1980 of up to 1980 MHz now", "--clocks lock"),
        ({"GetAutoBoostedClocksEnabled": [1, 1]}, "auto boost", "on", "sudo nvidia-smi -i 0 --auto-boost-default=0"),
        ({"GetPowerManagementLimit": 500_000}, "power limit", "500 W, below its default of 700 W, 700 W is possible",
         "sudo nvidia-smi -i 0 -pl 700"),
        ({"GetCurrentClocksEventReasons": 0x2 | 0x4 | 0x40}, "throttling", "held down by power and temperature",
         "cooled down"),
        ({"GetTemperature": {"0": 88}}, "temperature", "88 °C, and from 95 °C on", "cool"),
        ({"GetEccMode": [1, 0]}, "ECC", "on, and off after the next reset", "sudo nvidia-smi -i 0 --gpu-reset"),
        ({"GetTotalEccErrors": {"0": 3}}, "memory", "3 errors since", "results may be wrong"),
        ({"GetRetiredPagesPendingStatus": 1}, "memory", "replaced at the next reset", "--gpu-reset"),
        ({"GetRemappedRows": [0, 1, 1, 0]}, "memory", "replaced at the next reset", "--gpu-reset"),
        ({"GetRemappedRows": [0, 1, 0, 1]}, "memory", "could not be replaced", "replace the GPU"),
        ({"GetMigMode": [1, 1]}, "MIG mode", "on: its instances share", "sudo nvidia-smi -i 0 -mig 0"),
        ({"GetComputeMode": 2}, "compute mode", "prohibited", "sudo nvidia-smi -i 0 -c DEFAULT"),
        ({"GetComputeMode": 3}, "compute mode", "exclusive", "sudo nvidia-smi -i 0 -c DEFAULT"),
        ({"GetCurrPcieLinkWidth": 8}, "PCIe link", "x8 of x16", "slot"),
    ],
)  # fmt: skip
def test_each_trouble_is_a_line_with_what_to_do(
    driver: Driver, answers: dict[str, Any], name: str, found: str, hint: str
) -> None:
    (item,) = troubles(driver, **answers)
    assert item.name == f"{name} of GPU 0"
    assert found in item.found
    assert hint in item.hint


def test_a_limit_that_could_be_raised_is_no_trouble(driver: Driver) -> None:
    assert troubles(driver, GetPowerManagementLimitConstraints=[200_000, 800_000]) == []
    assert "power limit 700 W, 800 W is possible" in gpu_disturbances()[0].found


@pytest.mark.parametrize(("user", "may"), [(0, "which this user is"), (1000, "which this user is not")])
def test_who_may_lock_the_clock_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch, user: int, may: str) -> None:
    monkeypatch.setattr(module, "lease_state", lambda uuid: (None, False))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    (item,) = troubles(driver, GetCurrentClocksEventReasons=0)
    assert item.hint.endswith(may)


def test_a_clock_that_a_killed_run_left_locked_has_the_command_that_sets_it_back(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "lease_state", lambda uuid: (LockedClocks(1500), False))
    (item,) = troubles(driver)
    assert item.found == "left locked at 1500 MHz by a run that was killed"
    assert item.hint.startswith(f"sudo nvidia-smi -i GPU-{UUID} -rgc")
    monkeypatch.setattr(module, "lease_state", lambda uuid: (LockedClocks(1500), True))
    assert troubles(driver) == []
    assert "held by a run of opmark" in gpu_disturbances()[0].found


def test_processes_of_others_are_named_and_this_one_is_not(driver: Driver) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        running = [[os.getpid(), 1 << 30], [other.pid, 2 << 30]]
        (item,) = troubles(
            driver, GetComputeRunningProcesses=running, GetMPSComputeRunningProcesses=[[2**22 + 1, None]]
        )
        other.send_signal(signal.SIGKILL)
    assert item.name == "other processes of GPU 0"
    assert item.found == f"2 processes: {psutil.Process().name()} {other.pid} (2.00 GiB), pid {2**22 + 1} (0 B)"
    many = [[2**22 + i, 0] for i in range(5)]
    (item,) = troubles(driver, GetComputeRunningProcesses=many)
    assert item.found.endswith("and 2 more")


def test_what_a_gpu_does_not_tell_is_left_out(driver: Driver) -> None:
    driver.set(**dict.fromkeys((*WELL, "GetClockInfo", "GetMaxClockInfo")))
    assert gpu_disturbances() == [DiagnosisItem("GPU 0", True, "NVIDIA Example")]


def test_each_gpu_that_frameworks_see_is_examined(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.set(**WELL)
    driver.set(OTHER, **{**WELL, "GetPersistenceMode": 0})
    assert [item.name for item in gpu_disturbances()] == ["GPU 0", "GPU 1", "persistence mode of GPU 1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{OTHER[:8]}")
    first, second = gpu_disturbances()
    assert (first.name, second.hint) == ("GPU 1", "sudo nvidia-smi -i 1 -pm 1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_disturbances() == []


def test_the_daemon_that_lets_processes_share_a_gpu_is_found(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        info = {"name": "nvidia-cuda-mps-control"}  # noqa: RUF012 - as psutil has it

    driver.set(**WELL)
    monkeypatch.setattr(psutil, "process_iter", lambda attributes: [Process])
    assert gpu_disturbances()[-1].name == "MPS"


def test_a_driver_that_does_not_answer_is_a_trouble_and_none_is_not(driver: Driver) -> None:
    driver.fail("nvmlInit", 9)
    assert gpu_disturbances() == []
    driver.fail("nvmlInit", 18)
    (item,) = gpu_disturbances()
    assert (item.ok, item.found) == (False, "NVML does not answer: error 18")
    assert item.hint


def test_without_the_library_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_disturbances() == []
