"""Times work on a CUDA device through torch: by its profiler, by events behind a queue, and by graphs."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile, record_function

from opmark.errors import TimerFailed, WrongResult
from opmark.plugin import Activity, DeviceClock, Launch, Trace

_CALL = "opmark::call"
_OURS = "opmark::harness"
# Calls of the runtime that put work on the device; each has a record of that work, or one was lost.
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync",
             "hipLaunch", "hipExtLaunch", "hipModuleLaunch", "hipGraphLaunch", "hipMemcpyAsync",
             "hipMemsetAsync")  # fmt: skip
# These own the work that they put on the device too, but need not have put any there.
_MAY_LAUNCH = ("cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset", "hipMemcpy", "hipMemset")
_COPIES = ("cudaMem", "hipMem")
_NO_WORK = ("cudaLaunchHostFunc", "hipLaunchHostFunc")
# Cycles a second, generously: holding the device a little longer than asked for does no harm.
_CYCLES = 2_000_000_000
_WARM_CAPTURES = 3
# A kernel of the harness at the start of each trace: without its record, nothing was recorded at all.
_SIGN_OF_LIFE = 1e-6


class CudaClock(DeviceClock):
    def __init__(self) -> None:
        self.replaceable = bool(torch.version.cuda)
        self.name = "torch-profiler" if self.replaceable else "roctracer"
        self.spoiled = False
        """Whether a capture failed: torch's random numbers are then unusable for the rest of the process."""
        self.partial = False
        """Whether calls have some of the multiprocessors only."""

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        if torch.autograd._profiler_enabled():  # a second session would quietly take the first one's records
            raise TimerFailed("torch's profiler is already in use")
        session = profile(use_device="cuda", use_kineto=True)
        try:
            session.__enter__()
        except RuntimeError as error:
            raise TimerFailed(f"torch's profiler cannot start: {_first_line(error)}") from None
        try:
            with record_function(_OURS):
                hold_device(max(hold, _SIGN_OF_LIFE))
            for launch in launches:
                if before:
                    with record_function(_OURS):
                        before()
                with record_function(_CALL):
                    launch()
        finally:
            session.__exit__(None, None, None)
        return _by_call(session.kineto_results.events(), len(launches))

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in launches]
        torch.cuda.synchronize()
        hold_device(hold)
        for launch, (start, end) in zip(launches, pairs, strict=True):
            if before:
                before()
            start.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e-3 for start, end in pairs]

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        if self.partial:
            raise TimerFailed("a graph is captured on a stream of its own, which has all multiprocessors")
        try:
            graph, outputs = _captured(launches)
        except RuntimeError as error:
            self.spoiled = True
            raise TimerFailed(f"these calls cannot be captured in a graph: {_first_line(error)}") from None
        expected = launches[-1]()
        _check_written(graph, outputs[-1], expected)
        self._check_complete(graph, launches)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def replay() -> float:
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3 / len(launches)

        return replay

    def _check_complete(self, graph: Any, launches: Sequence[Launch]) -> None:
        """Check that the graph runs as many kernels as the launches, as far as the profiler reports them."""
        try:
            due = sum(map(len, self.trace(launches, None, 0.0).calls))
            found = len(self.trace([graph.replay], None, 0.0).calls[0])
        except TimerFailed:
            return  # then the check of the output has to do
        if found < due:
            raise WrongResult(f"the captured graph runs {found} of the {due} kernels that the calls launch")


def hold_device(seconds: float) -> None:
    """Keep the device busy, so that the next launches are queued before it gets to them."""
    if seconds > 0:
        torch.cuda._sleep(int(seconds * _CYCLES))


def _captured(launches: Sequence[Launch]) -> tuple[Any, list[Any]]:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for launch in launches[:_WARM_CAPTURES]:
            launch()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.cuda.graph(graph):
            outputs = [launch() for launch in launches]
    if any("empty" in str(warning.message) for warning in caught):
        raise WrongResult("the captured graph is empty: the calls launch nothing on their stream")
    return graph, outputs


def _check_written(graph: Any, outputs: Any, expected: Any) -> None:
    """Check that a replay writes its outputs, which are poisoned first."""
    for output, due in zip(_tensors(outputs), _tensors(expected), strict=True):
        poison(output)
        graph.replay()
        torch.cuda.synchronize()
        if not torch.allclose(output.double(), due.double(), rtol=1e-2, atol=1e-2, equal_nan=True):
            raise WrongResult("a replay of the captured graph does not write what the call writes")


def poison(value: Any) -> None:
    """Overwrite an output with NaN, or the value furthest from data. A tensor that repeats its elements is left alone:
    its memory belongs to another."""
    value = value.data
    if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True)):
        return
    if value.dtype == torch.bool:
        value.logical_not_()
    elif value.dtype.itemsize == 1 and value.is_floating_point():
        # Not-a-number is all ones, but minus zero in the formats without infinity and minus zero.
        value.view(torch.uint8).fill_(0x80 if str(value.dtype).endswith("fnuz") else 0xFF)
    else:
        poisonous = value.is_floating_point() or value.is_complex()
        value.fill_(float("nan") if poisonous else torch.iinfo(value.dtype).max)


class _Mark(NamedTuple):
    start: int
    end: int
    call: int
    """Number of the call; negative for the harness's own work."""


def _by_call(events: Sequence[Any], calls: int) -> Trace:
    """Assign activities to the calls during which they were launched, by whatever thread. The harness's own work
    belongs to no call."""
    marks = _marks(events)
    marked = sum(mark.call >= 0 for mark in marks)
    if marked != calls:
        raise TimerFailed(f"torch's profiler recorded {marked} of {calls} calls: another session ended this one")
    origin = min((event.start_ns() for event in events), default=0)
    starts = [mark.start for mark in marks]
    runtime = [e for e in events if e.device_type() == DeviceType.CPU and e.name().startswith(_LAUNCHES + _MAY_LAUNCH)]
    launched = {e.correlation_id(): _owner(marks, starts, e.start_ns()) for e in runtime}
    due = {e.correlation_id() for e in runtime if _launches(e.name())}
    found: list[list[Activity]] = [[] for _ in range(calls)]
    stray, recorded, alive = 0, set(), False
    for event in events:
        if event.device_type() == DeviceType.CPU or event.is_user_annotation():
            continue
        recorded.add(event.correlation_id())
        owner = launched.get(event.correlation_id())
        if owner is None:
            stray += 1
        elif owner < 0:
            alive = True
        else:
            start, end = ((moment - origin) * 1e-9 for moment in (event.start_ns(), event.end_ns()))
            found[owner].append(Activity(event.name(), start, end))
    if not alive:
        raise TimerFailed(
            "the profiler recorded nothing of the device: another tool may be using its counters, or this user may not"
        )
    copies = {e.correlation_id() for e in runtime if e.name().startswith(_COPIES)}
    missing = [(launched[key], key in copies) for key in due - recorded]
    # A copy or a set of nothing leaves no record: it is missed only where its call has no other record.
    incomplete = {owner for owner, copy in missing if owner is not None and owner >= 0 and not (copy and found[owner])}
    for call in incomplete:
        found[call] = []
    return Trace(found, len(incomplete), stray)


def _marks(events: Sequence[Any]) -> list[_Mark]:
    own = [e for e in events if e.name() in (_CALL, _OURS) and e.device_type() == DeviceType.CPU]
    own.sort(key=lambda e: e.start_ns())
    marks, call = [], 0
    for event in own:
        is_call = event.name() == _CALL
        marks.append(_Mark(event.start_ns(), event.end_ns(), call if is_call else -1))
        call += is_call
    return marks


def _owner(marks: Sequence[_Mark], starts: Sequence[int], moment: int) -> int | None:
    """The call at that moment; None for a moment outside all marks."""
    index = bisect_right(starts, moment) - 1
    return marks[index].call if index >= 0 and moment <= marks[index].end else None


def _launches(name: str) -> bool:
    return name.startswith(_LAUNCHES) and not name.startswith(_NO_WORK)


def _tensors(value: Any) -> list[Any]:
    return [v for v in (value if isinstance(value, tuple | list) else (value,)) if v is not None]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
