"""Runs that lock clocks: what becomes of the clocks, whatever becomes of the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from nvml_fixtures import OTHER, UUID, Driver

import opmark
from opmark.api.result import open_store
from opmark.errors import UserError
from opmark.runner.clocks import CLOCK_NOT_HELD, FACT, ClockLocks
from opmark.schema import Case, Caution, Conditions, Environment, Measurement, Record, SensorReading, Task
from opmark.schema.messages import Hello
from opmark.schema.options import MeasureOptions

pytestmark = pytest.mark.machine

GPU = f"""
class Backend(NullBackend):
    def environment(self):
        return {{"device": "cuda", "gpu": "NVIDIA Example", "gpu_uuid": "{UUID}"}}
"""
SLOW = (
    GPU
    + """
    def tensor(self, spec, seed):
        Path(os.environ["STARTED"]).write_text("")
        time.sleep(600)
"""
)
Plugin = Callable[..., Any]


def hello(uuid: str | None = UUID, **facts: Any) -> Hello:
    gpu = {} if uuid is None else {"gpu": "NVIDIA Example", "gpu_uuid": uuid}
    return Hello(None, Environment.of({"backend": "torch-cuda", **gpu, **facts}))


@pytest.fixture
def locks(driver: Driver) -> Iterator[Callable[..., ClockLocks]]:
    made: list[ClockLocks] = []

    def make(clocks: str = "lock", say: Callable[[str], None] = print) -> ClockLocks:
        made.append(ClockLocks(clocks, say))
        return made[-1]

    yield make
    for one in made:
        one.close()


Locks = Callable[..., ClockLocks]


def test_clocks_are_locked_once_per_device_and_become_a_fact(driver: Driver, locks: Locks) -> None:
    said: list[str] = []
    found = locks(say=said.append)
    first, again = found.lock(hello()), found.lock(hello())
    assert first.environment.facts[FACT] == "locked at 1500 MHz, memory at 3201 MHz"
    assert first.environment == again.environment == Environment.of(first.environment.facts)
    assert said == ["--clocks: NVIDIA Example is locked at 1500 MHz, memory at 3201 MHz"]
    driver.set(OTHER, tdp=1300)
    assert "locked at 1300 MHz" in found.lock(hello(OTHER)).environment.facts[FACT]
    assert [call[:2] for call in driver.calls if call[0] == "SetGpuLockedClocks"] == [
        ["SetGpuLockedClocks", UUID],
        ["SetGpuLockedClocks", OTHER],
    ]
    found.close()
    assert driver.gpu()["locked"] is driver.gpu(OTHER)["locked"] is None


def test_a_number_of_megahertz_is_locked(driver: Driver, locks: Locks) -> None:
    assert "locked at 1200 MHz" in locks("lock=1200").lock(hello()).environment.facts[FACT]


def test_without_the_option_nothing_changes(driver: Driver, locks: Locks) -> None:
    asked = hello()
    assert locks("").lock(asked) is asked
    assert driver.calls == []


def test_a_worker_that_cannot_run_and_a_rank_elsewhere_are_left_alone(driver: Driver, locks: Locks) -> None:
    found = locks()
    for asked in (Hello("no GPU", hello().environment), hello(**{FACT: "locked at 900 MHz"})):
        assert found.lock(asked) is asked
    assert driver.calls == []


def test_where_it_is_not_permitted_the_run_goes_on_and_says_so_once(driver: Driver, locks: Locks) -> None:
    driver.fail("nvmlDeviceSetGpuLockedClocks", 4)
    said: list[str] = []
    found = locks(say=said.append)
    assert [found.lock(hello()).environment.facts[FACT] for _ in range(2)] == [
        "not locked: NVML: Insufficient Permissions (locking clocks takes root)"
    ] * 2
    (line,) = said
    assert "comparisons show cycles beside times" in line


@pytest.mark.usefixtures("driver")
def test_a_processor_has_no_clock_to_lock(locks: Locks) -> None:
    said: list[str] = []
    found = locks(say=said.append)
    for _ in range(2):
        assert found.lock(hello(None)).environment.facts[FACT] == "not locked: it is no NVIDIA GPU"
    (line,) = said
    assert "torch-cuda is not locked" in line


def test_an_answer_that_is_overdue_is_not_taken_for_the_next_one(
    driver: Driver, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = locks()
    with monkeypatch.context() as patience:
        patience.setattr("opmark.runner.clocks._LONGEST_ANSWER", 0.0)
        assert "does not answer in time" in found.lock(hello()).environment.facts[FACT]
    assert "does not answer in time" in found.lock(hello(OTHER)).environment.facts[FACT]
    found.close()
    assert driver.locked is None  # which the guard had locked in the end


def test_a_guard_that_dies_is_a_reason(driver: Driver, locks: Locks) -> None:
    found = locks()
    found.lock(hello())
    assert found._guard is not None
    found._guard.kill()
    found._guard.wait()
    driver.set(OTHER)
    assert "has died" in found.lock(hello(OTHER)).environment.facts[FACT]


def record(*clocks: float, throttle: tuple[str, ...] = ()) -> Record:
    readings = tuple(SensorReading(at=i, clock=clock * 1e6, throttle=throttle) for i, clock in enumerate(clocks))
    moved = Caution("clocks-moved", "the clock was ...")
    measurement = Measurement(
        "device_time", "cold", "cupti", [1e-6] * 3, 1, 0.0, 1, 1e-6, "count", (moved,), conditions=Conditions(readings)
    )
    settings = opmark.plan("add", backend="null", threads=1).tasks[0].settings
    return Record(Task(Case.of("add", {}, "forward"), "torch-cuda", "torch", settings), "ok", "", (measurement,))


@pytest.mark.parametrize(
    ("clocks", "hint"),
    [((1500, 1500), None), ((1490, 1510), None), ((1500, 1380), "--clocks lock=1380"), ((1980, 1980), "ignores")],
)
def test_a_clock_that_did_not_hold_is_a_caution(
    driver: Driver, locks: Locks, clocks: tuple[float, ...], hint: str | None
) -> None:
    found = locks()
    greeting = found.lock(hello())
    (measurement,) = found.check(record(*clocks, throttle=("power",)), greeting).measurements
    (caution,) = measurement.cautions
    if hint is None:
        assert caution.code == "clocks-moved"
    else:
        assert caution.code == CLOCK_NOT_HELD
        assert "locked at 1500 MHz" in caution.message
        assert "held down by power" in caution.message
        assert hint in caution.hint


def test_a_clock_that_was_not_locked_is_not_judged(driver: Driver, locks: Locks) -> None:
    driver.fail("nvmlDeviceSetGpuLockedClocks", 4)
    found, moving = locks(), record(1980, 1200)
    assert found.check(moving, found.lock(hello())) == moving
    assert ClockLocks().check(moving, hello()) == moving


@pytest.mark.parametrize("wrong", ["locked", "lock=", "lock=0", "lock=fast", "1500"])
def test_other_texts_are_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="expected `lock` or `lock=MHZ`") as error:
        MeasureOptions(clocks=wrong)
    assert error.value.hint == "as in --clocks lock=1500"


# Whole runs.


def test_a_run_stores_what_was_locked_and_sets_it_back(driver: Driver, plugin: Plugin, tmp_path: Path) -> None:
    plugin("gpu", GPU)
    result = opmark.run("add", backend="gpu", clocks="lock", db=tmp_path / "store.db", say=lambda text: None)
    (found,) = result.records
    assert found.status == "ok"
    store = open_store(tmp_path / "store.db")
    (environment,) = store.environments([found.environment]).values()
    store.close()
    assert environment.facts[FACT] == "locked at 1500 MHz, memory at 3201 MHz"
    assert [call[0] for call in driver.calls] == [
        "SetGpuLockedClocks", "SetMemoryLockedClocks", "ResetGpuLockedClocks", "ResetMemoryLockedClocks",
    ]  # fmt: skip


def test_two_sides_are_measured_under_one_lock(driver: Driver, plugin: Plugin, tmp_path: Path) -> None:
    plugin("gpu", GPU)
    opmark.ab("add", backend="gpu", same=True, processes=2, clocks="lock", db=tmp_path / "a.db", say=lambda text: None)
    assert [call[0] for call in driver.calls].count("SetGpuLockedClocks") == 1
    assert driver.locked is None


def test_an_exception_in_the_middle_of_a_run_sets_the_clocks_back(
    driver: Driver, plugin: Plugin, tmp_path: Path
) -> None:
    plugin("gpu", GPU)

    def fail(record: Record) -> None:
        assert driver.locked == 1500
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opmark.run("add", backend="gpu", clocks="lock", db=tmp_path / "store.db", on_record=fail, say=lambda text: None)
    assert driver.locked is None


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_from_outside_leaves_no_locked_clock(
    driver: Driver,
    plugin: Plugin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait_for: Callable[..., None],
    sent: signal.Signals,
) -> None:
    plugin("gpu", SLOW)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "store.db"))
    command = [sys.executable, "-m", "opmark", "run", "add", "--backend", "gpu", "--clocks", "lock"]
    run = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
    wait_for((tmp_path / "started").exists, "the task")
    assert driver.locked == 1500
    children = psutil.Process(run.pid).children(recursive=True)
    os.killpg(run.pid, sent)  # the whole process group of the run
    run.communicate(timeout=60)
    wait_for(lambda: driver.locked is None, "the clocks to be set back")
    assert driver.calls[2:] == [["ResetGpuLockedClocks", UUID], ["ResetMemoryLockedClocks", UUID]]
    for child in children:
        wait_for(lambda child=child: not child.is_running(), f"the end of {child}")
