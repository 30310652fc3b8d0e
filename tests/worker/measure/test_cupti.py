"""CUPTI's clock and the gate, on a GPU that is not there."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_gpu import LAUNCH, CuptiError, FakeGpu, Kind, Status
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import TimerFailed
from opmark.plugin import Activity, DeviceClock, Trace
from opmark.worker.measure.cupti import CuptiClock, _DeviceRecord, assign_records, demangle, open_cupti
from opmark.worker.measure.sampler import busy, span


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def clock(gpu: FakeGpu) -> CuptiClock:
    return CuptiClock(gpu.cupti, gpu.driver, gpu.synchronize, None)


def names(trace: Trace) -> list[list[str]]:
    return [[activity.name for activity in call] for call in trace.calls]


def test_every_call_has_its_own_work(gpu: FakeGpu, clock: CuptiClock) -> None:
    def two() -> None:
        gpu.launch("first", 3e-6)
        gpu.launch("second", 2e-6)

    trace = clock.trace([two, gpu.launch, lambda: None], None, 0.01)
    assert names(trace) == [["first", "second"], ["kernel"], []]
    assert [busy(call) for call in trace.calls] == [pytest.approx(5e-6), pytest.approx(1e-6), 0.0]
    assert (trace.lost, trace.stray, trace.queued) == (0, 0, True)


def test_what_runs_before_each_call_does_not_count(gpu: FakeGpu, clock: CuptiClock) -> None:
    trace = clock.trace([gpu.launch] * 3, lambda: gpu.launch("flush", 1e-3), 0.01)
    assert names(trace) == [["kernel"]] * 3
    assert trace.stray == 0


def test_copies_and_fills_of_a_call_count(gpu: FakeGpu, clock: CuptiClock) -> None:
    def call() -> None:
        gpu.launch("", 2e-6, kind=Kind.MEMCPY)
        gpu.launch("", 3e-6, kind=Kind.MEMSET)
        gpu.launch("", 4e-6, kind=Kind.MEMCPY2)

    trace = clock.trace([call], None, 0.0)
    assert names(trace) == [["Memcpy DtoD", "Memset", "Memcpy DtoD"]]
    assert busy(trace.calls[0]) == pytest.approx(9e-6)


def test_kernels_of_one_graph_belong_to_its_call(gpu: FakeGpu, clock: CuptiClock) -> None:
    trace = clock.trace([lambda: gpu.graph(("a", 1e-6), ("b", 2e-6))] * 2, None, 0.0)
    assert names(trace) == [["a", "b"], ["a", "b"]]
    assert [busy(call) for call in trace.calls] == [pytest.approx(3e-6)] * 2


def test_branches_of_a_graph_overlap_in_the_span_and_add_up_in_the_time(gpu: FakeGpu, clock: CuptiClock) -> None:
    def branches() -> None:
        gpu.graph(("root", 100e-6, 7), ("left", 300e-6, 8), ("right", 200e-6, 9), ("right again", 50e-6, 9))

    (call,) = clock.trace([branches], None, 0.01).calls
    assert busy(call) == pytest.approx(650e-6)
    assert span(call) == pytest.approx(300e-6)


def test_calls_that_overlap_each_other_keep_their_own_spans(gpu: FakeGpu, clock: CuptiClock) -> None:
    """The second call begins on its first stream while the other stream still works for the first call."""

    def both() -> None:
        gpu.launch("short", 100e-6, stream=8)
        gpu.launch("long", 300e-6, stream=9)

    first, second = clock.trace([both] * 2, None, 0.01).calls
    assert (busy(first), busy(second)) == (pytest.approx(400e-6), pytest.approx(400e-6))
    assert (span(first), span(second)) == (pytest.approx(300e-6), pytest.approx(500e-6))


def test_work_on_two_streams_overlaps_in_the_span_and_adds_up_in_the_time(gpu: FakeGpu, clock: CuptiClock) -> None:
    def both() -> None:
        gpu.launch("long", 400e-6, stream=8)
        gpu.launch("short", 200e-6, stream=9)

    (call,) = clock.trace([both], None, 0.01).calls
    assert busy(call) == pytest.approx(600e-6)
    assert span(call) == pytest.approx(400e-6)


def test_a_closed_gate_keeps_launches_out_of_the_span(gpu: FakeGpu, clock: CuptiClock) -> None:
    def many() -> None:
        for _ in range(10):
            gpu.launch("tiny", 1e-7)

    live, held = (clock.trace([many], None, hold).calls[0] for hold in (0.0, 0.01))
    assert span(live) == pytest.approx(9 * LAUNCH * 1e-9 + 1e-7)
    assert span(held) == pytest.approx(1e-6)
    assert busy(live) == pytest.approx(busy(held))


def test_a_call_that_waits_for_the_device_ends_the_hold(gpu: FakeGpu, clock: CuptiClock) -> None:
    def waits() -> None:
        gpu.launch()
        gpu.synchronize()

    trace = clock.trace([waits] * 2, None, 0.01)
    assert not trace.queued
    assert names(trace) == [["kernel"]] * 2


def test_work_outside_of_calls_is_stray(gpu: FakeGpu, clock: CuptiClock) -> None:
    later = []

    def call() -> None:
        later.append(gpu.launch)

    def synchronize() -> None:
        while later:
            later.pop()("late")
        gpu.synchronize()

    late = CuptiClock(gpu.cupti, gpu.driver, synchronize, None)
    trace = late.trace([call, call], None, 0.0)
    assert (trace.calls, trace.stray) == ([[], []], 2)


def test_work_that_a_call_leaves_to_a_thread_is_stray_where_the_harness_runs_something(
    gpu: FakeGpu, clock: CuptiClock
) -> None:
    """It is launched after the call has returned, beside what the harness does before the next one."""
    left: list[str] = []

    def call() -> None:
        gpu.launch()
        left.append("late")

    def overwrite() -> None:
        gpu.launch("flush", 1e-3)
        while left:
            gpu.launch(left.pop())

    trace = clock.trace([call, call, gpu.launch], overwrite, 0.01)
    assert (names(trace), trace.stray) == ([["kernel"]] * 3, 2)


def test_records_that_were_dropped_are_noticed(gpu: FakeGpu, clock: CuptiClock) -> None:
    def drops() -> None:
        gpu.dropped = 3

    with pytest.raises(TimerFailed, match="dropped 3 records"):
        clock.trace([drops], None, 0.0)
    gpu.dropped = 5  # by another profiler, before
    assert names(clock.trace([gpu.launch], None, 0.0)) == [["kernel"]]


def test_a_clock_that_another_profiler_has_changed_is_set_back(gpu: FakeGpu, clock: CuptiClock) -> None:
    """torch's profiler makes CUPTI count in cycles of the processor, until CUPTI is taken out of the process."""
    clock.trace([gpu.launch], None, 0.0)
    gpu.in_cycles = True
    trace = clock.trace([gpu.launch] * 2, None, 0.0)
    assert [busy(call) for call in trace.calls] == [pytest.approx(1e-6)] * 2
    assert gpu.calls.count("finalize") == 1
    gpu.in_cycles = gpu.stays_in_cycles = True
    with pytest.raises(TimerFailed, match="has changed the clock"):
        clock.trace([gpu.launch], None, 0.0)


def test_another_tool_that_takes_the_records_is_noticed(gpu: FakeGpu, clock: CuptiClock) -> None:
    gpu.silent = True
    with pytest.raises(TimerFailed, match="0 of 2 marks"):
        clock.trace([gpu.launch], None, 0.0)


def test_a_call_that_raises_leaves_nothing_behind(gpu: FakeGpu, clock: CuptiClock) -> None:
    def fails() -> None:
        gpu.launch("before it failed")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        clock.trace([fails], None, 0.01)
    assert not gpu.enabled
    gpu.synchronize()
    assert names(clock.trace([gpu.launch] * 2, None, 0.01)) == [["kernel"]] * 2


def test_detaching_takes_cupti_out_until_the_next_trace(gpu: FakeGpu, clock: CuptiClock) -> None:
    clock.detach()
    assert "finalize" not in gpu.calls  # it was never in
    clock.trace([gpu.launch], None, 0.0)
    clock.detach()
    clock.detach()
    assert gpu.calls.count("finalize") == 1
    assert names(clock.trace([gpu.launch], None, 0.0)) == [["kernel"]]


@pytest.mark.parametrize(
    ("refused", "with_what"),
    [
        ("activity_enable", CuptiError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")),
        ("activity_register_callbacks", RuntimeError("libcupti.so.13 is not there")),
    ],
)
def test_what_cupti_refuses_is_said(gpu: FakeGpu, clock: CuptiClock, refused: str, with_what: Exception) -> None:
    gpu.refuses[refused] = with_what
    with pytest.raises(TimerFailed, match=f"CUPTI refuses {refused}: {with_what}"):
        clock.trace([gpu.launch], None, 0.0)


def test_what_the_driver_refuses_is_said(gpu: FakeGpu) -> None:
    gpu.refuses["cuModuleLoadData"] = Status.CUDA_ERROR_INVALID_PTX
    with pytest.raises(TimerFailed, match="the driver refuses cuModuleLoadData: CUDA_ERROR_INVALID_PTX"):
        CuptiClock(gpu.cupti, gpu.driver, gpu.synchronize, None)


@pytest.mark.parametrize(("current", "retained"), [(0xA0, 0), (0, 1)])
def test_the_gate_takes_the_context_of_the_framework(gpu: FakeGpu, current: int, retained: int) -> None:
    gpu.contexts = current
    CuptiClock(gpu.cupti, gpu.driver, gpu.synchronize, None)
    assert gpu.calls.count("cuDevicePrimaryCtxRetain") == retained
    assert gpu.calls.count("cuCtxPushCurrent") == gpu.calls.count("cuCtxPopCurrent")


# Clocks of frameworks beside it


class Torchlike(DeviceClock):
    name = "torch-profiler"
    replaceable = True

    def trace(self, launches: Any, before: Any, hold: float) -> Trace:
        return Trace([[Activity("own", 0.0, 1e-6)] for _ in launches])

    def queued(self, launches: Any, before: Any, hold: float) -> list[float]:
        return [1.0]

    def capture(self, launches: Any) -> Any:
        return lambda: 2.0


def test_events_and_graphs_are_those_of_the_framework(gpu: FakeGpu, clock: CuptiClock) -> None:
    both = CuptiClock(gpu.cupti, gpu.driver, gpu.synchronize, Torchlike())
    assert both.queued([gpu.launch], None, 0.0) == [1.0]
    assert both.capture([gpu.launch])() == 2.0
    assert both.find("torch-profiler").name == "torch-profiler"  # type: ignore[union-attr]
    assert both.find("") is both.find("cupti") is both
    assert both.find("events") is None
    for way in (clock.queued, clock.capture):
        with pytest.raises(TimerFailed, match="cupti has no"):
            way(*([gpu.launch], None, 0.0)[: 3 if way == clock.queued else 1])  # type: ignore[call-arg]


def test_it_is_opened_where_it_can_be_read(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "cuda.bindings", "cupti"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", gpu.driver)
    monkeypatch.setattr(sys.modules["cuda.bindings"], "driver", gpu.driver, raising=False)
    monkeypatch.setattr(sys.modules["cupti"], "cupti", gpu.cupti, raising=False)
    found, why = open_cupti(gpu.synchronize, None)
    assert isinstance(found, CuptiClock)
    assert not why
    gpu.silent = True
    assert open_cupti(gpu.synchronize, None) == (None, "CUPTI recorded 0 of 2 marks of calls")
    assert gpu.calls.count("finalize") == 2  # launches are as fast as before, whether it can be read or not


@pytest.mark.parametrize(
    ("broken", "why"),
    [(None, "cupti-python is not installed"), (SimpleNamespace(), "cupti-python cannot be imported: cannot import")],
)
def test_where_it_cannot_be_imported_the_reason_is_said(
    broken: Any, why: str, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=gpu.driver))
    monkeypatch.setitem(sys.modules, "cupti", broken)
    found, reason = open_cupti(gpu.synchronize, None)
    assert found is None
    assert reason.startswith(why)


# Records


def test_a_record_without_times_is_a_lost_call() -> None:
    records = [
        _DeviceRecord(1, "gate", 5, 6), _DeviceRecord(3, "a", 10, 20), _DeviceRecord(6, "b", 0, 0),
        _DeviceRecord(7, "c", 30, 40),
    ]  # fmt: skip
    trace = assign_records(records, [2, 4, 8], 2, harness=False)
    assert [len(call) for call in trace.calls] == [1, 0]
    assert trace.lost == 1


def test_nothing_of_the_harness_means_nothing_was_recorded() -> None:
    with pytest.raises(TimerFailed, match="recorded nothing of the device"):
        assign_records([_DeviceRecord(3, "a", 10, 20)], [2, 4], 1, harness=False)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_each_record_belongs_to_the_call_that_launched_it(launches: list[int], order: Any, harness: bool) -> None:
    """Numbers of calls of the driver grow, whatever the order in which records arrive."""
    number, marks, records = 1, [], [_DeviceRecord(1, "gate", 1, 2)]
    for call, count in enumerate(launches):
        if harness:
            number += 1
            records.append(_DeviceRecord(number, "before", number, number + 1))
        if harness or not call:
            number += 1
            marks.append(number)
        for _ in range(count):
            number += 1
            records.append(_DeviceRecord(number, f"{call}", number, number + 1))
        number += 1
        marks.append(number)
    order.shuffle(records)
    trace = assign_records(records, marks, len(launches), harness=harness)
    assert [[one.name for one in call] for call in trace.calls] == [[f"{i}"] * n for i, n in enumerate(launches)]
    assert (trace.lost, trace.stray) == (0, 0)
    assert all(a.start <= b.start for call in trace.calls for a, b in pairwise(call))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("_ZN2at6native4copyIfEEvT_", "void at::native::copy<float>(float)"),
        ("triton_softmax_2", "triton_softmax_2"),
        ("_Zbroken", "_Zbroken"),
    ],
)
def test_names_of_kernels_are_those_of_their_source(name: str, shown: str) -> None:
    assert demangle(name) == shown
