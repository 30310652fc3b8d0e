"""What a worker of `steps-cpu` runs."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from opmark.frameworks.numpy.backend import NumpyBackend
from opmark.plugin import Launch, Timer


class StepTimer:
    """Counts the lines of Python that a call runs, whatever else the machine does meanwhile."""

    name = "steps"
    resolution = 1e-9

    def time(self, launch: Launch, calls: int) -> float:
        steps = 1

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal steps
            steps += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            launch()
        finally:
            sys.settrace(before)
        return calls * steps * 1e-6

    def overhead(self, calls: int) -> float:
        return 0.0


class Backend(NumpyBackend):
    def timers(self) -> dict[str, Timer]:
        return {"latency": StepTimer(), "throughput": StepTimer()}
