"""What would disturb a measurement, on a fake machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from opmark.hardware import disturbances as disturbances_module
from opmark.hardware import host as host_module
from opmark.schema import DiagnosisItem

Times = namedtuple("Times", "user system idle steal")


class FakeProcess:
    """A process that uses that share of a core, from the second question on."""

    def __init__(self, pid: int, name: str | None, share: float, error: Exception | None = None) -> None:
        self.pid = pid
        self.info = {"name": name}
        self._answers: Iterator[float] = iter((0.0, 100 * share))
        self._error = error

    def cpu_percent(self) -> float:
        if self._error:
            raise self._error
        return next(self._answers)


class Machine:
    """A fake machine that is quiet until a test changes it."""

    def __init__(self, patch: pytest.MonkeyPatch, cgroup: Path) -> None:
        self.load = 0.0
        self.processes: list[FakeProcess] = []
        self.times = [Times(10.0, 5.0, 100.0, 1.0), Times(10.1, 5.1, 100.4, 1.0)]
        self.governor: str | None = "performance"
        self.turbo: bool | None = False
        self.hyperthreads: bool | None = False
        self.swap = 0
        self.cgroup = cgroup
        readings = iter(range(2))
        patch.setattr(os, "getloadavg", lambda: (self.load, 0.0, 0.0))
        patch.setattr(psutil, "process_iter", lambda _attributes: list(self.processes))
        patch.setattr(psutil, "cpu_times", lambda: self.times[next(readings)])
        patch.setattr(psutil, "cpu_percent", lambda interval: None)
        patch.setattr(psutil, "swap_memory", lambda: SimpleNamespace(used=self.swap))
        patch.setattr(host_module, "affinity", lambda: [0, 1, 2, 3])
        for name in ("governor", "turbo", "hyperthreads"):
            patch.setattr(host_module, name, lambda name=name: getattr(self, name))
        patch.setattr(disturbances_module, "Path", lambda _: self.cgroup)

    def findings(self) -> dict[str, DiagnosisItem]:
        return {finding.name: finding for finding in disturbances_module.disturbances()}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path / "cpu.max")


def test_a_quiet_machine_is_fit(machine: Machine) -> None:
    found = machine.findings()
    assert found.keys() == {"load", "other processes", "steal", "governor", "turbo", "hyper-threads", "swap"}
    assert [name for name, finding in found.items() if not finding.ok] == []


def _load(machine: Machine) -> None:
    machine.load = 2.1


def _process(machine: Machine) -> None:
    machine.processes = [FakeProcess(-1, "compiler", 0.9)]


def _steal(machine: Machine) -> None:
    machine.times[1] = Times(10.1, 5.1, 100.4, 1.1)


def _quota(machine: Machine) -> None:
    machine.cgroup.write_text("150000 100000\n")


CAUSES: dict[str, tuple[Callable[[Machine], None], str]] = {
    "load": (_load, "2.10"),
    "other processes": (_process, "compiler 90 %"),
    "steal": (_steal, "14 %"),
    "governor": (lambda m: setattr(m, "governor", "powersave"), "powersave"),
    "turbo": (lambda m: setattr(m, "turbo", True), "on"),
    "hyper-threads": (lambda m: setattr(m, "hyperthreads", True), "on"),
    "container quota": (_quota, "1.5 cores"),
    "swap": (lambda m: setattr(m, "swap", 2**30), "1.00 GiB"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_what_disturbs_is_named_with_its_figure_and_a_hint(machine: Machine, name: str) -> None:
    cause, figure = CAUSES[name]
    cause(machine)
    found = machine.findings()
    assert [n for n, finding in found.items() if not finding.ok] == [name]
    assert figure in found[name].found
    assert found[name].hint


@pytest.mark.parametrize(("load", "fit"), [(1.9, True), (2.0, False)])
def test_half_of_the_cores_may_be_loaded(machine: Machine, load: float, fit: bool) -> None:
    machine.load = load
    assert machine.findings()["load"].ok is fit


def test_the_busiest_processes_are_named_first(machine: Machine) -> None:
    shares = {"a": 0.2, "b": 0.8, "c": 0.5, "d": 0.3, "idle": 0.05}
    machine.processes = [FakeProcess(-i - 1, name, share) for i, (name, share) in enumerate(shares.items())]
    assert machine.findings()["other processes"].found == "busy: b 80 %, c 50 %, d 30 %"


def test_this_process_does_not_disturb_itself(machine: Machine) -> None:
    machine.processes = [FakeProcess(os.getpid(), "opmark", 1.0)]
    assert machine.findings()["other processes"].ok


@pytest.mark.parametrize("error", [psutil.NoSuchProcess(1), psutil.AccessDenied(1), psutil.ZombieProcess(1)])
def test_a_process_that_is_gone_or_not_ours_is_passed_over(machine: Machine, error: psutil.Error) -> None:
    machine.processes = [FakeProcess(-1, "gone", 0.0, error), FakeProcess(-2, None, 0.4)]
    assert machine.findings()["other processes"].found == "busy: ? 40 %"


def test_a_clock_that_stands_still_is_no_steal(machine: Machine) -> None:
    machine.times[1] = machine.times[0]
    assert machine.findings()["steal"].ok


@pytest.mark.parametrize("attribute", ["turbo", "hyperthreads"])
def test_what_the_kernel_does_not_tell_is_left_out(machine: Machine, attribute: str) -> None:
    setattr(machine, attribute, None)
    name = {"turbo": "turbo", "hyperthreads": "hyper-threads"}[attribute]
    assert name not in machine.findings()


def test_a_governor_that_is_not_told_is_said(machine: Machine) -> None:
    machine.governor = None
    finding = machine.findings()["governor"]
    assert finding.ok
    assert "not reported" in finding.found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000", None),
        ("400000 100000", (True, "4 cores", "--threads 4")),
        ("200000 100000", (False, "2 cores", "--threads 2")),
        ("50000 100000", (False, "0.5 cores", "--threads 1")),
    ],
)
def test_a_container_may_have_less_time_than_cores(machine: Machine, text: str, expected: Any) -> None:
    machine.cgroup.write_text(text + "\n")
    finding = machine.findings().get("container quota")
    if expected is None:
        assert finding is None
    else:
        ok, found, hint = expected
        assert finding is not None
        assert (finding.ok, finding.found) == (ok, found)
        assert hint in finding.hint


def test_what_belongs_to_the_run_itself_is_no_disturbance() -> None:
    """On the real machine: a process that is busy, under one that is not."""
    inner = "while True: pass"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], start_new_session=True) as started:
        try:
            until = time.monotonic() + 30
            while not (children := psutil.Process(started.pid).children()) and time.monotonic() < until:
                time.sleep(0.05)
            (child,) = children
            seen = []
            usual = psutil.process_iter
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(psutil, "process_iter", lambda _: [p for p in usual(["name"]) if p.pid == child.pid])
                for ignore in ((), (started.pid,)):
                    found = {item.name: item for item in disturbances_module.disturbances(0.5, ignore)}
                    seen.append(found["other processes"].ok)
        finally:
            os.killpg(started.pid, signal.SIGKILL)
    assert seen == [False, True]


def test_this_machine_can_be_looked_at() -> None:
    """On the real machine, every finding that is not ok has a hint."""
    found = disturbances_module.disturbances(seconds=0.05)
    assert {"load", "other processes", "steal", "governor", "swap"} <= {finding.name for finding in found}
    assert [finding for finding in found if not finding.ok and not finding.hint] == []
