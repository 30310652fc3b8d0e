"""The chip's own account of what it did: when each kernel began and ended, and events between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from opmark.errors import TimerFailed
from opmark.interfaces import Activity, Trace
from opmark.schema import Launch
from opmark_example_npu.device import Device


class NpuClock:
    name = "npu-log"

    def __init__(self, device: Device) -> None:
        self._device = device

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        """The queue is worked off in order: a call's kernels are those that it has put there."""
        device, calls = self._device, list[tuple[int, int]]()
        device.synchronize()
        log = device.log = []
        origin, first = time.perf_counter(), device.launched
        try:
            device.launch("hold", partial(time.sleep, hold))
            for launch in launches:
                if before:
                    before()
                start = device.launched
                launch()
                calls.append((start - first, device.launched - first))
            device.synchronize()
        finally:
            device.log = None
        return Trace([[Activity(n, s - origin, e - origin) for n, s, e in log[i:j]] for i, j in calls])

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        times: list[float] = []
        event = partial(self._device.launch, "event", lambda: times.append(time.perf_counter()))
        self._device.synchronize()
        self._device.launch("hold", partial(time.sleep, hold))
        for launch in launches:
            if before:
                before()
            event()
            launch()
            event()
        self._device.synchronize()
        return [end - start for start, end in zip(times[::2], times[1::2], strict=True)]

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        raise TimerFailed("this chip has no graphs")
