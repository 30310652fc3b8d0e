"""Runs launches at the same time on a CUDA device, each on a stream of its own, and times them by events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import torch

from opmark.errors import TimerFailed
from opmark.frameworks.torch.device_clock import hold_device
from opmark.plugin import Launch, Streams

_LONGEST_HOLD = 0.05
"""Seconds for which the device may be held while calls are queued."""
_WARM_CAPTURES = 3


class TorchStreams(Streams):
    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = launches
        self._streams = [torch.cuda.Stream() for _ in launches]
        self._queueing = 0.0
        """Seconds that the host took to queue a call, at most."""

    def run(self, calls: Sequence[int]) -> list[float]:
        torch.cuda.synchronize()
        start = torch.cuda.Event(enable_timing=True)
        hold_device(min(_LONGEST_HOLD, 1.5 * self._queueing * sum(calls)))
        start.record()
        began = perf_counter()
        ends = self._queue(calls, start)
        self._queueing = max(self._queueing, (perf_counter() - began) / max(1, sum(calls)))
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e-3 if count else 0.0 for end, count in zip(ends, calls, strict=True)]

    def start(self, calls: Sequence[int]) -> None:
        start = torch.cuda.Event(enable_timing=True)
        start.record()
        self._queue(calls, start)

    def capture(self, calls: Sequence[int]) -> Callable[[], float]:
        for index in _interleaved(calls):  # what is made at the first call cannot be captured
            if calls[index]:
                with torch.cuda.stream(self._streams[index]):
                    self._launches[index]()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                origin = torch.cuda.current_stream()
                for stream in self._streams:
                    stream.wait_stream(origin)
                for index in _interleaved(calls):
                    with torch.cuda.stream(self._streams[index]):
                        self._launches[index]()
                for stream in self._streams:
                    origin.wait_stream(stream)
        except RuntimeError as error:
            message = next(iter(str(error).splitlines()), "")
            raise TimerFailed(f"these calls cannot be captured in a graph: {message}") from None
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(_WARM_CAPTURES):
            graph.replay()

        def replay() -> float:
            torch.cuda.synchronize()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3

        return replay

    def _queue(self, calls: Sequence[int], start: torch.cuda.Event) -> list[torch.cuda.Event]:
        ends = [torch.cuda.Event(enable_timing=True) for _ in self._streams]
        for stream in self._streams:
            stream.wait_event(start)
        for index in _interleaved(calls):
            with torch.cuda.stream(self._streams[index]):
                self._launches[index]()
        for stream, end in zip(self._streams, ends, strict=True):
            end.record(stream)
        return ends


def _interleaved(calls: Sequence[int]) -> Iterator[int]:
    """Yield the launches in the order in which they are queued: evenly mixed, so that no stream waits for the host."""
    places = [((number + 0.5) / count, index) for index, count in enumerate(calls) for number in range(count)]
    return (index for _, index in sorted(places))
