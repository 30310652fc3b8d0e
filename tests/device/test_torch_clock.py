"""The clocks of a CUDA device, on one: `python -m pytest tests/device`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from opmark.errors import TimerFailed, WrongResult
from opmark.worker.measure.sampler import busy, span

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(params=["torch-profiler", "cupti"])
def clock(request: pytest.FixtureRequest) -> Iterator[Any]:
    from opmark.frameworks.torch.device_clock import CudaClock
    from opmark.worker.measure.cupti import open_cupti

    found: Any = CudaClock()
    if request.param == "cupti":
        torch.zeros(1, device="cuda")
        found, why = open_cupti(torch.cuda.synchronize, found)
        assert not why
    assert found.name == request.param
    yield found
    found.detach()


@pytest.fixture
def x() -> Any:
    return torch.randn(1024, 1024, device="cuda")


def flush() -> None:
    scratch().zero_()


def scratch() -> Any:
    if not hasattr(scratch, "memory"):
        nbytes = 2 * torch.cuda.get_device_properties().L2_cache_size
        scratch.memory = torch.empty(nbytes, dtype=torch.uint8, device="cuda")  # type: ignore[attr-defined]
    return scratch.memory  # type: ignore[attr-defined]


def test_every_call_has_its_kernel(clock: Any, x: Any) -> None:
    trace = clock.trace([x.exp] * 20, None, 0.001)
    assert [len(call) for call in trace.calls] == [1] * 20
    assert (trace.lost, trace.stray) == (0, 0)
    assert all(0 < busy(call) < 1e-3 for call in trace.calls)


def test_a_kernel_launched_twice_counts_twice(clock: Any, x: Any) -> None:
    once = clock.trace([x.exp] * 20, None, 0.001)
    twice = clock.trace([lambda: (x.exp(), x.exp())] * 20, None, 0.001)
    assert {len(call) for call in twice.calls} == {2}
    medians = [statistics.median(busy(call) for call in trace.calls) for trace in (once, twice)]
    assert medians[1] == pytest.approx(2 * medians[0], rel=0.15)


def test_the_flush_of_the_harness_does_not_count(clock: Any, x: Any) -> None:
    trace = clock.trace([x.exp] * 20, flush, 0.001)
    assert {len(call) for call in trace.calls} == {1}
    assert all("exp" in call[0].name for call in trace.calls)


def test_fills_and_copies_of_the_call_count(clock: Any, x: Any) -> None:
    y = torch.empty_like(x)
    trace = clock.trace([lambda: (y.copy_(x), y.zero_())] * 5, None, 0.0)
    names = " ".join(activity.name for activity in trace.calls[0])
    assert len(trace.calls[0]) == 2
    assert "Memcpy" in names


def test_a_cold_call_takes_longer_than_a_warm_one(clock: Any, x: Any) -> None:
    warm = clock.trace([x.exp] * 30, None, 0.002)
    cold = clock.trace([x.exp] * 30, flush, 0.002)
    medians = [statistics.median(busy(call) for call in trace.calls) for trace in (warm, cold)]
    assert medians[1] > 1.15 * medians[0]


def test_work_that_another_thread_launches_during_the_call_belongs_to_it(clock: Any, x: Any) -> None:
    leaf = x.clone().requires_grad_(True)
    loss = (leaf * leaf).sum()
    trace = clock.trace([lambda: torch.autograd.grad(loss, leaf, retain_graph=True)] * 5, None, 0.0)
    assert all(len(call) >= 1 for call in trace.calls)
    assert trace.stray == 0


def test_work_that_is_launched_after_the_call_is_seen(clock: Any, x: Any) -> None:
    threads = []

    def late() -> None:
        thread = threading.Thread(target=lambda: (time.sleep(0.02), x.exp()))
        thread.start()
        threads.append(thread)

    def wait() -> None:
        time.sleep(0.05)

    trace = clock.trace([late, wait], None, 0.0)
    for thread in threads:
        thread.join()
    assert trace.stray + len(trace.calls[1]) == 1
    assert trace.calls[0] == []


def test_a_queue_hides_the_launches_from_the_span(clock: Any, x: Any) -> None:
    """Many small kernels: as they come, their launches are in the span; queued, only the gaps are."""
    small = torch.randn(64, device="cuda")

    def many() -> Any:
        y = small
        for _ in range(10):
            y = y.exp()
        return y

    live = clock.trace([many] * 10, None, 0.0)
    held = clock.trace([many] * 10, None, 0.01)
    spans = [statistics.median(span(call) for call in trace.calls) for trace in (live, held)]
    assert spans[1] < 0.8 * spans[0]


def test_events_and_records_agree_on_a_long_call(clock: Any) -> None:
    big = torch.randn(8192, 8192, device="cuda")
    records = statistics.median(busy(call) for call in clock.trace([big.exp] * 20, None, 0.005).calls)
    events = statistics.median(clock.queued([big.exp] * 20, None, 0.005))
    assert events == pytest.approx(records, rel=0.05)


def test_a_captured_graph_agrees_with_the_records(clock: Any) -> None:
    big = torch.randn(8192, 8192, device="cuda")
    records = statistics.median(busy(call) for call in clock.trace([big.exp] * 20, None, 0.005).calls)
    replay = clock.capture([big.exp] * 10)
    assert statistics.median(replay() for _ in range(10)) == pytest.approx(records, rel=0.05)


def test_a_graph_that_does_not_write_the_output_is_refused(clock: Any, x: Any) -> None:
    """The work is done the first few times and remembered then, as an implementation that caches would."""
    results: list[Any] = []

    def remembers() -> Any:
        if len(results) < 2:
            results.append(x.exp())
        return results[-1]

    with pytest.raises(WrongResult):
        clock.capture([remembers] * 4)


def test_what_cannot_be_captured_is_said() -> None:
    """In a process of its own: a failed capture spoils torch's random numbers for the rest of it."""
    code = """
import torch
from opmark.frameworks.torch.device_clock import CudaClock
from opmark.errors import TimerFailed
clock, x = CudaClock(), torch.ones(8, device="cuda")
try:
    clock.capture([lambda: x.sum().item()] * 2)
except TimerFailed as failure:
    print(failure.message, clock.spoiled)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot be captured in a graph" in done.stdout
    assert done.stdout.strip().endswith("True")


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
@pytest.mark.parametrize("clock", ["torch-profiler"], indirect=True)
def test_a_profiler_that_is_in_use_is_left_alone_and_said(clock: Any, x: Any) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as theirs:
        x.exp()
        with pytest.raises(TimerFailed, match="already in use"):
            clock.trace([x.exp] * 3, None, 0.0)
    assert any("exp" in event.name for event in theirs.events())


# Several streams, graphs, and both clocks in one process

CYCLES = 400_000


def spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)


def test_streams_that_overlap_add_up_in_the_time_and_not_in_the_span(clock: Any) -> None:
    main, one, two = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()

    def both() -> None:
        for stream, cycles in ((one, CYCLES), (two, CYCLES // 2)):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                spin(cycles)
        main.wait_stream(one)
        main.wait_stream(two)

    both()
    alone = statistics.median(busy(call) for call in clock.trace([lambda: spin(CYCLES)] * 5, None, 0.01).calls)
    calls = clock.trace([both] * 5, None, 0.01).calls
    assert {len(call) for call in calls} == {2}
    assert statistics.median(map(busy, calls)) == pytest.approx(1.5 * alone, rel=0.05)
    assert statistics.median(map(span, calls)) == pytest.approx(alone, rel=0.05)


def test_kernels_of_a_graph_are_those_of_the_calls(clock: Any) -> None:
    x = torch.randn(2048, 2048, device="cuda")

    def call() -> Any:
        return torch.softmax(x, -1).exp().sum(0)

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    eager = clock.trace([call] * 10, None, 0.01).calls
    replayed = clock.trace([graph.replay] * 10, None, 0.01).calls
    assert {len(one) for one in replayed} == {len(one) for one in eager}
    assert {a.name for a in replayed[0]} == {a.name for a in eager[0]}
    assert statistics.median(map(busy, replayed)) == pytest.approx(statistics.median(map(busy, eager)), rel=0.1)


def test_both_clocks_agree(x: Any) -> None:
    from opmark.frameworks.torch.device_clock import CudaClock
    from opmark.worker.measure.cupti import open_cupti

    big = torch.randn(4096, 4096, device="cuda")
    own, _ = open_cupti(torch.cuda.synchronize, None)
    medians = [
        statistics.median(busy(call) for call in clock.trace([big.exp] * 20, None, 0.01).calls)
        for clock in (own, CudaClock(), own, CudaClock())
        if clock
    ]
    assert max(medians) == pytest.approx(min(medians), rel=0.03)
    assert own is not None
    own.detach()


def test_names_of_kernels_can_be_read(clock: Any, x: Any) -> None:
    (call,) = clock.trace([x.exp], None, 0.0).calls
    assert "at::native" in call[0].name
