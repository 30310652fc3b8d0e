"""A backend with the four methods that every one has, and what the defaults of the others make of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from opmark.errors import TimerFailed, Unsupported
from opmark.plugin import (
    Activity,
    Backend,
    BackendInfo,
    DeviceClock,
    Function,
    HostBackend,
    Implementation,
    Launch,
    Trace,
    World,
)
from opmark.plugin.registry import operator as find_operator
from opmark.schema import EFFORTS, Case, Record, Settings, Task, TensorSpec
from opmark.worker.task_runner import TaskRunner

INFO = BackendInfo(name="four-cpu", framework="numpy", device="chip", loads="four_methods:Four")


class Tensor:
    def __init__(self, array: Any) -> None:
        self.array = array


class Four(Backend):
    """A chip whose tensors are its own, with nothing but what every backend needs."""

    def upload(self, array: Any, dtype: str) -> Tensor:
        return Tensor(array)

    def download(self, tensor: Tensor) -> Any:
        return tensor.array

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        return lambda: Tensor(built.call(*(argument.array for argument in built.arguments)))

    def synchronize(self) -> None:
        pass


class Copying(Four):
    def copy_into(self, target: Tensor, source: Tensor) -> None:
        target.array[...] = source.array


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


RELU = Implementation("numpy", lambda p, x: Function(relu, (x,)))


def measured(live: Backend, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Record:
    monkeypatch.setattr("opmark.worker.task_runner.implementations", lambda operator, info, *, every: (RELU,))
    operator = find_operator("relu")
    case = Case.of("relu", operator.complete(operator.preset("small")), "forward")
    given = Settings(1, "quick", EFFORTS["quick"], **settings)
    return TaskRunner(INFO, live).run(Task(case, INFO.name, "numpy", given))


def test_four_methods_are_all_that_is_missing() -> None:
    assert Backend.__abstractmethods__ == {"upload", "download", "compile", "synchronize"}
    assert HostBackend.__abstractmethods__ == {"upload", "download"}


def test_an_operator_is_verified_and_timed_with_four_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(Four(INFO, 1), monkeypatch)
    assert (record.status, record.reason) == ("ok", "")
    assert [m.quantity for m in record.measurements] == ["latency"]
    assert record.verification is not None
    assert record.verification.checked == "full"
    assert record.verification.after == "not done: four-cpu cannot put other data into a tensor"
    assert record.memory is None, "the pages of the process are not the memory of a chip"


def test_with_a_copy_it_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(Copying(INFO, 1), monkeypatch)
    assert record.verification is not None
    assert record.verification.after == "same"


def test_a_quantity_that_takes_more_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(Four(INFO, 1), monkeypatch, quantities=("device_time", "latency"))
    assert [m.quantity for m in record.measurements] == ["latency"]
    assert record.notes == ("device_time: four-cpu has no clock of its own on a device",)


def test_cold_calls_go_over_copies_where_caches_cannot_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Four, "cache_bytes", lambda self: 1 << 20)
    record = measured(Four(INFO, 1), monkeypatch, caches=("cold",), quantities=("latency",))
    assert [m.cache for m in record.measurements] == ["cold"]
    assert "rotated over" in record.measurements[0].control


def test_nothing_is_called_cold_where_neither_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Four, "cache_bytes", lambda self: 1 << 40)
    record = measured(Four(INFO, 1), monkeypatch, caches=("cold",), quantities=("latency",))
    assert record.status == "skipped"
    assert record.reason.startswith("latency cold: rotation would take")


class OnlyTraces(DeviceClock):
    """A clock with the one method that every one has."""

    name = "log"

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        for launch in launches:
            launch()
        return Trace([[Activity("relu", 0.0, 1e-3)] for _ in launches])


def test_a_clock_with_one_method_gives_device_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Four, "device_clock", lambda self: OnlyTraces())
    wanted = ("device_time", "device_span", "event_time")
    record = measured(Four(INFO, 1), monkeypatch, quantities=wanted, caches=("warm",))
    assert {m.quantity for m in record.measurements} == {"device_time", "device_span"}
    assert record.notes == ("event_time warm by events: log has no events",)


class OwnTimer:
    name, resolution = "chip", 1e-6

    def time(self, launch: Launch, calls: int) -> float:
        launch()
        return 1e-3 * calls

    def overhead(self, calls: int) -> float:
        return 0.0


class Timed(Four):
    asynchronous = False

    def timers(self) -> Mapping[str, OwnTimer]:
        return {"device_time": OwnTimer()}


def test_a_timer_of_device_time_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip makes the calls by itself, so that nothing of this machine is a part of the time."""
    (found,) = measured(Timed(INFO, 1), monkeypatch).measurements
    assert (found.quantity, found.cache, found.timer) == ("device_time", "warm", "chip")
    assert set(found.samples) == {1e-3}
    asked = measured(Timed(INFO, 1), monkeypatch, quantities=("device_time", "latency"), caches=("cold",))
    assert (asked.status, asked.measurements) == ("skipped", ())
    assert asked.reason == (
        "device_time cold: it is that of a loop, which leaves its data in the caches; "
        "latency: four-cpu times calls by device_time alone"
    )


def test_facts_that_the_user_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    info = replace(INFO, device_variables={"chip": "MY_CHIP=10.0.0.7:1", "target": "MY_TARGET=x"})
    monkeypatch.setenv("MY_CHIP", "10.0.0.8:2")
    monkeypatch.delenv("MY_TARGET", raising=False)
    assert info.why_missing() == "MY_TARGET is not set, as in MY_TARGET=x"
    assert info.device_facts() == {"chip": "10.0.0.8:2", "target": ""}
    monkeypatch.setenv("MY_TARGET", "y")
    assert info.why_missing() is None


def test_a_clock_says_what_it_lacks() -> None:
    with pytest.raises(TimerFailed, match="log has no events"):
        OnlyTraces().queued([], None, 0)
    with pytest.raises(TimerFailed, match="log has no graphs"):
        OnlyTraces().capture([])


def test_an_output_of_another_type_is_not_trusted() -> None:
    live = Four(INFO, 1)
    tensor = live.tensor(TensorSpec((3,), "float32"), 0)
    assert live.deferred(tensor) is None
    assert live.deferred(np.zeros(3)) == "a ndarray, and tensors of four-cpu are of type Tensor"


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
def test_a_tensor_is_poisoned_by_what_no_operator_leaves_there(dtype: str) -> None:
    live = Copying(INFO, 1)
    tensor = live.tensor(TensorSpec((3,), dtype, 0, 2), 0)
    live.poison(tensor)
    worst = {"bool": 1, "int32": 2**31 - 1, "uint8": 255}.get(dtype, np.nan)
    np.testing.assert_array_equal(live.to_numpy(tensor), np.full(3, worst))
    assert live.dtype(tensor) == dtype


def test_what_is_looked_at_is_a_copy_and_a_few_elements_of_it() -> None:
    live = Copying(INFO, 1)
    tensor = live.tensor(TensorSpec((3, 100), "float32"), 0)
    seen = live.to_numpy(tensor)
    assert seen.dtype == np.float64
    tensor.array.fill(7)
    assert not (seen == 7).any()
    assert live.sample(tensor, 10).tolist() == [7.0] * 10


def test_memory_that_was_not_written_is_read_without_a_warning() -> None:
    """A NaN that signals is reported by the processor when it is cast."""
    live = Four(INFO, 1)
    tensor = Tensor(np.full(16, 0x7F800001, np.uint32).view(np.float32))
    assert np.isnan(live.to_numpy(tensor)).all()
    assert np.isnan(live.sample(tensor, 4)).all()


def test_what_four_methods_cannot_do_is_unsupported() -> None:
    live = Four(INFO, 1)
    with pytest.raises(Unsupported, match="no automatic differentiation"):
        live.backward(lambda: None, (), 0)
    with pytest.raises(Unsupported, match="no way to join several processes"):
        live.join(World(0, 1, "localhost", 0, 1.0), lambda port: None)
    with pytest.raises(Unsupported, match="no tensors in pinned memory"):
        live.tensor(TensorSpec((3,), "float32", place="pinned"), 0)
    assert live.environment() == {"device": "chip", "threads": 1}
    assert live.usable()


def test_a_device_that_refuses_everything_is_not_usable() -> None:
    class Refuses(Four):
        def synchronize(self) -> None:
            raise OSError("the device is gone")

    assert not Refuses(INFO, 1).usable()


def test_errors_are_told_apart_by_type_and_by_words() -> None:
    class Telling(Four):
        oom_messages = ("board full",)
        unsupported_errors = (NotImplementedError,)
        unsupported_messages = ("no such kernel",)

    live = Telling(INFO, 1)
    errors = [MemoryError(), OSError("Board full: 3"), NotImplementedError(), OSError("No such kernel"), OSError("?")]
    assert [live.classify(error) for error in errors] == ["oom", "oom", "skipped", "skipped", None]


# Classes that were made for opmark 0.8.


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    made = ModuleType("four_methods")
    monkeypatch.setitem(sys.modules, "four_methods", made)
    return made


def test_a_class_that_is_no_backend_says_what_to_write(module: ModuleType) -> None:
    module.Four = type("Old", (), {"tensor": None, "to_numpy": None})  # type: ignore[attr-defined]
    reason = INFO.load(1).why_unavailable()
    assert reason is not None
    assert reason.startswith("four_methods:Four was made for another version of opmark: since 0.9 a backend is derived")
    assert "upload, download, compile and synchronize" in reason
    assert "docs/add-a-backend.md" in reason


def test_a_class_that_lacks_methods_names_them(module: ModuleType) -> None:
    module.Four = type("Old", (HostBackend,), {"tensor": None, "to_numpy": None})  # type: ignore[attr-defined]
    reason = INFO.load(1).why_unavailable()
    assert reason is not None
    assert reason.startswith(
        "four_methods:Four lacks download, upload, which every backend has since opmark 0.9; write"
    )


def test_a_module_that_is_broken_for_another_reason_is_not_called_old() -> None:
    with pytest.raises(ModuleNotFoundError):
        BackendInfo(name="x", framework="x", device="x", loads="no_such_module:Backend").load(1)
