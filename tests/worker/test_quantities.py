"""Which quantities are measured, with which clock and which caches, and what is said where something cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.errors import Unsupported
from opmark.frameworks.null.backend import VARIABLE, NullBackend, NullDevice, NullDeviceClock, NullLaunch
from opmark.frameworks.numpy.backend import NumpyBackend
from opmark.plugin import Activity, Backend, Implementation, Launch, Trace
from opmark.plugin.registry import backend, implementations, operator
from opmark.runner.plan import settings_for
from opmark.schema import MODES, Case, Measurement, Record, Settings, Task
from opmark.schema.options import MeasureOptions
from opmark.stats.measurement import cycles, summarize
from opmark.worker.measure.instruments import Instruments
from opmark.worker.preparation import prepare
from opmark.worker.quantities import TaskMeasurement, quantities_for
from opmark.worker.task_runner import TaskRunner

TINY = [4]
SHORT = [1024, 1024]  # two inputs of 4 MiB: 85 µs on the made-up device
LONG = [2048, 2048]

Keys = list[tuple[str, str]]


def make_task(name: str, shape: list[int], **asked: Any) -> Task:
    info, op = backend(name), operator("add")
    sampling = asked.pop("sampling", {"warmup": 2, "samples": 20})
    (settings,) = settings_for(MeasureOptions(threads=[1], effort="quick", **sampling, **asked))
    case = Case.of("add", op.complete({"shape": shape}), "forward")
    return Task(case, name, implementations(op, info)[0].label, settings)


def measuring(task: Task, live: Backend | None = None, **changed: Any) -> TaskMeasurement:
    """One task on its backend; `changed` is what the instruments has in place of its own."""
    info, op, params = backend(task.backend), operator(task.case.op), task.case.params
    live = live or info.load(threads=1)
    instruments = Instruments.of(info, live, live.sensors())
    for name, value in changed.items():
        setattr(instruments, name, value)
    implementation = implementations(op, info)[0]
    return TaskMeasurement(task, op, implementation, live, instruments, prepare(params, task, op, implementation, live))


def keys(found: tuple[Measurement, ...]) -> Keys:
    return [(m.quantity, m.cache) for m in found]


@pytest.fixture
def drill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[tuple[str, str], Measurement], list[str]]]:
    """Measures `add` on the device that is not there, with faults: (measurements by quantity and cache, notes)."""

    def run(faults: str = "", shape: list[int] = SHORT, **asked: Any) -> Any:
        monkeypatch.setenv(VARIABLE, faults)
        work = measuring(make_task("null-device", shape, **asked))
        found = {(m.quantity, m.cache): m for m in work.run()}
        return found, work.notes

    return run


Drill = Callable[..., tuple[dict[tuple[str, str], Measurement], list[str]]]


def codes(measurement: Measurement) -> set[str]:
    return {caution.code for caution in measurement.cautions}


# What is measured by default.


def test_a_device_has_all_that_it_did_cold_and_warm_and_the_rest_warm() -> None:
    found = measuring(make_task("null-device", SHORT)).run()
    assert keys(found) == [
        ("device_time", "cold"), ("device_time", "warm"), ("device_span", "cold"), ("device_span", "warm"),
        ("latency", "warm"), ("host_time", "warm"), ("throughput", "warm"),
    ]  # fmt: skip


def test_a_launch_that_has_settled_is_not_warmed_up_again_but_for_lasting_load(drill: Drill) -> None:
    found, _ = drill(sampling={})
    first, again = found["device_time", "cold"], found["device_time", "warm"]
    assert "unsettled" not in codes(first)
    assert again.warmup_calls < first.warmup_calls
    assert found["latency", "warm"].warmup_time < found["throughput", "warm"].warmup_time


@pytest.mark.parametrize("name", ["null", "numpy-cpu"])
def test_a_host_has_the_latency_warm(name: str) -> None:
    assert keys(measuring(make_task(name, TINY)).run()) == [("latency", "warm")]


def test_what_is_asked_for_is_measured_in_the_order_of_the_quantities() -> None:
    task = make_task("null", SHORT, quantity=["throughput", "latency"], cache=["warm", "cold"])
    assert keys(measuring(task).run()) == [
        ("latency", "cold"), ("latency", "warm"), ("throughput", "cold"), ("throughput", "warm"),
    ]  # fmt: skip


@pytest.mark.parametrize("quantity", ["device_time", "device_span"])
def test_one_of_what_a_trace_tells_can_be_had_alone(quantity: str, drill: Drill) -> None:
    found, notes = drill(quantity=[quantity], cache=["warm"])
    assert list(found) == [(quantity, "warm")]
    assert notes == []


@pytest.mark.parametrize(("mode", "quantity"), MODES.items())
def test_a_mode_of_param_is_one_quantity(mode: str, quantity: str, drill: Drill) -> None:
    found, notes = drill(mode=mode)
    assert list(found) == [(quantity, "warm")]
    assert notes == []
    cold, _ = drill(mode=mode, cache=["cold"])
    assert list(cold) == [(quantity, "cold")]


def test_the_modes_differ_in_how_their_samples_are_taken(drill: Drill) -> None:
    """As PARAM has them: each call alone, one stretch of all calls, events around each."""
    taken = {mode: next(iter(drill(mode=mode)[0].values())) for mode in MODES}
    assert {mode: (len(m.samples), m.calls) for mode, m in taken.items()} == {
        "discrete": (20, 1),
        "continuous": (1, 20),
        "continuous_events": (20, 1),
    }
    assert taken["continuous_events"].timer == "events"


@pytest.mark.parametrize(
    ("asked", "has_clock", "expected"),
    [
        ({}, False, ("latency",)),
        ({"quantity": ["energy"]}, True, ("energy",)),
        ({"mode": "continuous"}, True, ("throughput",)),
    ],
)
def test_what_is_wanted(asked: dict[str, Any], has_clock: bool, expected: tuple[str, ...]) -> None:
    (settings,) = settings_for(MeasureOptions(threads=[1], processes=1, **asked))
    assert isinstance(settings, Settings)
    assert quantities_for(settings, has_clock=has_clock) == expected


# What the device did.


def test_the_kernels_of_a_call_add_up_and_the_gap_between_them_is_in_the_span(drill: Drill) -> None:
    found, _ = drill(cache=["warm"])
    time, span = found["device_time", "warm"], found["device_span", "warm"]
    assert [(kernel.name, kernel.count) for kernel in time.kernels] == [("first", 1.0), ("second", 1.0)]
    assert time.kernels[0].time / time.kernels[1].time == pytest.approx(3)
    assert sum(kernel.time for kernel in time.kernels) == pytest.approx(median(time.samples), rel=0.02)
    assert median(span.samples) / median(time.samples) == pytest.approx(1.05, rel=1e-6)
    assert span.kernels == ()
    assert (time.timer, span.timer) == ("cupti", "cupti")


def test_a_device_is_made_cold_by_overwriting_twice_its_cache(drill: Drill) -> None:
    found, _ = drill()
    assert found["device_time", "cold"].control == "64.0 MiB overwritten before each call"
    assert found["device_time", "warm"].control == ""


def test_what_a_device_did_is_told_in_cycles_too(drill: Drill) -> None:
    found, _ = drill(cache=["warm"])
    time = found["device_time", "warm"]
    assert summarize([time]).cycles == pytest.approx(1.5e9 * median(time.samples))


def test_energy_is_counted_where_somebody_counts(drill: Drill) -> None:
    found, notes = drill(quantity=["energy"])
    assert list(found) == [("energy", "warm")]
    assert len(found["energy", "warm"].samples) == 3
    assert min(found["energy", "warm"].samples) > 0
    assert notes == []


def test_there_is_one_energy_whatever_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of a loop, so that it is warm; cold cannot be had, and that is said."""
    monkeypatch.setattr("opmark.worker.measure.sampler._WINDOW", 0.01)
    work = measuring(make_task("null-device", SHORT, quantity=["energy"], cache=["cold", "warm"]))
    assert keys(work.run()) == [("energy", "warm")]
    assert any("energy" in note and "cold" in note for note in work.notes)


# The bad days of a device.


@pytest.mark.parametrize("fault", ["no-profiler", "all-lost"])
def test_without_the_profiler_the_span_comes_from_another_timer_and_that_is_said(fault: str, drill: Drill) -> None:
    found, notes = drill(fault)
    assert ("device_time", "warm") not in found
    assert {key: m.timer for key, m in found.items() if key[0] == "device_span"} == {
        ("device_span", "cold"): "events",
        ("device_span", "warm"): "events",
    }
    assert [note.split(":")[0] for note in notes] == ["device_time cold", "device_time warm"]
    why = "already in use" if fault == "no-profiler" else "lost the records of all"
    assert all(why in note and "events or a graph" in note for note in notes)
    assert found["latency", "warm"].samples


def test_what_events_say_agrees_with_what_the_profiler_would(drill: Drill) -> None:
    events, _ = drill("no-profiler", cache=["warm"], shape=LONG)
    traced, _ = drill(cache=["warm"], shape=LONG)
    ratio = median(events["device_span", "warm"].samples) / median(traced["device_time", "warm"].samples)
    assert ratio == pytest.approx(1, rel=0.02)


def test_too_short_for_events_it_is_a_captured_graph(drill: Drill) -> None:
    found, _ = drill("no-profiler", shape=TINY, cache=["warm"])
    assert found["device_span", "warm"].timer == "graph"


def test_what_cannot_be_captured_stays_with_events_and_says_so(drill: Drill) -> None:
    found, notes = drill("no-profiler,no-graphs", shape=TINY, cache=["warm"])
    assert found["device_span", "warm"].timer == "events"
    assert any(note.startswith("device_span by a captured graph warm: ") for note in notes)
    assert "coarse" in codes(found["device_span", "warm"])


def test_a_graph_cannot_be_flushed_between_its_calls(drill: Drill) -> None:
    """A tiny case would take millions of copies to rotate: cold, the events stay."""
    found, notes = drill("no-profiler", shape=TINY, cache=["cold"])
    assert found["device_span", "cold"].timer == "events"
    assert any("captured graph cold: rotation would take" in note for note in notes)


def test_records_that_are_lost_are_no_samples_and_a_caution(drill: Drill) -> None:
    found, _ = drill("lost", cache=["warm"])
    for quantity in ("device_time", "device_span"):
        measurement = found[quantity, "warm"]
        assert "records-lost" in codes(measurement)
        assert len(measurement.samples) == 20
        assert min(measurement.samples) > 0
    assert "records-lost" not in codes(found["latency", "warm"])
    whole, _ = drill(cache=["warm"])
    ratio = median(found["device_time", "warm"].samples) / median(whole["device_time", "warm"].samples)
    assert ratio == pytest.approx(1, rel=0.02)


def test_work_that_no_call_launched_is_a_caution(drill: Drill) -> None:
    found, _ = drill("stray", cache=["warm"])
    assert "stray-work" in codes(found["device_time", "warm"])
    assert "stray-work" not in codes(drill(cache=["warm"])[0]["device_time", "warm"])


def test_a_call_that_launches_nothing_is_a_caution(drill: Drill) -> None:
    found, _ = drill("idle", cache=["warm"])
    measurement = found["device_time", "warm"]
    assert set(measurement.samples) == {0.0}
    assert "no-kernels" in codes(measurement)


def test_a_call_that_launches_nothing_is_measured_to_the_end_at_any_effort(drill: Drill) -> None:
    found, _ = drill("idle", cache=["warm"], sampling={})
    assert found["device_time", "warm"].stop in ("precise", "budget")


def test_without_sensors_there_are_no_cycles_and_no_energy_and_everything_else(drill: Drill) -> None:
    found, notes = drill("no-sensors", quantity=["device_time", "latency", "energy"], cache=["warm"])
    assert list(found) == [("device_time", "warm"), ("latency", "warm")]
    assert notes == ["energy: nothing here counts energy (neither NVML nor RAPL answers)"]
    assert found["device_time", "warm"].conditions.readings == ()
    assert cycles(found["device_time", "warm"]) is None


def test_a_clock_that_is_held_down_is_a_caution_and_its_samples_are_marked(drill: Drill) -> None:
    found, _ = drill("throttled", quantity=["device_time", "latency"], cache=["warm"])
    last = found["latency", "warm"]
    assert "clocks-moved" in codes(last)
    (caution,) = (c for c in last.cautions if c.code == "clocks-moved")
    assert "1050" in caution.message
    assert "1500" in caution.message
    assert "power" in caution.message
    assert last.throttled == list(range(20))
    assert cycles(last) == pytest.approx(0.7 * 1.5e9 * median(last.samples))


def test_a_clock_that_stays_is_no_caution(drill: Drill) -> None:
    found, _ = drill(cache=["warm"])
    assert all("clocks-moved" not in codes(m) and m.throttled == [] for m in found.values())


# A second timer now and then.


def test_a_second_timer_that_agrees_is_told(drill: Drill) -> None:
    found, _ = drill(shape=LONG)
    span = found["device_span", "warm"]
    assert span.check is not None
    assert span.check.timer == "events"
    assert span.check.median / median(span.samples) == pytest.approx(1, rel=0.06)
    assert found["device_time", "warm"].check is None
    assert found["device_span", "cold"].check is None


def test_a_second_timer_that_disagrees_is_a_caution(drill: Drill) -> None:
    found, _ = drill("events-off", shape=LONG)
    span = found["device_span", "warm"]
    assert "timers-disagree" in codes(span)
    assert span.check is not None
    assert span.check.median / median(span.samples) == pytest.approx(2 / 1.05, rel=0.02)


def test_one_task_in_eight_is_checked() -> None:
    task = make_task("null-device", SHORT, quantity=["device_span"], cache=["warm"])
    bench = TaskRunner(backend("null-device"), NullDevice(backend("null-device"), 1))
    checked = [bench.run(task).measurements[0].check is not None for _ in range(17)]
    assert checked == [i % 8 == 0 for i in range(17)]


# A timer that is named.


@pytest.mark.parametrize("timer", ["events", "graph"])
def test_a_timer_that_is_named_is_the_one_that_is_used(timer: str, drill: Drill) -> None:
    found, _ = drill(timer=timer, shape=LONG, cache=["warm"], quantity=["device_span"])
    assert {key: m.timer for key, m in found.items()} == {("device_span", "warm"): timer}


def test_a_quantity_that_the_named_timer_cannot_tell_is_said(drill: Drill) -> None:
    _, notes = drill(timer="events", shape=LONG, cache=["warm"], quantity=["device_time", "device_span"])
    assert any(note.startswith("device_time") for note in notes)


def test_a_timer_that_this_device_does_not_have_is_said(drill: Drill) -> None:
    _, notes = drill(timer="roctracer", shape=LONG, cache=["warm"], quantity=["device_time"])
    assert any("roctracer" in note for note in notes)


# What cannot be had.


def test_a_host_has_no_clock_of_a_device() -> None:
    work = measuring(make_task("null", TINY, quantity=["device_time", "latency"]))
    assert keys(work.run()) == [("latency", "warm")]
    assert work.notes == ["device_time: null has no clock of its own on a device"]


def test_a_call_that_is_done_when_it_returns_has_no_time_of_the_host() -> None:
    work = measuring(make_task("null", TINY, quantity=["host_time", "latency"]))
    assert keys(work.run()) == [("latency", "warm")]
    assert work.notes == ["host_time: a call of this backend is done when it returns: that is its latency"]


def test_where_nothing_can_be_had_the_task_is_skipped_with_every_reason() -> None:
    work = measuring(make_task("null", TINY, quantity=["device_time", "energy"]))
    with pytest.raises(Unsupported) as caught:
        work.run()
    assert "device_time: null has no clock of its own" in caught.value.message
    assert "energy: nothing here counts energy (neither NVML nor RAPL answers)" in caught.value.message


def test_what_could_not_be_had_is_part_of_the_record() -> None:
    bench = TaskRunner(backend("null"), NullBackend(backend("null"), 1))
    record = bench.run(make_task("null", TINY, quantity=["latency", "host_time"]))
    assert isinstance(record, Record)
    assert (record.status, len(record.notes)) == ("ok", 1)
    assert record.notes[0].startswith("host_time: ")
    assert bench.run(make_task("null", TINY)).notes == ()
    nothing = bench.run(make_task("null", TINY, mode="continuous_events"))
    assert nothing.status == "skipped"
    assert "event_time" in nothing.reason


# Cold on a processor.


class Traced(NumpyBackend):
    """Notes in which order inputs are made and caches overwritten."""

    def __init__(self, free: int | None = None) -> None:
        super().__init__(backend("numpy-cpu"), 1)
        self.made: list[Any] = []
        self.overwritten: list[int] = []
        self._free = free

    def tensor(self, spec: Any, seed: int) -> Any:
        self.made.append(super().tensor(spec, seed))
        return self.made[-1]

    def overwrite(self, nbytes: int) -> Any:
        launch = super().overwrite(nbytes)

        def counted() -> Any:
            self.overwritten.append(nbytes)
            return launch()

        return counted

    def available_bytes(self) -> int | None:
        return self._free


CACHE = 1 << 16
SET = 3 * 4096 * 4


def cold(shape: list[int], live: Traced, quantity: str = "latency") -> TaskMeasurement:
    return measuring(make_task("numpy-cpu", shape, quantity=[quantity], cache=["cold"]), live, cache_bytes=CACHE)


@pytest.mark.parametrize("quantity", ["latency", "throughput"])
def test_a_processor_is_made_cold_by_rotating_over_five_times_its_cache(quantity: str) -> None:
    live = Traced()
    work = cold([4096], live, quantity)
    (measurement,) = work.run()
    sets = len(live.made) // 2
    assert sets * SET >= 5 * CACHE > (sets - 1) * SET
    assert f"rotated over {sets} sets" in measurement.control
    assert len({array.tobytes() for array in live.made}) == 2 * sets
    assert (measurement.cache, live.overwritten, work.notes) == ("cold", [], [])


@pytest.mark.parametrize("sampling", [{"warmup": 0, "samples": 14}, {"max_time": 0.001}], ids=["fixed", "precise"])
@pytest.mark.parametrize("quantity", ["latency", "throughput"])
def test_cold_calls_take_turns_and_none_finds_its_data_where_it_left_it(quantity: str, sampling: Any) -> None:
    called: list[int] = []

    def build(p: Any, x: Any, y: Any) -> Any:
        def launch() -> Any:
            called.append(id(x))
            return x + y

        return launch

    task = make_task("numpy-cpu", [4096], quantity=[quantity], cache=["cold"], sampling=sampling)
    op, live, implementation = operator("add"), Traced(), Implementation("numpy", build)
    prepared = prepare(task.case.params, task, op, implementation, live)
    instruments = Instruments.of(backend("numpy-cpu"), live, {})
    instruments.cache_bytes = CACHE
    TaskMeasurement(task, op, implementation, live, instruments, prepared).run()
    sets = len(set(called))
    assert sets == 7
    assert all(len(set(called[i : i + sets])) == sets for i in range(len(called) - sets))


def test_a_cold_stretch_of_calls_is_waited_for_once(drill: Drill) -> None:
    found, _ = drill(quantity=["throughput"], cache=["cold", "warm"], sampling={})
    assert found["throughput", "warm"].calls > 1
    assert found["throughput", "cold"].calls > 1


def test_without_need_no_copies_are_made() -> None:
    live = Traced()
    measuring(make_task("numpy-cpu", [4096]), live, cache_bytes=CACHE).run()
    assert len(live.made) == 2


def test_of_a_tiny_case_no_thousands_of_copies_are_made() -> None:
    live = Traced()
    work = cold(TINY, live)
    (measurement,) = work.run()
    assert len(live.made) == 2
    assert "128 KiB overwritten before each call (rotation would take 6827 copies of 48 B)" in measurement.control
    assert measurement.cache == "cold"
    assert set(live.overwritten) == {2 * CACHE}
    assert len(live.overwritten) >= len(measurement.samples)
    assert measurement.calls == 1


def test_too_little_memory_for_rotation_is_a_flush_and_says_so() -> None:
    live = Traced(free=4 * SET)
    (measurement,) = cold([4096], live).run()
    assert len(live.made) == 2
    assert "overwritten before each call (rotation would take" in measurement.control
    assert "192 KiB that are free" in measurement.control


def test_too_little_memory_for_either_is_said_and_not_measured() -> None:
    work = cold([4096], Traced(free=2 * CACHE - 1))
    with pytest.raises(Unsupported, match="latency cold: too little memory is free to overwrite the caches"):
        work.run()


def test_a_stretch_of_calls_cannot_be_flushed_in_between() -> None:
    work = cold(TINY, Traced(), "throughput")
    with pytest.raises(Unsupported, match="throughput cold: rotation would take"):
        work.run()


def test_what_cannot_be_cold_leaves_what_is_warm() -> None:
    task = make_task("numpy-cpu", TINY, quantity=["throughput"], cache=["cold", "warm"])
    work = measuring(task, Traced(), cache_bytes=CACHE)
    assert keys(work.run()) == [("throughput", "warm")]
    assert [note.split(":")[0] for note in work.notes] == ["throughput cold"]


def test_a_cache_of_unknown_size_is_taken_for_a_large_one() -> None:
    task = make_task("null", TINY, cache=["cold"])
    (measurement,) = measuring(task, NullBackend(backend("null"), 1), cache_bytes=None).run()
    assert "128 MiB overwritten" in measurement.control


# Fixed counts.


def test_so_many_samples_are_taken_as_were_asked_for() -> None:
    called: list[None] = []
    task = make_task("numpy-cpu", TINY, sampling={"warmup": 7, "samples": 11})
    work = measuring(task)
    launch = work.prepared.launch
    work.prepared = type(work.prepared)(work.prepared.inputs, lambda: called.append(None) or launch(), [])
    (measurement,) = work.run()
    assert (len(measurement.samples), measurement.calls, measurement.stop) == (11, 1, "count")
    assert measurement.warmup_calls == 7
    assert len(called) == 18


@pytest.mark.parametrize("count", [1, 2, 50, 51, 107])
def test_so_many_samples_are_taken_of_a_device_too(count: int, drill: Drill) -> None:
    for faults in ("", "no-profiler", "lost"):
        found, _ = drill(faults, cache=["warm"], quantity=["device_span"], sampling={"samples": count})
        assert len(found["device_span", "warm"].samples) == count


def test_precision_stops_before_the_budget_and_the_budget_before_a_precision_that_cannot_be_had() -> None:
    narrow = replace(settings_for(MeasureOptions(threads=[1]))[0].sampling, rel_ci=1e-9)
    task = make_task("null", TINY, sampling={"rel_ci": 0.5})
    assert measuring(task).run()[0].stop == "precise"
    task = replace(task, settings=replace(task.settings, sampling=narrow))
    assert measuring(task).run()[0].stop == "budget"


def test_a_launch_on_a_virtual_clock_takes_the_time_that_it_says() -> None:
    task = make_task("null", SHORT)
    work = measuring(task)
    assert isinstance(work.prepared.launch, NullLaunch)
    (measurement,) = work.run()
    assert median(measurement.samples) / work.prepared.launch.seconds == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(("span", "gaps"), [(2.05e-6, False), (9e-6, True)])
def test_a_span_with_launches_in_it_is_a_caution_where_calls_cannot_be_queued(
    drill: Drill, monkeypatch: pytest.MonkeyPatch, span: float, gaps: bool
) -> None:
    def trace(self: NullDeviceClock, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        return Trace([[Activity("a", 0.0, 1e-6), Activity("b", span - 1e-6, span)] for _ in launches], queued=False)

    monkeypatch.setattr(NullDeviceClock, "trace", trace)
    monkeypatch.setattr(NullDeviceClock, "opens_gate", True)
    found, _ = drill(quantity=["device_time", "device_span"], cache=["warm"])
    assert ("launch-gaps" in codes(found["device_span", "warm"])) is gaps
    assert "launch-gaps" not in codes(found["device_time", "warm"])
