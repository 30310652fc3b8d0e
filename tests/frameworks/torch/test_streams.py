"""Streams of torch on a made-up CUDA device: every stream has a clock of its own, and events read it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from opmark.errors import TimerFailed
from opmark.frameworks.torch import TORCH_CPU, TORCH_CUDA
from opmark.frameworks.torch.streams import TorchStreams


class Device:
    """Work on a stream ends so much later than what was queued on it before; streams do not disturb each other."""

    def __init__(self) -> None:
        self.default = Stream(self)
        self.current = self.default
        self.order: list[Stream] = []
        self.capturing = False
        self.refuses_graphs = False
        self.held: list[float] = []

    def work(self, seconds: float) -> None:
        self.current.now += seconds
        self.order.append(self.current)


class Stream:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.now = 0.0

    def wait_event(self, event: Event) -> None:
        self.now = max(self.now, event.at)

    def wait_stream(self, other: Stream) -> None:
        self.now = max(self.now, other.now)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at = 0.0

    def record(self, stream: Stream | None = None) -> None:
        self.at = (stream or self.device.current).now

    def elapsed_time(self, other: Event) -> float:
        return 1e3 * (other.at - self.at)

    def synchronize(self) -> None:
        return None


class Graph:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.seconds = 0.0

    def replay(self) -> None:
        self.device.current.now += self.seconds


@pytest.fixture
def device(monkeypatch):
    made = Device()

    @contextmanager
    def on(stream):
        before, made.current = made.current, stream
        yield
        made.current = before

    @contextmanager
    def capture(graph):
        if made.refuses_graphs:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        origin = Stream(made)
        origin.now = began = max(stream.now for stream in made.order)
        with on(origin):
            yield
        graph.seconds = origin.now - began

    def synchronize():
        last = max((stream.now for stream in made.order), default=0.0)
        made.default.now = max(made.default.now, last)

    for name, value in {
        "Stream": lambda: Stream(made), "Event": lambda enable_timing: Event(made), "stream": on, "graph": capture,
        "CUDAGraph": lambda: Graph(made), "current_stream": lambda: made.current, "synchronize": synchronize,
        "_sleep": made.held.append,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def test_each_launch_has_a_stream_and_all_begin_together(device):
    streams = TorchStreams([lambda: device.work(1e-3), lambda: device.work(4e-3), lambda: device.work(9.0)])
    for _ in range(2):  # what was done before is no part of it
        assert streams.run([3, 2, 0]) == [pytest.approx(3e-3), pytest.approx(8e-3), 0.0]
    assert len({id(stream) for stream in device.order}) == 2
    assert device.default not in device.order


def test_calls_are_queued_evenly_mixed(device):
    streams = TorchStreams([lambda: device.work(1.0), lambda: device.work(1.0)])
    streams.run([2, 6])
    rare = device.order[1]
    assert [place for place, stream in enumerate(device.order) if stream is rare] == [1, 5]


def test_the_device_is_held_until_calls_are_queued_once_their_cost_is_known(device):
    streams = TorchStreams([lambda: device.work(1.0)])
    streams.run([5])
    assert device.held == []
    streams.run([5])
    assert len(device.held) == 1


def test_a_graph_has_the_streams_as_branches(device):
    streams = TorchStreams([lambda: device.work(2e-3), lambda: device.work(3e-3)])
    assert streams.capture([2, 2])() == pytest.approx(6e-3)  # the longer branch
    assert streams.capture([2, 0])() == pytest.approx(4e-3)


def test_calls_that_cannot_be_captured_are_a_failure_of_the_timer(device):
    device.refuses_graphs = True
    with pytest.raises(TimerFailed, match=r"not permitted when stream is capturing$"):
        TorchStreams([lambda: device.work(1.0)]).capture([1])


def test_starting_does_not_wait(device, monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    streams = TorchStreams([lambda: device.work(1.0), lambda: device.work(1.0)])
    streams.start([0, 3])
    assert len(device.order) == 3
    assert waits == []


def test_a_gpu_has_streams_and_a_cpu_has_none():
    assert TORCH_CUDA.streams
    assert not TORCH_CPU.streams
