"""No hardware: tensors without data, launches without work, a clock that is only counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from opmark.interfaces import HostBackend, Timer
from opmark.schema import Implementation, Launch, Params, TensorSpec

_BYTES_PER_SECOND = 1e11
_LAUNCH_SECONDS = 1e-6
_JITTER = 0.005


class NullLaunch:
    """Does nothing, and knows how long that is to take."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def _build(p: Params, **tensors: TensorSpec) -> Launch:
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    return NullLaunch(_LAUNCH_SECONDS + nbytes / _BYTES_PER_SECOND)


# The null framework takes any operator, by not computing it.
IMPLEMENTATIONS = {"*": Implementation("null", _build)}


class VirtualTimer:
    """Time passes only by what launches say they take, with a little seeded jitter."""

    name = "virtual"
    resolution = 1e-9

    def __init__(self, seed: int = 0, jitter: float = _JITTER) -> None:
        self._random = random.Random(seed)
        self._jitter = jitter

    def time(self, launch: Launch, calls: int) -> float:
        seconds = launch()
        seconds = seconds if isinstance(seconds, float) else _LAUNCH_SECONDS
        return calls * seconds * (1 + self._jitter * abs(self._random.gauss(0, 1)))

    def overhead(self, calls: int) -> float:
        return 0.0


class NullBackend(HostBackend):
    """Tensors are their specs. Nothing is computed, so nothing can be looked at."""

    def upload(self, array: Any, dtype: str) -> Any:
        raise TypeError("the null backend has no tensors with values")

    def download(self, tensor: Any) -> Any:
        raise TypeError("the null backend computes nothing that could be looked at")

    def tensor(self, spec: TensorSpec, seed: int) -> TensorSpec:
        return spec

    def dtype(self, value: TensorSpec) -> str:
        return value.dtype

    def poison(self, value: Any) -> None:
        return None

    def copy_into(self, target: Any, source: Any) -> None:
        return None

    def overwrite(self, nbytes: int) -> Launch:
        return NullLaunch(nbytes / _BYTES_PER_SECOND)

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        return NullLaunch((3 if forward else 2) * getattr(launch, "seconds", _LAUNCH_SECONDS)), ()

    def timers(self) -> dict[str, Timer]:
        return {"latency": VirtualTimer(), "throughput": VirtualTimer()}
