"""Programs as graphs, and their execution by schedules: the results are those of the module, whatever the schedule."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from opmark.errors import TaskError, Unsupported, UserError  # noqa: E402
from opmark.models.program import GraphProgram, export_program  # noqa: E402
from opmark.models.scheduled import (  # noqa: E402
    CapturedSchedule,
    ScheduleRunner,
    compile_units,
    schedule_launch,
)
from opmark.schema.schedule import (  # noqa: E402
    SCHEDULE,
    Lane,
    Schedule,
    ScheduleStage,
    sequential,
    topological_order,
    unit_needs,
    whole_program,
)


class Branches(nn.Module):  # type: ignore[misc]
    """Views, calls in place on views, results in lists, weights that are used twice, an input that is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x: Any, y: Any) -> Any:
        base = x * 2
        half = base[:, :4]
        before = base.sum()
        half.add_(1.0)
        left, right = torch.chunk(self.first(base), 2, -1)
        other = torch.relu_(self.second(y)) + self.first(y)
        joined = torch.cat((left, right, other), -1)
        return {"out": self.out(joined), "sums": (before, base.sum()), "x": x}


def program_of(module: Any, *given: Any) -> GraphProgram:
    return export_program(module.eval(), given, "test")


def random_schedule(program: GraphProgram, generator: random.Random, threads: int = 2) -> Schedule:
    """Cut a random topological order into units, and put them into random stages and lanes."""
    graph = program.graph()
    count = len(graph.operators)
    units = []
    left = list(range(count))
    while left:  # consecutive operators: no unit waits for itself by way of another one
        size = generator.randint(1, 3)
        units.append(tuple(left[:size]))
        left = left[size:]
    needs = unit_needs(units, graph.needs)
    stages, waiting = [], topological_order(needs)
    while waiting:
        own = waiting[: generator.randint(1, 6)]
        waiting = waiting[len(own) :]
        lanes: list[list[int]] = [[] for _ in range(generator.randint(1, 3))]
        for unit in own:
            lanes[generator.randrange(len(lanes))].append(unit)
        stages.append(ScheduleStage(tuple(Lane(tuple(lane), tuple(generator.randint(1, threads) for _ in lane))
                                  for lane in lanes if lane)))  # fmt: skip
    return Schedule(graph.digest, threads, tuple(units), tuple(stages))


def same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("seed", range(12))
def test_any_schedule_gives_the_results_of_the_module(seed: int) -> None:
    module, given = Branches(), (torch.randn(3, 8), torch.randn(3, 8))
    with torch.no_grad():
        expected = module(*given)
    program = program_of(module, torch.zeros(3, 8), torch.zeros(3, 8))
    with ScheduleRunner(program, random_schedule(program, random.Random(seed))) as scheduled:
        for _ in range(3):
            same(scheduled(*given), expected)
        assert len(scheduled.timed(*given)) == len(scheduled.schedule.stages)
        placed = scheduled.traced(*given)
        assert sorted(one.unit for one in placed) == list(range(len(scheduled.schedule.units)))
        assert all(0 <= one.start <= one.end for one in placed)
        needs = unit_needs(scheduled.schedule.units, program.graph().needs)
        ends = {one.unit: one.end for one in placed}
        assert all(ends[before] <= one.start for one in placed for before in needs[one.unit])
        same(scheduled(*given), expected)


def test_a_change_in_place_waits_for_those_who_read_before_and_holds_up_those_who_read_after() -> None:
    graph = program_of(Branches(), torch.zeros(3, 8), torch.zeros(3, 8)).graph()
    add = graph.operators.index("aten::add_")
    first_sum, second_sum = (i for i, name in enumerate(graph.operators) if name == "aten::sum")
    assert first_sum in graph.needs[add]
    assert add in graph.needs[second_sum]
    assert sum(graph.nbytes) > 0


def test_the_digest_tells_programs_apart_and_is_the_same_for_other_weights() -> None:
    given = torch.zeros(3, 8), torch.zeros(3, 8)
    one, again = (program_of(Branches(), *given).graph().digest for _ in range(2))
    assert one == again
    assert program_of(Branches(), torch.zeros(4, 8), torch.zeros(4, 8)).graph().digest != one
    program = program_of(Branches(), torch.zeros(4, 8), torch.zeros(4, 8))
    other = whole_program(program_of(Branches(), *given).graph(), 2)
    with pytest.raises(UserError, match="made for another program"):
        ScheduleRunner(program, other)


class Noise(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.rand_like(x) + x, torch.rand_like(x) - x


def test_calls_that_draw_random_numbers_keep_their_order() -> None:
    graph = program_of(Noise(), torch.zeros(4)).graph()
    first, second = (i for i, name in enumerate(graph.operators) if "rand" in name)
    assert first in graph.needs[second]


class Jump(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1


def test_a_program_that_looks_at_its_data_is_refused_with_the_way_out() -> None:
    with pytest.raises(Unsupported, match="cannot be found without its data") as refused:
        program_of(Jump(), torch.zeros(4))
    assert "opmark capture" in str(refused.value.hint)


def test_lanes_run_beside_each_other_with_their_own_number_of_threads() -> None:
    module = Branches()
    program = program_of(module, torch.zeros(3, 8), torch.zeros(3, 8))
    seen: dict[str, tuple[str, int]] = {}
    meeting = threading.Barrier(2, timeout=30)

    def note(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen[name] = threading.current_thread().name, torch.get_num_threads()
            meeting.wait()  # which nobody passes alone
            return function(*args, **kwargs)

        return call

    graph = program.graph()
    linears = [i for i, name in enumerate(graph.operators) if name == "aten::linear"]
    one, other = linears[0], linears[1]
    for name, number in (("a", one), ("b", other)):
        program.calls[number].function = note(name, program.calls[number].function)
    before = sorted(set(range(len(graph.operators))) - {one, other})
    ready = [i for i in before if i < one]
    units = (tuple(ready), (one,), (other,), tuple(i for i in before if i > one))
    stages = (
        ScheduleStage((Lane((0,), (2,)),)),
        ScheduleStage((Lane((1,), (2,)), Lane((2,), (1,)))),
        ScheduleStage((Lane((3,), (2,)),)),
    )
    threads = torch.get_num_threads()
    with ScheduleRunner(program, Schedule(graph.digest, 2, units, stages)) as scheduled:
        scheduled(torch.randn(3, 8), torch.randn(3, 8))
    assert seen["a"] == (threading.current_thread().name, 2)
    assert seen["b"] == ("opmark-lane-1", 1)
    assert torch.get_num_threads() == threads


def test_a_failure_in_a_lane_reaches_the_caller_and_the_next_call_works() -> None:
    program = program_of(Branches(), torch.zeros(3, 8), torch.zeros(3, 8))
    schedule = random_schedule(program, random.Random(3))
    lane = next(lane for stage in schedule.stages for lane in stage.lanes[1:])
    number = schedule.units[lane.units[0]][0]
    works, broken = program.calls[number].function, [True]

    def fail(*args: Any, **kwargs: Any) -> Any:
        if broken[0]:
            raise RuntimeError("this call fails")
        return works(*args, **kwargs)

    program.calls[number].function = fail
    given = torch.randn(3, 8), torch.randn(3, 8)
    with ScheduleRunner(program, schedule) as scheduled:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="this call fails"):
                scheduled(*given)
        broken[0] = False
        assert scheduled(*given)["out"].shape == (3, 4)


def test_inputs_are_counted_and_calls_do_not_overlap() -> None:
    program = program_of(Branches(), torch.zeros(3, 8), torch.zeros(3, 8))
    scheduled = ScheduleRunner(program, whole_program(program.graph(), 2))
    with pytest.raises(UserError, match="takes 2 tensors, got 1"):
        scheduled(torch.zeros(3, 8))
    scheduled._busy.acquire()
    with pytest.raises(UserError, match="one call at a time"):
        scheduled(torch.zeros(3, 8), torch.zeros(3, 8))


def test_values_that_only_one_unit_uses_are_no_part_of_the_shared_ones() -> None:
    program = program_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.zeros(1, 4))
    graph = program.graph()
    (unit,) = compile_units(program, sequential(graph.digest, [range(len(graph.operators))], 1, [0]))
    values: list[Any] = [None] * program.size
    values[program.inputs[0]] = torch.ones(1, 4)
    unit(values)
    filled = {slot for slot, value in enumerate(values) if value is not None}
    assert filled == {program.inputs[0], program.outputs[0]}


def test_a_worker_with_other_threads_refuses_a_schedule() -> None:
    program = program_of(nn.Linear(4, 4), torch.zeros(1, 4))
    other = whole_program(program.graph(), torch.get_num_threads() + 1)
    with pytest.raises(TaskError, match="threads, and torch has"):
        schedule_launch(program, {SCHEDULE: other.encode()}, [torch.zeros(1, 4)], "cpu")
    launch = schedule_launch(program, {}, [torch.zeros(1, 4)], "cpu")
    assert launch().shape == (1, 4)
    assert launch.kept == sum(p.nbytes for p in program.given.values())


# Streams, with a device module that only notes what it is asked for.


class FakeStreams:
    """A device module whose streams keep a clock each: work ends in the order that events allow."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.main = self.Stream("main")
        self.now = self.main

    def Stream(self, name: str = "") -> Any:
        log = self.log
        label = name or f"stream{len({one for kind, one in log if kind == 'made'})}"
        log.append(("made", label))

        def record_event(event: Any = None) -> Any:
            event = event or SimpleNamespace(elapsed_time=lambda other: 1.0)
            log.append(("record", (label, id(event))))
            return event

        return SimpleNamespace(
            label=label, record_event=record_event, synchronize=lambda: None,
            wait_event=lambda event: log.append(("wait", (label, id(event)))),
        )  # fmt: skip

    def Event(self, enable_timing: bool = False) -> Any:
        return SimpleNamespace(elapsed_time=lambda other: 1.0)

    def current_stream(self) -> Any:
        return self.now

    def stream(self, one: Any) -> Any:
        fake = self

        class Switch:
            def __enter__(self) -> None:
                self.before, fake.now = fake.now, one

            def __exit__(self, *_: object) -> None:
                fake.now = self.before

        return Switch()

    def synchronize(self) -> None:
        self.log.append(("synchronize", None))


def on_fake_streams(
    monkeypatch: pytest.MonkeyPatch, program: GraphProgram, schedule: Schedule
) -> tuple[Any, FakeStreams]:
    fake = FakeStreams()
    monkeypatch.setattr(torch, "get_device_module", lambda device: fake)
    monkeypatch.setattr(ScheduleRunner, "_keep_for", lambda self, values, main: None)
    return ScheduleRunner(program, schedule, "cuda"), fake


@pytest.mark.parametrize("seed", range(6))
def test_streams_wait_for_what_they_need_and_the_caller_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    module, given = Branches(), (torch.randn(3, 8), torch.randn(3, 8))
    with torch.no_grad():
        expected = module(*given)
    program = program_of(module, torch.zeros(3, 8), torch.zeros(3, 8))
    schedule = random_schedule(program, random.Random(seed), threads=1)
    scheduled, fake = on_fake_streams(monkeypatch, program, schedule)
    fake.log.clear()
    same(scheduled(*given), expected)
    recorded: set[int] = set()
    for kind, what in fake.log:
        if kind == "record":
            recorded.add(what[1])
        elif kind == "wait":
            assert what[1] in recorded, "a stream waits for an event that was not recorded yet"
    wide = [stage for stage in schedule.stages if len(stage.lanes) > 1]
    waits_of_main = [what for kind, what in fake.log if kind == "wait" and what[0] == "main"]
    assert len(waits_of_main) == sum(len(stage.lanes) for stage in wide)
    assert len(scheduled.timed(*given)) == len(schedule.stages)


def test_a_captured_graph_copies_its_inputs_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(nn.Linear(4, 2), torch.zeros(1, 4))
    scheduled, fake = on_fake_streams(monkeypatch, program, whole_program(program.graph(), 1))
    done: list[str] = []

    class Graph:
        def replay(self) -> None:
            done.append("replay")

    class Recording:
        def __init__(self, graph: Any) -> None:
            done.append("capture")

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(fake, "CUDAGraph", Graph, raising=False)
    monkeypatch.setattr(fake, "graph", Recording, raising=False)
    captured = CapturedSchedule(scheduled, [torch.zeros(1, 4)])
    captured(torch.ones(1, 4))
    assert done == ["capture", "replay"]
    assert torch.equal(captured._inputs[0], torch.ones(1, 4))


def on_devices(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Give every lane a device, in turns."""
    stages = tuple(
        ScheduleStage(tuple(
            Lane(lane.units, lane.threads, names[place % len(names)]) for place, lane in enumerate(stage.lanes)
        )) for stage in schedule.stages
    )  # fmt: skip
    return Schedule(schedule.digest, schedule.threads, schedule.units, stages)


class Towers(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x: Any, y: Any) -> Any:
        rows = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        return self.out(torch.cat((self.left(x).relu() + rows, self.right(y).tanh()), -1))


class Elsewhere:
    """Stands in for a second device: what is copied there is another tensor, and what was not copied is noticed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.places: dict[int, str] = {}
        self.kept: list[Any] = []
        self.copies: list[str] = []
        self.waited: list[str] = []
        monkeypatch.setattr("opmark.models.scheduled.copy_to", self.copy)
        monkeypatch.setattr(torch, "get_device_module", lambda name: SimpleNamespace(
            synchronize=lambda: self.waited.append(name)))  # fmt: skip
        monkeypatch.setattr("opmark.models.scheduled.device_of", lambda name: torch.device("cpu"))

    def copy(self, tensor: Any, device: str) -> Any:
        if self.places.get(id(tensor), "cpu") == device:
            return tensor
        made = tensor.clone()
        self.places[id(made)] = device
        self.kept.append(made)
        self.copies.append(device)
        return made


@pytest.mark.parametrize("seed", range(4))
def test_lanes_on_two_devices_give_the_results_of_the_module(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, given = Towers(), (torch.rand(3, 8), torch.rand(3, 8))
    program = program_of(module, *given)
    schedule = on_devices(random_schedule(program, random.Random(seed)), ("cpu", "npu"))
    with torch.no_grad():
        expected = module(*given)
    elsewhere = Elsewhere(monkeypatch)
    with ScheduleRunner(program, schedule) as scheduled:
        assert scheduled.on_threads
        torch.testing.assert_close(scheduled(*given), expected)
        weights = len(elsewhere.copies)
        torch.testing.assert_close(scheduled(*given), expected)
        assert len(elsewhere.copies) - weights <= weights  # weights were copied once
    if schedule.width > 1:
        assert "npu" in elsewhere.copies
        assert set(elsewhere.waited) == {"npu"}


def test_a_change_in_place_that_another_device_would_not_see_is_refused() -> None:
    program = program_of(Branches(), torch.rand(3, 8), torch.rand(3, 8))
    graph = program.graph()
    units = tuple((number,) for number in range(len(graph.operators)))
    stages = tuple(ScheduleStage((Lane((unit,), (1,), ("cpu", "npu")[unit % 2]),)) for unit in range(len(units)))
    with pytest.raises(UserError, match="changes memory in place that operators on cpu and npu use"):
        ScheduleRunner(program, Schedule(graph.digest, 1, units, stages))
