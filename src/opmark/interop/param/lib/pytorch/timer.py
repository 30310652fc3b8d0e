"""PARAM's lib.pytorch.timer: a stopwatch that waits for a GPU. opmark's own times do not come from it."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from opmark.plugin.registry import resolve


class ParamTimer:
    """Measures by the host's clock, from `start` to `stop` or in a `with` block; a GPU has finished at both ends."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.start_time = self.end_time = 0.0

    def start(self) -> None:
        self._synchronize()
        self.start_time = perf_counter()

    def stop(self) -> None:
        self._synchronize()
        self.end_time = perf_counter()

    def __enter__(self) -> ParamTimer:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def elapsed_time_sec(self) -> float:
        return self.end_time - self.start_time

    def elapsed_time_ms(self) -> float:
        return 1e3 * self.elapsed_time_sec()

    def elapsed_time(self) -> float:
        """Return seconds, as the timer of 2021 does."""
        return self.elapsed_time_sec()

    def _synchronize(self) -> None:
        if self.device.startswith("cuda"):
            resolve("torch.cuda.synchronize")()


Timer = ParamTimer
