"""A backend with knobs whose best values are known: `knobs-cpu` computes with NumPy, by a clock that only counts.

A launch takes as long as its configuration says, a little more or less in every process, as on a real machine.
OPMARK_KNOBS names what goes wrong with some values: crash, hang, oom, wrong, refuse; flat: no knob matters; contradict:
no configuration is allowed; slow: what the backend's own tuner finds is not the best; real: by the clock of the
machine, for which no knob matters either.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from opmark.errors import Unsupported
from opmark.frameworks.null.backend import VirtualTimer
from opmark.frameworks.numpy.backend import NumpyBackend
from opmark.plugin import BackendInfo, Configuration, Implementation, Knob, Params, Space, SpaceRule, Tuner, splits

KNOBS_CPU = BackendInfo(
    name="knobs-cpu",
    framework="knobs",
    device="cpu",
    loads="opmark_knobs:KnobsBackend",
    dtypes=frozenset({"float32"}),
    requires="numpy",
    tuners={"quick": "opmark_knobs:QuickTuner"},
)
SPREAD = 0.003
"""Relative standard deviation between processes."""
BEST = {"tile": (16, 16), "unroll": 4, "order": "ij", "fast": True}


def _faults() -> set[str]:
    return set(filter(None, os.environ.get("OPMARK_KNOBS", "").split(",")))


def space(p: Params) -> Space:
    extent = p["shape"][-1]
    rules = [SpaceRule("have at most 32 elements in the inner tile", lambda c: c["tile"][1] <= 32)]  # type: ignore[index, operator]
    if "contradict" in _faults():
        rules.append(SpaceRule("have more than 32 elements in the inner tile", lambda c: c["tile"][1] > 32))  # type: ignore[index, operator]
    return Space(
        (
            Knob("tile", splits(extent, 2), "split", (extent, 1)),
            Knob("unroll", (1, 2, 4, 8)),
            Knob("order", ("ji", "ij")),
            Knob("fast", (False, True), "flag"),
        ),
        tuple(rules),
    )


def seconds(configuration: Configuration) -> float:
    """How long a call takes: 100 microseconds at best, and up to some times as long."""
    if "flat" in _faults():
        return 1e-4
    tile, unroll = configuration["tile"], configuration["unroll"]
    away = abs(log2(tile[1]) - 4) * 0.15 + abs(log2(unroll) - 2) * 0.08  # type: ignore[index, arg-type]
    away += 0.3 * (configuration["order"] == "ji") + 0.5 * (not configuration["fast"])
    return 1e-4 * (1 + away)


class KnobsLaunch:
    def __init__(self, x: Any, configuration: Configuration) -> None:
        self._x = x
        self._wrong = "wrong" in _faults() and configuration["unroll"] == 4
        self.seconds = seconds(configuration)

    def __call__(self) -> Any:
        return np.exp(self._x) + self._wrong


def build(p: Params, x: Any, configuration: Configuration) -> KnobsLaunch:
    faults = _faults()
    if configuration["unroll"] == 8:
        if "crash" in faults:
            os.abort()
        if "hang" in faults:
            time.sleep(3600)
        if "oom" in faults:
            raise MemoryError("no room for so much unrolling")
        if "refuse" in faults:
            raise Unsupported("the compiler refuses to unroll so much")
    return KnobsLaunch(x, configuration)


IMPLEMENTATIONS = {"exp": Implementation("knobs", build, space=space)}


class QuickTuner(Tuner):
    """A tuner of the backend, with a space that only it knows, as MetaSchedule has one."""

    def ask(self, most: int) -> Sequence[Configuration]:
        return [] if self.own_trials else [{"quick": True}]

    def tell(self, configuration: Configuration, seconds: float | None) -> None:
        self.own_trials += 1


class CountedTimer(VirtualTimer):
    """The clock of a process, which is a little faster or slower than that of others."""

    def __init__(self) -> None:
        super().__init__(random.SystemRandom().randrange(1 << 30), 0.002)
        self._pace = 1 + SPREAD * random.SystemRandom().gauss(0, 1)

    def time(self, launch: Any, calls: int) -> float:
        return self._pace * super().time(lambda: getattr(launch, "seconds", 1e-6), calls)


class KnobsBackend(NumpyBackend):
    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._timer = CountedTimer()

        self._quick = False

    def configure(self, configuration: Configuration) -> None:
        self._quick = "quick" in configuration

    def compile(self, built: Any, inputs: Any) -> Any:
        if self._quick:
            built.seconds = 1.1e-4 if "slow" in _faults() else 5e-5
        return built

    def timers(self) -> Any:
        return super().timers() if "real" in _faults() else {"latency": self._timer}
