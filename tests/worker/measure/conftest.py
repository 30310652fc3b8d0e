"""Clocks, devices and sensors that say what a test tells them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from opmark.plugin import Activity, DeviceClock, Launch, Trace
from opmark.schema import Conditions, SensorReading
from opmark.worker.measure import clock
from opmark.worker.measure.instruments import ConditionsMonitor

QUIET = Conditions()


class FakeTime:
    """Stands for the module `time`: a reading takes 25 ns, work and sleep what they say, and nothing else any time."""

    def __init__(self) -> None:
        self.now, self.step = 10**12, 25
        self.slept: list[float] = []

    def perf_counter_ns(self) -> int:
        self.now += self.step
        return self.now

    def perf_counter(self) -> float:
        return self.perf_counter_ns() * 1e-9

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def work(self, seconds: float) -> Launch:
        return lambda: self.pass_(seconds)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`fake_time(*modules)`: they live in a time of their own, and the clock asks anew what it costs."""
    fake = FakeTime()

    def install(*modules: Any) -> FakeTime:
        for module in modules:
            monkeypatch.setattr(module, "time", fake, raising=False)
        return fake

    forget_what_the_clock_costs()
    yield install
    forget_what_the_clock_costs()


def forget_what_the_clock_costs() -> None:
    clock._own_cost.cache_clear()
    clock._resolution.cache_clear()


class FakeDevice(DeviceClock):
    """Its clock says what launches return: the activities of a call. An event costs it a microsecond."""

    name = "told"
    event = 1e-6

    def __init__(self) -> None:
        self.traces: list[tuple[int, Launch | None, float]] = []
        """Calls, what came before each, how long it was held: of each trace, the trial first."""
        self.queues: list[tuple[int, Launch | None, float]] = []
        self.captured: list[Launch] = []
        self.lost: Callable[[int, int], bool] = lambda trace, call: False
        self.stray: Callable[[int], int] = lambda trace: 0

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        session = len(self.traces)
        self.traces.append((len(launches), before, hold))
        calls = []
        for i, launch in enumerate(launches):
            if before:
                before()
            done = list(launch())
            calls.append([] if self.lost(session, i) else done)
        lost = sum(self.lost(session, i) for i in range(len(launches)))
        return Trace(calls, lost, self.stray(session))

    def queued(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> list[float]:
        self.queues.append((len(launches), before, hold))
        found = []
        for launch in launches:
            if before:
                before()
            done = launch() or ()
            found.append(self.event + sum(activity.end - activity.start for activity in done))
        return found

    def capture(self, launches: Sequence[Launch]) -> Callable[[], float]:
        self.captured = list(launches)
        done = [launch() for launch in launches]
        took = sum(activity.end - activity.start for call in done for activity in call)
        return lambda: took / len(launches)


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def kernels() -> Callable[..., Launch]:
    """`kernels(2e-6, ("copy", 1e-6))`: a launch of these, with a gap of half a microsecond between two."""

    def launch_of(*parts: float | tuple[str, float]) -> Launch:
        start, done = 0.0, []
        for part in parts:
            name, seconds = part if isinstance(part, tuple) else ("kernel", part)
            done.append(Activity(name, start, start + seconds))
            start += seconds + 5e-7
        return lambda: done

    return launch_of


class ToldSensors:
    """Reads out a script; the last reading repeats."""

    def __init__(self, readings: Sequence[SensorReading], joules: Callable[[], float | None] = lambda: None) -> None:
        self._readings, self.energy = list(readings), joules
        self.looks = 0

    def read(self) -> SensorReading:
        self.looks += 1
        return self._readings[min(self.looks, len(self._readings)) - 1]


@pytest.fixture
def told_sensors() -> type[ToldSensors]:
    return ToldSensors


class ToldWatch(ConditionsMonitor):
    """A watch over a machine that is as the test says, and that knows when sampling begins."""

    def __init__(self, conditions: Conditions = QUIET, begins: Callable[[], object] = lambda: None) -> None:
        super().__init__(None)
        self.has_sensors = True
        self._conditions, self._begins = conditions, begins
        self.looks: list[int] = []
        self.ended: list[int] = []

    def begin(self) -> None:
        self._begins()

    def look(self, taken: int) -> None:
        self.looks.append(taken)

    def end(self, taken: int) -> Conditions:
        self.ended.append(taken)
        return self._conditions


@pytest.fixture
def told_watch() -> type[ToldWatch]:
    return ToldWatch


class Scripted:
    """A timer that says what the script says.

    `seconds(i)` is what a call takes in the i-th timing; `own(calls)` is what the harness adds to a timing.
    """

    def __init__(
        self,
        seconds: Callable[[int], float],
        own: Callable[[int], float] = lambda calls: 0.0,
        resolution: float = 1e-9,
        name: str = "virtual",
    ) -> None:
        self._seconds, self._own, self.resolution, self.name = seconds, own, resolution, name
        self.asked: list[int] = []
        """Calls of each timing, in order."""

    @classmethod
    def steady(cls, seconds: float, **more: Any) -> Scripted:
        return cls(lambda i: seconds, **more)

    def time(self, launch: Launch, calls: int) -> float:
        launch()
        self.asked.append(calls)
        return calls * self._seconds(len(self.asked) - 1) + self._own(calls)

    def overhead(self, calls: int) -> float:
        return self._own(calls)

    def growing(self) -> list[int]:
        """The timings that looked for the number of calls."""
        return self.asked[: self.asked.index(self.asked[-1]) + 1]


@pytest.fixture(scope="session")
def scripted() -> type[Scripted]:
    return Scripted
