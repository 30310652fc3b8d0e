"""What a device did, told from the profiler's records: invented ones, so that no device is needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import DeviceType
from torch.autograd.profiler import profile, record_function

from opmark.errors import TimerFailed, WrongResult
from opmark.frameworks.torch import device_clock
from opmark.frameworks.torch.device_clock import CudaClock, _by_call, poison
from opmark.plugin import Activity, Trace
from opmark.worker.measure.sampler import busy, span

TODAY = 1_790_000_000 * 10**9
"""Nanoseconds since 1970, as the profiler counts."""
CALL, OURS = "opmark::call", "opmark::harness"
EARLIER = 100
"""Nanoseconds by which the harness's first kernel comes before everything else of an invented record."""

without_cuda = pytest.mark.filterwarnings("ignore:CUDA is not available")


@dataclass(frozen=True)
class Event:
    """As torch's profiler hands them out, as far as anybody asks."""

    called: str
    device: DeviceType
    start: int
    end: int
    correlation: int = 0
    annotation: bool = False

    def name(self) -> str:
        return self.called

    def device_type(self) -> DeviceType:
        return self.device

    def start_ns(self) -> int:
        return TODAY + self.start

    def end_ns(self) -> int:
        return TODAY + self.end

    def correlation_id(self) -> int:
        return self.correlation

    def is_user_annotation(self) -> bool:
        return self.annotation


def _sign_of_life(start: int) -> list[Event]:
    """The launch of a kernel at that moment, and the device's record of it."""
    number = 1 << 30
    launch = Event("cudaLaunchKernel", DeviceType.CPU, start, start + 5, number)
    return [launch, Event("spin_kernel", DeviceType.CUDA, start + 10, start + 20, number)]


@dataclass
class Record:
    """A session of the profiler, written down as it happens; times are nanoseconds.

    It begins with a kernel of the harness, as every trace does; with `silent`, the device recorded nothing of it.
    """

    silent: bool = False
    events: list[Event] = field(default_factory=list)
    calls: int = 0
    _ids: Any = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.mark(OURS, -EARLIER, -EARLIER + 50)
        launch, kernel = _sign_of_life(-EARLIER + 1)
        self.events += [launch] if self.silent else [launch, kernel]

    def mark(self, name: str, start: int, end: int) -> Record:
        self.events.append(Event(name, DeviceType.CPU, start, end, annotation=True))
        self.calls += name == CALL
        return self

    def launch(self, at: int, *kernels: tuple[str, int, int], by: str = "cudaLaunchKernel") -> Record:
        """One call of the runtime, and what it made the device do."""
        correlation = next(self._ids)
        self.events.append(Event(by, DeviceType.CPU, at, at + 5, correlation))
        for name, start, end in kernels:
            self.events.append(Event(name, DeviceType.CUDA, start, end, correlation))
        return self

    def trace(self) -> Trace:
        return _by_call(self.events, self.calls)


def _names(trace: Trace) -> list[list[str]]:
    return [[activity.name for activity in call] for call in trace.calls]


def _nanoseconds(call: Sequence[Activity]) -> list[int]:
    return [round((activity.end - activity.start) * 1e9) for activity in call]


def test_work_belongs_to_the_call_that_launched_it_however_late_it_runs() -> None:
    record = Record().mark(CALL, 0, 100).mark(CALL, 200, 300)
    record.launch(10, ("first", 5000, 6000)).launch(210, ("second", 6000, 8000))
    trace = record.trace()
    assert _names(trace) == [["first"], ["second"]]
    assert list(map(_nanoseconds, trace.calls)) == [[1000], [2000]]
    assert (trace.lost, trace.stray) == (0, 0)


def test_the_moment_of_launch_decides_and_not_the_thread_nor_the_order_of_the_records() -> None:
    """Autograd launches from a thread of its own; records come in the order in which buffers are emptied."""
    record = Record().mark(CALL, 0, 100).mark(CALL, 200, 300)
    record.launch(250, ("backward", 900, 950)).launch(50, ("forward", 800, 850))
    record.events.reverse()
    assert _names(record.trace()) == [["forward"], ["backward"]]


@pytest.mark.parametrize(("at", "owned"), [(99, False), (100, True), (200, True), (201, False)])
def test_a_call_lasts_from_its_first_to_its_last_nanosecond(at: int, owned: bool) -> None:
    trace = Record().mark(CALL, 100, 200).launch(at, ("kernel", 500, 600)).trace()
    assert _names(trace) == ([["kernel"]] if owned else [[]])
    assert trace.stray == (not owned)


def test_the_harness_s_own_work_belongs_to_nobody() -> None:
    record = Record().mark(OURS, 0, 50).mark(OURS, 60, 100).mark(CALL, 110, 200).mark(OURS, 210, 250)
    record.launch(10, ("hold", 100, 900)).launch(70, ("flush", 900, 950), by="cudaMemsetAsync")
    record.launch(120, ("kernel", 950, 960)).launch(220, ("flush", 960, 990), by="cudaMemsetAsync")
    trace = record.trace()
    assert _names(trace) == [["kernel"]]
    assert (trace.lost, trace.stray) == (0, 0)


def test_a_lost_record_of_the_harness_costs_no_call() -> None:
    trace = Record().mark(OURS, 0, 50).mark(CALL, 60, 100).launch(10).launch(70, ("kernel", 100, 110)).trace()
    assert _names(trace) == [["kernel"]]
    assert trace.lost == 0


def test_a_kernel_that_is_launched_twice_counts_twice() -> None:
    record = Record().mark(CALL, 0, 100).launch(10, ("add", 200, 230)).launch(20, ("add", 230, 270))
    assert _names(record.trace()) == [["add", "add"]]
    assert _nanoseconds(record.trace().calls[0]) == [30, 40]


LAUNCHING = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cuLaunchKernel",
             "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunchKernel",
             "hipExtLaunchKernel", "hipModuleLaunchKernel", "hipGraphLaunch", "hipMemcpyAsync",
             "hipMemsetAsync")  # fmt: skip


@pytest.mark.parametrize("by", LAUNCHING)
def test_kernels_copies_and_fills_count_however_they_are_launched(by: str) -> None:
    assert _names(Record().mark(CALL, 0, 100).launch(10, ("work", 200, 230), by=by).trace()) == [["work"]]


@pytest.mark.parametrize("by", LAUNCHING)
def test_whatever_launches_work_has_a_record_of_it_or_one_was_lost(by: str) -> None:
    assert Record().mark(CALL, 0, 100).launch(10, by=by).trace().lost == 1


@pytest.mark.parametrize("by", ["cudaMemcpy", "cudaMemset", "cudaMemcpy2DAsync", "cudaMemset2DAsync"])
def test_rarer_ways_to_copy_and_fill_belong_to_their_call_too(by: str) -> None:
    trace = Record().mark(CALL, 0, 100).launch(10, ("copy", 200, 230), by=by).trace()
    assert _names(trace) == [["copy"]]
    assert trace.stray == 0


@pytest.mark.parametrize(
    "by",
    ["cudaLaunchHostFunc", "hipLaunchHostFunc", "cudaStreamSynchronize", "cudaEventRecord", "cudaMalloc", "aten::add"],
)
def test_what_does_nothing_on_the_device_needs_no_record(by: str) -> None:
    record = Record().mark(CALL, 0, 100).launch(10, by=by).launch(20, ("kernel", 200, 230))
    assert _names(record.trace()) == [["kernel"]]
    assert record.trace().lost == 0


@pytest.mark.parametrize("by", ["cudaMemsetAsync", "cudaMemcpyAsync", "hipMemsetAsync"])
def test_a_copy_or_a_set_of_nothing_leaves_no_record_and_is_no_loss(by: str) -> None:
    """Convolutions and attention set workspaces of no bytes: what else their call did was recorded."""
    record = Record().mark(CALL, 0, 100).launch(10, by=by).launch(20, ("kernel", 200, 230))
    assert _names(record.trace()) == [["kernel"]]
    assert record.trace().lost == 0
    both = Record().mark(CALL, 0, 100).launch(10, by=by).launch(20, ("kernel", 200, 230)).launch(30)
    assert both.trace().lost == 1, "a kernel without a record is one"


def test_a_lost_record_empties_its_call_and_no_other() -> None:
    """Half a call's kernels would be a time that is too short."""
    record = Record()
    for i in range(4):
        record.mark(CALL, 100 * i, 100 * i + 90).launch(100 * i + 10, ("a", 1000 + i, 1001 + i))
        record.launch(100 * i + 20, *([] if i == 2 else [("b", 1000 + i, 1001 + i)]))
    trace = record.trace()
    assert _names(trace) == [["a", "b"], ["a", "b"], [], ["a", "b"]]
    assert trace.lost == 1


def test_several_lost_records_of_one_call_are_one_lost_call() -> None:
    trace = Record().mark(CALL, 0, 100).launch(10).launch(20).launch(30).mark(CALL, 200, 300).trace()
    assert trace.lost == 1


def test_a_call_that_launches_nothing_has_lost_nothing() -> None:
    trace = Record().mark(CALL, 0, 100).trace()
    assert trace == Trace([[]], 0, 0)


def test_work_that_no_call_launched_is_counted_and_given_to_none() -> None:
    record = Record().mark(CALL, 0, 100).mark(CALL, 200, 300).launch(10, ("kernel", 50, 60))
    record.launch(150, ("between", 400, 410))
    record.launch(350, ("after", 420, 430))
    record.events.append(Event("launched before the profiler began", DeviceType.CUDA, 20, 30, 999))
    trace = record.trace()
    assert _names(trace) == [["kernel"], []]
    assert (trace.lost, trace.stray) == (0, 3)


def test_a_launch_between_calls_whose_record_is_lost_is_nobody_s_loss() -> None:
    assert Record().mark(CALL, 0, 100).launch(150).trace() == Trace([[]], 0, 0)


@pytest.mark.parametrize("name", [CALL, OURS, "ProfilerStep#1"])
def test_an_annotation_on_the_device_is_no_work(name: str) -> None:
    """The profiler repeats the marks of the host on the line of the device."""
    record = Record().mark(CALL, 0, 100).launch(10, ("kernel", 500, 600))
    record.events.insert(0, Event(name, DeviceType.CUDA, 500, 600, 1, annotation=True))
    assert _names(record.trace()) == [["kernel"]]
    assert record.trace().stray == 0


def test_an_annotation_on_the_device_makes_up_for_no_lost_record() -> None:
    record = Record().mark(CALL, 0, 100).launch(10)
    record.events.append(Event(CALL, DeviceType.CUDA, 500, 600, 1, annotation=True))
    assert record.trace().lost == 1


@pytest.mark.parametrize("name", ["aten::add", "custom::add", "cudnn::conv", "hip::conv"])
def test_an_operator_that_has_the_number_of_a_launch_is_not_that_launch(name: str) -> None:
    """Operators of the host are numbered too, from 1 on."""
    record = Record().mark(CALL, 0, 100).mark(CALL, 200, 300).launch(210, ("kernel", 500, 600))
    record.events.append(Event(name, DeviceType.CPU, 10, 20, 1))
    assert _names(record.trace()) == [[], ["kernel"]]


def test_one_launch_of_a_graph_is_all_its_kernels() -> None:
    kernels = [("a", 500, 510), ("b", 510, 530), ("a", 530, 540)]
    trace = Record().mark(CALL, 0, 100).launch(10, *kernels, by="cudaGraphLaunch").trace()
    assert _names(trace) == [["a", "b", "a"]]
    assert _nanoseconds(trace.calls[0]) == [10, 20, 10]
    assert (trace.lost, trace.stray) == (0, 0)


@pytest.mark.parametrize("graph", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_branches_of_a_graph_overlap_in_the_span_and_add_up_in_the_time(graph: str) -> None:
    kernels = [("root", 500, 600), ("left", 600, 900), ("right", 600, 800), ("end", 900, 950)]
    (call,) = Record().mark(CALL, 0, 100).launch(10, *kernels, by=graph).trace().calls
    assert busy(call) == pytest.approx(650e-9)
    assert span(call) == pytest.approx(450e-9)


@pytest.mark.parametrize(("vendor", "launch"), [("cuda", "cudaLaunchKernel"), ("hip", "hipLaunchKernel")])
def test_work_on_two_streams_overlaps_in_the_span_and_adds_up_in_the_time(vendor: str, launch: str) -> None:
    record = Record().mark(CALL, 0, 100).mark(CALL, 200, 300)
    record.launch(10, ("a", 500, 900), by=launch).launch(20, ("b", 600, 800), by=launch)
    record.launch(210, ("a", 900, 1300), by=launch).launch(220, ("copy", 800, 950), by=f"{vendor}MemcpyAsync")
    first, second = record.trace().calls
    assert (busy(first), span(first)) == (pytest.approx(600e-9), pytest.approx(400e-9))
    assert (busy(second), span(second)) == (pytest.approx(550e-9), pytest.approx(500e-9))


@pytest.mark.parametrize(
    ("cuda", "hip", "name", "replaceable"),
    [("13.0", None, "torch-profiler", True), (None, "6.4.4", "roctracer", False)],
)
def test_on_an_amd_gpu_the_records_are_those_of_its_own_runtime(
    cuda: str | None, hip: str | None, name: str, replaceable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUPTI knows nothing of such a GPU, and must not be asked."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    clock = CudaClock()
    assert (clock.name, clock.replaceable) == (name, replaceable)
    assert clock.find(name) is clock.find("") is clock
    assert clock.find("cupti") is None


@pytest.mark.parametrize("duration", [1, 3, 32, 901])
def test_a_nanosecond_is_still_seen_today(duration: int) -> None:
    """Seconds since 1970 in a float are 200 nanoseconds apart."""
    assert (TODAY + duration) * 1e-9 - TODAY * 1e-9 != pytest.approx(duration * 1e-9, rel=0.01)
    (call,) = Record().mark(CALL, 0, 10).launch(1, ("kernel", 7 * 10**7, 7 * 10**7 + duration)).trace().calls
    assert call[0].end - call[0].start == pytest.approx(duration * 1e-9, rel=1e-6)


def test_times_are_counted_from_the_start_of_the_trace() -> None:
    (call,) = Record().mark(CALL, 0, 10).launch(1, ("kernel", 2000, 3000)).trace().calls
    due = [(moment + EARLIER) * 1e-9 for moment in (2000, 3000)]
    assert call[0] == Activity("kernel", *map(pytest.approx, due))


NOTHING_RECORDED = "recorded nothing of the device"


def test_idle_calls_are_told_from_a_device_of_which_nothing_is_recorded() -> None:
    """Without a permission, or with another tool at the counters, every call looks idle."""
    assert Record().mark(CALL, 0, 100).mark(CALL, 200, 300).trace() == Trace([[], []], 0, 0)
    with pytest.raises(TimerFailed, match=NOTHING_RECORDED):
        Record(silent=True).mark(CALL, 0, 100).mark(CALL, 200, 300).trace()


def test_lost_records_of_all_calls_are_not_taken_for_a_silent_device() -> None:
    assert Record().mark(CALL, 0, 100).launch(10).trace().lost == 1
    with pytest.raises(TimerFailed, match=NOTHING_RECORDED):
        Record(silent=True).mark(CALL, 0, 100).launch(10).trace()


def test_only_the_harness_s_own_kernel_is_a_sign_of_life() -> None:
    """It alone is known to have run; what came from elsewhere says nothing of what a call would leave."""
    record = Record(silent=True).mark(CALL, 0, 100).launch(150, ("between two marks", 200, 300))
    record.events.append(Event("launched before the profiler began", DeviceType.CUDA, 20, 30, 999))
    with pytest.raises(TimerFailed, match=NOTHING_RECORDED):
        record.trace()


def test_an_annotation_on_the_device_is_no_sign_of_life() -> None:
    """The profiler makes it up out of what the host did."""
    record = Record(silent=True).mark(CALL, 0, 100)
    record.events.append(Event(OURS, DeviceType.CUDA, -80, -70, record.events[1].correlation, annotation=True))
    with pytest.raises(TimerFailed, match=NOTHING_RECORDED):
        record.trace()


def test_any_kernel_of_the_harness_is_a_sign_of_life() -> None:
    record = Record(silent=True).mark(OURS, 0, 50).launch(10, ("flush", 100, 200), by="cudaMemsetAsync")
    assert record.mark(CALL, 60, 100).trace() == Trace([[]], 0, 0)


def test_nothing_recorded_at_all_is_no_trace_of_idle_calls() -> None:
    """A profiler that was taken away in the middle hands out no records; that is not the same as no work."""
    with pytest.raises(TimerFailed, match="0 of 3 calls"):
        _by_call([], 3)


def test_a_call_without_its_mark_is_no_idle_call() -> None:
    with pytest.raises(TimerFailed, match="1 of 2 calls"):
        _by_call(Record().mark(CALL, 0, 100).launch(10, ("kernel", 50, 60)).events, 2)


kernels = st.lists(st.integers(1, 10**6), max_size=3)
launches = st.lists(kernels, max_size=4)


@settings(deadline=None, max_examples=200)
@given(calls=st.lists(st.tuples(st.booleans(), launches), max_size=8), shuffled=st.randoms(use_true_random=False))
def test_every_call_has_the_sum_of_what_it_launched(calls: list[tuple[bool, list[list[int]]]], shuffled: Any) -> None:
    """Each call may be preceded by the harness's own work; a launch without kernels is one whose record was lost."""
    record, now, device = Record(), 0, 0
    for flushed, launched in calls:
        if flushed:
            record.mark(OURS, now, now + 50).launch(now + 1, ("flush", device, device + 777))
        now, device = now + 100, device + 777
        record.mark(CALL, now, now + 50)
        for i, durations in enumerate(launched):
            work = []
            for duration in durations:
                work.append(("kernel", device, device + duration))
                device += duration + 3
            record.launch(now + i, *work)
        now += 100
    shuffled.shuffle(record.events)
    trace = record.trace()
    lost = [any(not durations for durations in launched) for _, launched in calls]
    due = [[] if gone else sorted(chain(*launched)) for gone, (_, launched) in zip(lost, calls, strict=True)]
    assert [sorted(_nanoseconds(call)) for call in trace.calls] == due
    assert (trace.lost, trace.stray) == (sum(lost), 0)


Ran = list[Any]


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The real profiler where nothing can hold a device; for how long it should have been held."""
    held: Ran = []
    monkeypatch.setattr(device_clock, "hold_device", held.append)
    return held


@pytest.fixture
def device(no_kernels: Ran, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """As if a device had recorded the harness's first kernel beside the real records of the host."""

    def with_device(events: Sequence[Any], calls: int) -> Trace:
        first = min((e.start_ns() for e in events if e.name() == OURS), default=None)
        return _by_call([*events, *(_sign_of_life(first - TODAY) if first else ())], calls)

    monkeypatch.setattr(device_clock, "_by_call", with_device)
    return no_kernels


@without_cuda
@pytest.mark.usefixtures("device")
def test_the_real_profiler_has_every_call_and_each_of_them_is_run_once() -> None:
    ran: Ran = []
    trace = CudaClock().trace([lambda i=i: ran.append(i) for i in range(4)], lambda: ran.append("before"), 0.0)
    assert ran == ["before", 0, "before", 1, "before", 2, "before", 3]
    assert trace == Trace([[], [], [], []], 0, 0)


@without_cuda
def test_a_trace_without_a_record_of_the_device_is_refused(no_kernels: Ran) -> None:
    """The real profiler of a torch that sees no device."""
    with pytest.raises(TimerFailed, match=NOTHING_RECORDED):
        CudaClock().trace([lambda: None], None, 0.0)
    assert len(no_kernels) == 1


@without_cuda
@pytest.mark.parametrize("hold", [0.0, 0.5])
def test_a_trace_begins_with_a_kernel_that_lasts_as_long_as_the_device_is_to_be_held(
    hold: float, device: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel there is in any case: it shows that the profiler records."""
    ran: Ran = []
    monkeypatch.setattr(device_clock, "hold_device", lambda seconds: ran.append(("hold", seconds)))
    CudaClock().trace([lambda: ran.append("call")], lambda: ran.append("before"), hold)
    (first, seconds), *rest = ran
    assert (first, rest) == ("hold", ["before", "call"])
    assert seconds == hold if hold else 0 < seconds < 1e-4


@pytest.mark.parametrize(("seconds", "holds"), [(0.0, False), (1e-6, True), (0.1, True)])
def test_the_device_is_held_for_at_least_so_long(seconds: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the clock of a fast GPU, so that a slower one is held longer, but never many times as long."""
    cycles: list[int] = []
    monkeypatch.setattr(torch.cuda, "_sleep", cycles.append)
    device_clock.hold_device(seconds)
    assert bool(cycles) == holds
    assert all(1.9e9 * seconds <= found <= 1e10 * seconds for found in cycles)


@without_cuda
def test_the_real_profiler_tells_what_is_asked_of_it() -> None:
    """The invented events above have what real ones have."""
    with profile(use_kineto=True) as session, record_function(CALL):
        torch.ones(3)
    events = session.kineto_results.events()
    (mark,) = [event for event in events if event.name() == CALL]
    assert mark.device_type() == DeviceType.CPU
    assert mark.is_user_annotation()
    assert 0 < mark.start_ns() < mark.end_ns()
    assert isinstance(mark.start_ns(), int)
    assert all(isinstance(event.correlation_id(), int) for event in events)
    assert _by_call([*Record().events, *events], 1) == Trace([[]], 0, 0)


@without_cuda
@pytest.mark.usefixtures("device")
def test_a_call_that_fails_leaves_the_profiler_free() -> None:
    def fails() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        CudaClock().trace([fails], None, 0.0)
    assert not torch.autograd._profiler_enabled()
    assert len(CudaClock().trace([lambda: None], None, 0.0).calls) == 1


@without_cuda
def test_a_profiler_that_is_already_in_use_is_left_alone_and_said() -> None:
    """torch does not refuse a second session; it quietly takes the first one's records away."""
    with profile(use_kineto=True) as theirs:
        with record_function("their work"):
            torch.ones(3)
        with pytest.raises(TimerFailed, match="in use"):
            CudaClock().trace([lambda: None], None, 0.0)
    assert "their work" in {event.name() for event in theirs.kineto_results.events()}


@without_cuda
@pytest.mark.usefixtures("device")
def test_a_call_that_profiles_itself_cannot_be_traced() -> None:
    """Its session ends ours, and with it every record."""

    def profiles() -> None:
        with profile(use_kineto=True):
            torch.ones(3)

    with pytest.raises(TimerFailed, match="of 2 calls"):
        CudaClock().trace([profiles, profiles], None, 0.0)


@without_cuda
def test_a_profiler_that_cannot_start_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("CUPTI is not permitted here\nException raised from somewhere")

    monkeypatch.setattr(profile, "__enter__", refuses)
    with pytest.raises(TimerFailed) as caught:
        CudaClock().trace([lambda: None], None, 0.0)
    assert caught.value.message == "torch's profiler cannot start: CUPTI is not permitted here"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_a_poisoned_float_is_not_a_number(dtype: torch.dtype) -> None:
    value = torch.ones(3, 5, dtype=dtype)
    poison(value)
    assert value.isnan().all()


FLOAT8 = [getattr(torch, name) for name in dir(torch) if name.startswith("float8_")]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_a_poisoned_8_bit_float_is_not_a_number(dtype: torch.dtype) -> None:
    value = torch.ones(3, 5).to(dtype)
    poison(value)
    assert value.float().isnan().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16])
def test_a_poisoned_integer_is_as_large_as_it_gets(dtype: torch.dtype) -> None:
    value = torch.ones(3, 5, dtype=dtype)
    poison(value)
    assert set(value.reshape(-1).tolist()) == {torch.iinfo(dtype).max}


def test_a_poisoned_truth_is_the_opposite_everywhere() -> None:
    value = torch.tensor([True, False, True])
    poison(value)
    assert value.tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool, torch.float8_e5m2], ids=str)
def test_a_tensor_that_repeats_its_elements_belongs_to_somebody_else(dtype: torch.dtype) -> None:
    owner = torch.ones(1, 3).to(dtype)
    poison(owner.expand(4, 3))
    assert owner.float().tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1,), (), (0,), (0, 4)])
def test_lengths_of_one_and_none_repeat_nothing(shape: tuple[int, ...]) -> None:
    """Whatever their stride is: nobody takes such a step."""
    whole = torch.ones(shape)
    strides = [stride if size > 1 else 0 for size, stride in zip(shape, whole.stride(), strict=True)]
    poison(whole.as_strided(shape, strides))
    assert whole.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.int16], ids=str)
def test_a_view_is_poisoned_and_nothing_beside_it(dtype: torch.dtype) -> None:
    owner = torch.ones(4, 6).to(dtype)
    poison(owner[::2, 1:4].T)
    touched = owner.float() != 1
    assert touched[::2, 1:4].all()
    assert touched.sum() == 6


def test_a_tensor_with_a_graph_can_be_poisoned_and_keeps_it() -> None:
    x = torch.ones(3, requires_grad=True)
    with torch.enable_grad():
        y = torch.exp(x)
    poison(y)
    assert y.isnan().all()
    assert y.grad_fn is not None


class Graph:
    """Replays by calling."""

    def __init__(self, replay: Callable[[], None]) -> None:
        self.replay = replay


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


DUE = (torch.tensor([1.0, 2.0]), torch.tensor([3, 4]))


@pytest.mark.usefixtures("no_device")
def test_a_graph_that_writes_its_outputs_passes() -> None:
    outputs = tuple(torch.zeros_like(due) for due in DUE)
    graph = Graph(lambda: [out.copy_(due) for out, due in zip(outputs, DUE, strict=True)])
    device_clock._check_written(graph, outputs, DUE)
    assert all(torch.equal(*pair) for pair in zip(outputs, DUE, strict=True))


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_graph_that_leaves_an_output_as_it_was_is_wrong(forgotten: int) -> None:
    """The right values were there already, from the capture."""
    outputs = tuple(due.clone() for due in DUE)
    graph = Graph(lambda: outputs[1 - forgotten].copy_(DUE[1 - forgotten]))
    with pytest.raises(WrongResult, match="does not write"):
        device_clock._check_written(graph, outputs, DUE)


class Counts:
    """A clock that has seen so many kernels of the calls, and so many of a graph."""

    def __init__(self, calls: int, graph: int) -> None:
        self.kernels = {True: calls, False: graph}

    def trace(self, launches: Sequence[Any], before: None, hold: float) -> Trace:
        found = self.kernels[len(launches) > 1]
        return Trace([[Activity("kernel", 0.0, 1e-6)] * found] + [[]] * (len(launches) - 1))


def test_a_graph_with_every_kernel_is_complete() -> None:
    CudaClock._check_complete(Counts(4, 4), Graph(lambda: None), [lambda: None] * 2)  # type: ignore[arg-type]


def test_a_graph_with_a_kernel_missing_is_wrong() -> None:
    """What runs on another stream is not captured."""
    with pytest.raises(WrongResult, match="3 of the 4 kernels"):
        CudaClock._check_complete(Counts(4, 3), Graph(lambda: None), [lambda: None] * 2)  # type: ignore[arg-type]


def test_a_graph_counts_as_complete_where_the_profiler_tells_nothing() -> None:
    """The check of the output has to do then."""

    class Silent:
        def trace(self, *_: Any) -> Trace:
            raise TimerFailed("the profiler recorded nothing of the device")

    CudaClock._check_complete(Silent(), Graph(lambda: None), [lambda: None] * 2)  # type: ignore[arg-type]


def test_a_clock_is_sound_at_first() -> None:
    assert not CudaClock().spoiled


@pytest.mark.parametrize(
    "error", [RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors"),
              torch.OutOfMemoryError("CUDA out of memory")]
)  # fmt: skip
def test_a_capture_that_fails_spoils_the_process_and_is_said_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> None:
        raise error

    monkeypatch.setattr(device_clock, "_captured", fails)
    clock = CudaClock()
    with pytest.raises(TimerFailed, match="cannot be captured") as caught:
        clock.capture([lambda: None])
    assert clock.spoiled
    assert str(error).partition("\n")[0] in caught.value.message
    assert "\n" not in caught.value.message


class Stream:
    def wait_stream(self, other: Stream) -> None:
        pass


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch, no_device: None) -> Callable[[str | None], None]:
    """torch's capture without a device: calls are run once, and the end of it may warn."""

    @contextmanager
    def nothing(_: Any) -> Iterator[None]:
        yield

    def install(says: str | None) -> None:
        @contextmanager
        def capture(_: Any) -> Iterator[None]:
            yield
            if says:
                warnings.warn(says, UserWarning, stacklevel=1)

        monkeypatch.setattr(torch.cuda, "graph", capture)

    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Stream)
    monkeypatch.setattr(torch.cuda, "stream", nothing)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(lambda: None))
    return install


EMPTY = "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device"


@pytest.mark.parametrize("filters", ["default", "ignore", "error"])
def test_an_empty_graph_is_wrong_and_spoils_nothing_whatever_is_done_with_warnings(
    filters: Any, capturing: Callable[[str | None], None]
) -> None:
    """torch only warns; the capture itself went well."""
    capturing(EMPTY)
    clock = CudaClock()
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        with pytest.raises(WrongResult, match="empty"):
            clock.capture([lambda: torch.ones(3)])
    assert not clock.spoiled


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("says", [None, "something else is deprecated"])
def test_a_graph_of_which_nobody_says_that_it_is_empty_has_every_output(
    says: str | None, capturing: Callable[[str | None], None]
) -> None:
    capturing(says)
    _, outputs = device_clock._captured([lambda: "first", lambda: "second"])
    assert outputs == ["first", "second"]


def test_every_call_is_captured_and_only_a_few_are_run_ahead(capturing: Callable[[str | None], None]) -> None:
    """The first calls may allocate or choose a kernel, which no graph allows."""
    capturing(None)
    ran: list[int] = []
    device_clock._captured([lambda i=i: ran.append(i) for i in range(9)])
    ahead = len(ran) - 9
    assert 0 < ahead < 9
    assert ran == [*range(ahead), *range(9)]
