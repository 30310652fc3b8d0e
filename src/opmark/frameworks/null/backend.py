"""Backends without hardware: tensors without data, launches without work, clocks that are only counted.

`null-device` also makes up a device with a clock, sensors and failures; OPMARK_NULL_DEVICE lists what goes wrong,
separated by commas: a drill for the bad days of a GPU.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opmark.errors import TimerFailed
from opmark.plugin import Activity, DeviceClock, HostBackend, Implementation, Launch, Params, Streams, Timer, Trace
from opmark.schema import SensorReading, TensorSpec

_BYTES_PER_SECOND = 1e11
_LAUNCH_SECONDS = 1e-6
_JITTER = 0.005


class NullLaunch:
    """A launch that does nothing, and knows how long it should take."""

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
    """A clock that advances by the time that launches say they take, with a little seeded jitter."""

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
    """Tensors are their specs. Nothing is computed, so nothing can be read."""

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

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return launches that do nothing. The clock of a load is a real one: it shows what the generator costs."""
        return [launch, *map(rebuild, others)]

    def timers(self) -> dict[str, Timer]:
        return {"latency": VirtualTimer(), "throughput": VirtualTimer()}


VARIABLE = "OPMARK_NULL_DEVICE"
FAULTS = {
    "no-profiler": "the profiler cannot start",
    "lost": "the profiler loses the records of every third call",
    "all-lost": "the profiler loses all records",
    "stray": "the device does work that no call launched",
    "no-sensors": "nobody tells clock, power and temperature",
    "throttled": "the power limit pulls the clock down",
    "events-off": "events say twice the time",
    "no-graphs": "nothing can be captured",
    "idle": "calls launch nothing",
    "hang": "the last client waits for its fifth answer for ever",
    "fail": "the last client's fifth request fails",
    "slow": "making an input takes half a second",
}
_CLOCK = 1.5e9
_EVENT = 1e-6
_CACHE = 32 << 20
_FAULTY_CALL = 5
_INTERFERENCE = 0.4
"""How much longer work takes on a stream for each other stream that has work."""
_SLOW = 0.5


def faults() -> frozenset[str]:
    named = frozenset(filter(None, os.environ.get(VARIABLE, "").split(",")))
    unknown = sorted(named - FAULTS.keys())
    if unknown:
        raise ValueError(f"{VARIABLE}: no fault named {', '.join(unknown)}; known: {', '.join(FAULTS)}")
    return named


class NullDeviceClock(DeviceClock):
    """A made-up device that runs two kernels per call: the second takes a quarter of the time, a little later."""

    name = "cupti"

    def __init__(self) -> None:
        self._random = random.Random(0)

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        wrong = faults()
        if "no-profiler" in wrong:
            raise TimerFailed("the profiler cannot start: it is already in use")
        calls = [[] if "idle" in wrong else self._activities(launch()) for launch in launches]
        lost = [i for i in range(len(calls)) if "all-lost" in wrong or ("lost" in wrong and i % 3 == 2)]
        for i in lost:
            calls[i] = []
        return Trace(calls, len(lost), stray=int("stray" in wrong))

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        factor = 2.0 if "events-off" in faults() else 1.0
        return [_EVENT + factor * self._jitter() * _seconds(launch()) for launch in launches]

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        if "no-graphs" in faults():
            raise TimerFailed("these calls cannot be captured in a graph: not permitted")
        seconds = [_seconds(launch()) for launch in launches]
        return lambda: self._jitter() * sum(seconds) / len(seconds)

    def _activities(self, output: Any) -> list[Activity]:
        seconds = self._jitter() * _seconds(output)
        return [Activity("first", 0.0, 0.75 * seconds), Activity("second", 0.8 * seconds, 1.05 * seconds)]

    def _jitter(self) -> float:
        return 1 + 0.002 * abs(self._random.gauss(0, 1))


class FaultyLaunch:
    """A launch whose fifth call hangs or fails."""

    def __init__(self, launch: Launch, *, hangs: bool) -> None:
        self._launch = launch
        self._hangs = hangs
        self._calls = 0

    def __call__(self) -> Any:
        self._calls += 1
        if self._calls == _FAULTY_CALL and self._hangs:
            threading.Event().wait()
        if self._calls == _FAULTY_CALL:
            raise OSError("the device has lost the request")
        return self._launch()


class NullSensors:
    """The counter of energy steps with every reading, as if each took a tenth of a second at 100 watts."""

    def __init__(self) -> None:
        self._looks = 0
        self._joules = 0.0

    def read(self) -> SensorReading:
        self._looks += 1
        throttled = "throttled" in faults() and self._looks > 3
        clock = 0.7 * _CLOCK if throttled else _CLOCK
        return SensorReading(clock=clock, power=100.0, temperature=40.0, throttle=("power",) if throttled else ())

    def energy(self) -> float | None:
        self._joules += 10.0
        return self._joules


class NullStreams(Streams):
    """Streams of a made-up device. Each works at a part of its speed while others do, and all together are faster than
    one after the other."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._seconds = [_seconds(launch()) for launch in launches]
        self._random = random.Random(0)

    def run(self, calls: Sequence[int]) -> list[float]:
        left = {i: count * own for i, (count, own) in enumerate(zip(calls, self._seconds, strict=True)) if count}
        now, ends = 0.0, [0.0] * len(calls)
        while left:
            slowed = 1 + _INTERFERENCE * (len(left) - 1)
            step = min(left.values())
            now += step * slowed
            for index in [i for i, own in left.items() if own <= step]:
                ends[index] = now * (1 + 0.002 * abs(self._random.gauss(0, 1)))
            left = {i: own - step for i, own in left.items() if own > step}
        return ends

    def start(self, calls: Sequence[int]) -> None:
        return None

    def capture(self, calls: Sequence[int]) -> Callable[[], float]:
        if "no-graphs" in faults():
            raise TimerFailed("these calls cannot be captured in a graph: not permitted")
        return lambda: max(self.run(calls))


class NullDevice(NullBackend):
    asynchronous = True

    def tensor(self, spec: TensorSpec, seed: int) -> TensorSpec:
        if "slow" in faults():
            time.sleep(_SLOW)
        return super().tensor(spec, seed)

    def timers(self) -> dict[str, Timer]:
        return {quantity: VirtualTimer() for quantity in ("latency", "host_time", "throughput")}

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        launches = [*super().clients(launch, others, rebuild)]
        if {"hang", "fail"} & faults():
            launches[-1] = FaultyLaunch(launches[-1], hangs="hang" in faults())
        return launches

    def streams(self, launches: Sequence[Launch]) -> Streams:
        return NullStreams(launches)

    def device_clock(self) -> NullDeviceClock:
        return NullDeviceClock()

    def sensors(self) -> NullSensors | None:
        return None if "no-sensors" in faults() else NullSensors()

    def cache_bytes(self) -> int:
        return _CACHE


def _seconds(output: Any) -> float:
    return output if isinstance(output, float) else 0.0
