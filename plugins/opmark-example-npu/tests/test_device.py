"""The chip by itself: a queue, a memory, a clock. What a vendor would test of a backend of theirs."""

from __future__ import annotations

import gc
from functools import partial
from threading import Event

import numpy as np
import pytest
from opmark_example_npu import NPU_SIM
from opmark_example_npu.backend import NpuBackend
from opmark_example_npu.device import Device, NpuOutOfMemory, NpuTensor

from opmark.errors import TimerFailed
from opmark.plugin import Function
from opmark.schema import TensorSpec

SPEC = TensorSpec((256,), "float32")


@pytest.fixture
def npu() -> NpuBackend:
    backend = NPU_SIM.load(1)
    assert isinstance(backend, NpuBackend)
    return backend


def test_a_launch_returns_before_its_work_is_done_and_waiting_waits(npu: NpuBackend) -> None:
    gate, x = Event(), npu.tensor(SPEC, 0)

    def double(array):
        assert gate.wait(30)
        return array * 2

    launch = npu.compile(Function(double, (x,)), {"x": x})
    gate.set()
    launch()  # the first one waits, to see how many results there are
    gate.clear()
    y = launch()
    assert y.array is None
    gate.set()
    npu.synchronize()
    assert (npu.to_numpy(y) == 2 * npu.to_numpy(x)).all()


def test_a_launch_sees_what_is_in_its_inputs_when_it_runs(npu: NpuBackend) -> None:
    x = npu.tensor(SPEC, 0)
    launch = npu.compile(Function(np.negative, (x,)), {"x": x})
    launch()
    npu.copy_into(x, npu.tensor(SPEC, 1))
    assert (npu.to_numpy(launch()) == -npu.to_numpy(npu.tensor(SPEC, 1))).all()


def test_what_fails_in_the_queue_is_told_to_whoever_waits_and_then_forgotten() -> None:
    device, ran = Device(1 << 20), []
    device.launch("bad", partial(int, "no number"))
    device.launch("behind", partial(ran.append, "behind"))
    with pytest.raises(ValueError, match="no number"):
        device.synchronize()
    device.launch("after", partial(ran.append, "after"))
    device.synchronize()
    assert ran == ["after"]


def test_the_host_cannot_look_into_device_memory(npu: NpuBackend) -> None:
    with pytest.raises(TypeError, match="copy it to the host first"):
        np.asarray(npu.tensor(SPEC, 0))
    assert npu.deferred(np.zeros(1)) == "a ndarray, and tensors of npu-sim are of type NpuTensor"


def test_memory_is_counted_and_given_back_and_views_are_free(npu: NpuBackend) -> None:
    memory = npu.memory()
    before = memory.start()
    x = npu.tensor(SPEC, 0)
    view = npu.compile(Function(np.transpose, (x,)), {"x": x})()
    assert memory.peak() - before == SPEC.nbytes
    del x
    gc.collect()
    assert memory.start() - before == SPEC.nbytes, "the view still holds it"
    del view
    gc.collect()
    assert memory.start() == before


def test_a_launch_with_two_results_returns_both(npu: NpuBackend) -> None:
    x = npu.tensor(SPEC, 0)
    launch = npu.compile(Function(np.modf, (x,)), {"x": x})
    launch()
    fraction, whole = launch()
    assert (npu.to_numpy(fraction) + npu.to_numpy(whole) == npu.to_numpy(x)).all()


def test_a_poisoned_tensor_is_overwritten(npu: NpuBackend) -> None:
    x = npu.tensor(SPEC, 0)
    npu.poison(x)
    assert np.isnan(npu.to_numpy(x)).all()


def test_outputs_that_nobody_wants_are_given_back(npu: NpuBackend) -> None:
    x = npu.tensor(SPEC, 0)
    launch = npu.compile(Function(np.negative, (x,)), {"x": x})
    before = npu.memory().start()
    for _ in range(100):
        launch()
    npu.synchronize()
    assert npu.memory().start() == before
    assert npu.memory().peak() <= before + 2 * SPEC.nbytes


def test_memory_ends_also_in_the_middle_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_NPU_MEMORY", "3000")
    npu = NPU_SIM.load(1)
    x = npu.tensor(SPEC, 0)
    launch = npu.compile(Function(np.negative, (x,)), {"x": x})
    kept = launch()
    launch()  # says nothing yet
    with pytest.raises(NpuOutOfMemory) as caught:
        npu.synchronize()
    assert npu.classify(caught.value) == "oom"
    assert npu.usable()
    assert isinstance(kept, NpuTensor)
    with pytest.raises(NpuOutOfMemory):
        npu.tensor(SPEC, 1)


def test_the_clock_gives_each_call_its_kernels_and_leaves_out_what_comes_before(npu: NpuBackend) -> None:
    x = npu.tensor(SPEC, 0)
    one = npu.compile(Function(np.negative, (x,)), {"x": x})
    one()

    def two():
        return one(), one()

    trace = npu.device_clock().trace([one, two], npu.overwrite(64), hold=0.001)
    assert [[activity.name for activity in call] for call in trace.calls] == [["negative"], ["negative"] * 2]
    flat = [moment for call in trace.calls for activity in call for moment in activity[1:]]
    assert flat == sorted(flat), "one after the other"
    assert flat[0] >= 0.001, "behind what holds the device"
    assert (trace.lost, trace.stray) == (0, 0)


def test_what_the_chip_does_not_have_is_said(npu: NpuBackend) -> None:
    with pytest.raises(TimerFailed, match="npu-log has no events"):
        npu.device_clock().queued([], None, 0)
    with pytest.raises(TimerFailed, match="npu-log has no graphs"):
        npu.device_clock().capture([])
