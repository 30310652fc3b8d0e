"""Runs a program by a schedule: lanes are threads with their own number of threads inside of operators on a CPU, and
streams on a GPU, where the whole may be captured as one graph. Only workers and users' own processes import this."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from opmark.errors import TaskError, UserError
from opmark.models.program import GraphCall, GraphProgram, Slot, model_program, slots_in
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.schema.schedule import (
    SCHEDULE,
    PlacedUnit,
    Schedule,
    check_schedule,
    lanes_of,
    read_schedule,
    unit_needs,
    whole_program,
)

_WARM_UP = 3
"""Calls before a graph is captured, in which libraries choose their kernels and get their workspaces."""

Values = list[Any]


def compile_units(
    program: GraphProgram, schedule: Schedule, places: Sequence[DevicePlace | None] = ()
) -> list[Callable[[Values], None]]:
    """Return a Python function for each unit: a line per call. Values that only the unit uses are local variables,
    deleted after their last use; the others lie in a list that all units share. A unit with a place has what it takes
    copied there."""
    users: dict[int, set[int]] = {}
    for unit, members in enumerate(schedule.units):
        for number in members:
            for slot in program.calls[number].inputs() | program.calls[number].outputs():
                users.setdefault(slot, set()).add(unit)
    shared = {slot for slot, units in users.items() if len(units) > 1} | set(program.outputs)
    shared |= set(program.inputs) | set(program.given)
    return [
        _UnitWriter(
            f"unit{unit}", [program.calls[number] for number in members], program.given, shared,
            places[unit] if places else None,
        ).compile()
        for unit, members in enumerate(schedule.units)
    ]  # fmt: skip


class DevicePlace:
    """A device of a lane of its own: what a unit there takes is copied to it, weights once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._weights: dict[int, Any] = {}

    def move(self, value: Any) -> Any:
        """Return a value on this device: itself where it is there already."""
        return copy_to(value, self.name) if isinstance(value, torch.Tensor) else value

    def weight(self, value: Any) -> Any:
        if id(value) not in self._weights:
            self._weights[id(value)] = self.move(value)
        return self._weights[id(value)]

    def wait(self) -> None:
        """Wait until the device has done what was launched."""
        if self.name != "cpu":
            torch.get_device_module(self.name).synchronize()


def device_of(name: str) -> Any:
    return torch.device(name)


def copy_to(tensor: Any, device: str) -> Any:
    return tensor.to(device_of(device))


def first_values(program: GraphProgram, inputs: Sequence[Any]) -> Values:
    """Return the values of a program before its first call."""
    if len(inputs) != len(program.inputs):
        raise UserError(f"the program takes {len(program.inputs)} tensors, got {len(inputs)}")
    values: Values = [None] * program.size
    for slot, value in (*program.given.items(), *zip(program.inputs, inputs, strict=True)):
        values[slot] = value
    return values


class _UnitWriter:
    """Writes the source of one unit. No text of a program gets into it: functions and constants have numbered names."""

    def __init__(
        self, name: str, calls: Sequence[GraphCall], given: dict[int, Any], shared: set[int], place: DevicePlace | None
    ) -> None:
        self.name, self.calls, self.given, self.shared, self.place = name, calls, given, shared, place
        self.names: dict[str, Any] = {}
        self.known: dict[int, str] = {}

    def compile(self) -> Callable[[Values], None]:
        last = {slot: number for number, call in enumerate(self.calls) for slot in call.inputs() | call.outputs()}
        made: set[int] = set()
        lines = [f"def {self.name}(values):"]
        for number, call in enumerate(self.calls):
            for slot in sorted(call.inputs() - made - set(self.given)):
                taken = f"values[{slot}]"
                moved = f"{self._constant(self.place.move, 'm')}({taken})" if self.place else taken
                lines.append(f"    v{slot} = {moved}")
                made.add(slot)
            args = [self._text(one) for one in call.args]
            args += [f"{name}={self._text(one)}" for name, one in call.kwargs.items()]
            text = f"{self._constant(call.function, 'f')}({', '.join(args)})"
            outputs = call.outputs()
            lines.append(f"    {_pattern(call.result)} = {text}" if outputs else f"    {text}")
            made |= outputs
            lines += [f"    values[{slot}] = v{slot}" for slot in sorted(outputs & self.shared)]
            gone = sorted(slot for slot in made if last[slot] == number)
            if gone:
                lines.append(f"    del {', '.join(f'v{slot}' for slot in gone)}")
        lines.append("    return")
        exec(compile("\n".join(lines), f"<{self.name}>", "exec"), self.names)
        function: Callable[[Values], None] = self.names[self.name]
        return function

    def _text(self, value: Any) -> str:
        if isinstance(value, Slot):
            if value.number in self.given:
                weight = self.given[value.number]
                return self._constant(self.place.weight(weight) if self.place else weight, "w")
            return f"v{value.number}"
        if isinstance(value, list | tuple) and any(True for _ in slots_in(value)):
            return f"[{', '.join(self._text(one) for one in value)}]"
        if value is None or isinstance(value, bool | int):
            return repr(value)
        if self.place and isinstance(value, torch.device):
            value = device_of(self.place.name)
        return self._constant(value, "c")

    def _constant(self, value: Any, letter: str) -> str:
        name = self.known.get(id(value))
        if name is None:
            name = self.known[id(value)] = f"{letter}{len(self.names)}"
            self.names[name] = value
        return name


def _pattern(result: Any) -> str:
    if isinstance(result, Slot):
        return f"v{result.number}"
    if isinstance(result, list):
        return f"[{', '.join(_pattern(one) for one in result)}]"
    return "_"


@dataclass
class _Item:
    """A unit in its lane."""

    run: Callable[[Values], None]
    threads: int
    waits: list[Any]
    """What it waits for: a lock of each unit of another lane of this stage, or an event of a stream."""
    tells: list[Any]
    place: DevicePlace | None = None


@dataclass
class _StageItems:
    lanes: list[list[_Item]]
    release: list[int]
    """Slots that nothing uses after this stage."""


class ScheduleRunner:
    """A program that runs by a schedule: call it with the inputs of the program. One call at a time.

    On a CPU, the caller's thread is the first lane. Lanes are threads of Python: operators of torch run without the
    interpreter's lock, and each thread has its own number of threads inside of operators.
    """

    def __init__(self, program: GraphProgram, schedule: Schedule, device: str = "cpu") -> None:
        check_schedule(schedule, program.graph())
        self.program, self.schedule, self.device = program, schedule, torch.device(device)
        self._places = self._find_places()
        self._stages = self._make_stages()
        self._lanes: list[_LaneThread] = []
        self._streams: list[Any] = []
        self._busy = threading.Lock()
        self._closed = False
        if self.on_threads:
            self._lanes = [_LaneThread(number) for number in range(1, schedule.width)]
        else:
            module = torch.get_device_module(self.device)
            self._streams = [module.Stream() for _ in range(schedule.width)]

    @property
    def on_threads(self) -> bool:
        """Whether lanes are threads: on a CPU, and where lanes have devices of their own."""
        return self.device.type == "cpu" or bool(self._places)

    def _find_places(self) -> list[DevicePlace | None]:
        """Return the device of each unit; nothing where all units share one."""
        names = [""] * len(self.schedule.units)
        for _, _, lane in lanes_of(self.schedule):
            for unit in lane.units:
                names[unit] = device_kind(lane.device) or self.device.type
        if set(names) <= {self.device.type}:
            return []
        self._refuse_shared_writes(names)
        places = {name: DevicePlace(name) for name in names}
        return [places[name] for name in names]

    def _refuse_shared_writes(self, names: Sequence[str]) -> None:
        """Raise UserError where a call changes memory in place that another device uses too: a copy would not
        change."""
        users: dict[Any, set[str]] = {}
        written: dict[Any, str] = {}
        for unit, members in enumerate(self.schedule.units):
            for number in members:
                call = self.program.calls[number]
                for memory in call.reads | call.writes:
                    users.setdefault(memory, set()).add(names[unit])
                written |= dict.fromkeys(call.writes, call.name)
        outside = {("input", place) for place in range(len(self.program.inputs))}
        for memory, name in written.items():
            own = isinstance(memory, tuple) and (memory in outside or memory[0] == "given")
            if len(users[memory] | ({self.device.type} if own else set())) > 1:
                raise UserError(
                    f"{name} changes memory in place that operators on {' and '.join(sorted(users[memory]))} use",
                    "a schedule over devices copies what crosses from one to the other: run it on one device",
                )

    def _make_stages(self) -> list[_StageItems]:
        schedule = self.schedule
        functions = compile_units(self.program, schedule, self._places)
        needs = unit_needs(schedule.units, self.program.graph().needs)
        stages = []
        for stage in schedule.stages:
            place = {unit: number for number, lane in enumerate(stage.lanes) for unit in lane.units}
            items = {
                unit: _Item(functions[unit], count, [], [], self._places[unit] if self._places else None)
                for lane in stage.lanes
                for unit, count in zip(lane.units, lane.threads, strict=True)
            }
            for unit, item in items.items():
                for other in sorted(needs[unit]):
                    if other in items and place[other] != place[unit]:
                        sign = self._new_sign()
                        item.waits.append(sign)
                        items[other].tells.append(sign)
            stages.append(_StageItems([[items[unit] for unit in lane.units] for lane in stage.lanes], []))
        self._release_early(stages)
        return stages

    def _new_sign(self) -> Any:
        if not self.on_threads:
            return torch.get_device_module(self.device).Event()
        sign = threading.Lock()
        sign.acquire()
        return sign

    def _release_early(self, stages: list[_StageItems]) -> None:
        """Note after which stage each shared value is used no more, so that its memory is free for the next ones."""
        last: dict[int, int] = {}
        for number, stage in enumerate(self.schedule.stages):
            for lane in stage.lanes:
                for unit in lane.units:
                    for member in self.schedule.units[unit]:
                        call = self.program.calls[member]
                        last |= dict.fromkeys(call.inputs() | call.outputs(), number)
        kept = set(self.program.outputs) | set(self.program.given)
        for slot, number in last.items():
            if slot not in kept:
                stages[number].release.append(slot)

    def __call__(self, *inputs: Any) -> Any:
        return self.program.finish(self._run(inputs, None))

    def run_for_values(self, *inputs: Any) -> list[Any]:
        """Run once; return the outputs as a list, whatever form the program gives them."""
        return self._run(inputs, None)

    def timed(self, *inputs: Any) -> list[float]:
        """Run once; return the seconds of each stage."""
        marks: list[float] = []
        began = time.perf_counter()
        self.program.finish(self._run(inputs, marks))
        if self.on_threads:
            marks = [began, *marks[:-1], time.perf_counter()]  # what is done at the end belongs to the last stage
        return [end - start for start, end in pairwise(marks)]

    def traced(self, *inputs: Any) -> list[PlacedUnit]:
        """Run once; return when each unit ran, stage by stage and lane by lane. On a GPU, units are timed as they are
        launched: `timed` says how long stages take."""
        clocked: list[tuple[int, int, _Item, list[float]]] = []
        kept: list[tuple[_Item, Callable[[Values], None]]] = []
        for stage, own in zip(self._stages, self.schedule.stages, strict=True):
            for number, (items, lane) in enumerate(zip(stage.lanes, own.lanes, strict=True)):
                for item, unit in zip(items, lane.units, strict=True):
                    times: list[float] = []
                    clocked.append((unit, number, item, times))
                    kept.append((item, item.run))
                    item.run = _clocked(item.run, times)
        try:
            began = time.perf_counter()
            self._run(inputs, None)
        finally:
            for item, run in kept:
                item.run = run
        return [PlacedUnit(unit, lane, times[0] - began, times[1] - began) for unit, lane, _, times in clocked]

    def _run(self, inputs: Sequence[Any], marks: list[float] | None) -> list[Any]:
        program = self.program
        values = first_values(program, inputs)
        if self._closed:
            raise UserError("the schedule is closed: its threads have ended", "compile it again")
        if not self._busy.acquire(blocking=False):
            raise UserError("a compiled schedule runs one call at a time", "compile one for each thread")
        try:
            with torch.no_grad():
                if self._streams:
                    self._run_on_streams(values, marks)
                else:
                    self._run_on_threads(values, marks)
            found = [values[slot] for slot in program.outputs]
            if self._places:
                home = DevicePlace(self.device.type)
                found = [home.move(value) for value in found]
            return found
        finally:
            self._busy.release()

    def _run_on_threads(self, values: Values, marks: list[float] | None) -> None:
        before = torch.get_num_threads()
        try:
            for stage in self._stages:
                working = []
                for lane, items in zip(self._lanes, stage.lanes[1:], strict=False):
                    lane.start(items, values)
                    working.append(lane)
                error: BaseException | None = None
                try:
                    _run_items(stage.lanes[0], values)
                except BaseException as found:  # noqa: BLE001 - other lanes are waited for before it passes on
                    error = found
                    _tell_all(stage.lanes[0])
                for lane in working:
                    error = lane.join() or error
                if error is not None:
                    self._stages = self._make_stages()  # signs may have been given twice, or not at all
                    raise error
                for slot in stage.release:
                    values[slot] = None
                if marks is not None:
                    marks.append(time.perf_counter())
        finally:
            torch.set_num_threads(before)

    def _run_on_streams(self, values: Values, marks: list[float] | None) -> None:
        """Put everything on streams from this thread. A stage begins on a stream when the one before has ended on all
        of them, and so do the next kernels of the caller's own stream."""
        module = torch.get_device_module(self.device)
        main = module.current_stream()
        ends = [] if marks is None else [main.record_event(module.Event(enable_timing=True))]
        for stage in self._stages:
            if len(stage.lanes) == 1:
                for item in stage.lanes[0]:
                    item.run(values)
            else:
                begin = main.record_event()
                pending = [list(items) for items in stage.lanes]
                for stream in self._streams[: len(pending)]:
                    stream.wait_event(begin)
                told: set[int] = set()
                while any(pending):  # round about, so that no stream has to wait for the launches of another one
                    for stream, items in zip(self._streams, pending, strict=False):
                        if not items or not all(id(sign) in told for sign in items[0].waits):
                            continue
                        item = items.pop(0)
                        with module.stream(stream):
                            for sign in item.waits:
                                stream.wait_event(sign)
                            item.run(values)
                            for sign in item.tells:
                                stream.record_event(sign)
                                told.add(id(sign))
                for stream in self._streams[: len(stage.lanes)]:
                    main.wait_event(stream.record_event())
                self._keep_for(values, main)
            if marks is not None:
                ends.append(main.record_event(module.Event(enable_timing=True)))
        if marks is not None:
            main.synchronize()
            marks += [ends[0].elapsed_time(end) / 1e3 for end in ends]

    def _keep_for(self, values: Values, main: Any) -> None:
        """Tell the allocator that values of other streams are used on the caller's too."""
        for value in values:
            if isinstance(value, torch.Tensor) and value.device.type == self.device.type:
                for stream in (main, *self._streams):
                    value.record_stream(stream)

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes, self._closed = [], True

    def __enter__(self) -> ScheduleRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _clocked(run: Callable[[Values], None], times: list[float]) -> Callable[[Values], None]:
    def call(values: Values) -> None:
        times.append(time.perf_counter())
        run(values)
        times.append(time.perf_counter())

    return call


def _run_items(items: Sequence[_Item], values: Values) -> None:
    threads = 0
    for item in items:
        if item.threads != threads:
            threads = item.threads
            torch.set_num_threads(threads)  # of this thread alone
        for sign in item.waits:
            sign.acquire()
        item.run(values)
        for sign in item.tells:
            sign.release()
    if items and items[-1].place:
        items[-1].place.wait()


def device_kind(name: str) -> str:
    """Return the kind of device of a lane: `cpu` of `cpu:1 (2)`, which is a share of the cores."""
    return name.partition(":")[0].partition(" ")[0]


def _tell_all(items: Sequence[_Item]) -> None:
    """Let other lanes go on after a failure: what they compute is thrown away."""
    for item in items:
        for sign in item.tells:
            if sign.locked():
                sign.release()


class _LaneThread:
    """A thread that runs the items of its lane, stage after stage."""

    def __init__(self, number: int) -> None:
        self._begin, self._end = threading.Lock(), threading.Lock()
        self._begin.acquire()
        self._end.acquire()
        self._work: tuple[Sequence[_Item], Values] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name=f"opmark-lane-{number}", daemon=True)
        self._thread.start()

    def start(self, items: Sequence[_Item], values: Values) -> None:
        self._work, self._error = (items, values), None
        self._begin.release()

    def join(self) -> BaseException | None:
        self._end.acquire()
        return self._error

    def close(self) -> None:
        self._work = None
        self._begin.release()
        self._thread.join(timeout=1)

    def _loop(self) -> None:
        with torch.no_grad():
            while True:
                self._begin.acquire()
                if self._work is None:
                    return
                items, values = self._work
                try:
                    _run_items(items, values)
                except BaseException as error:  # noqa: BLE001 - it passes on in the thread of the caller
                    self._error = error
                    _tell_all(items)
                self._work = None
                del items, values
                self._end.release()


class CapturedSchedule:
    """A scheduled program on a GPU as one CUDA graph: what the streams do is recorded once, and one launch repeats it.
    The graph reads and writes memory of its own; inputs are copied into it."""

    def __init__(self, scheduled: ScheduleRunner, inputs: Sequence[Any], *, copy_inputs: bool = True) -> None:
        self.scheduled, self._copy_inputs = scheduled, copy_inputs
        module = torch.get_device_module(scheduled.device)
        self._inputs = [one.clone() for one in inputs] if copy_inputs else list(inputs)
        with module.stream(module.Stream()):
            for _ in range(_WARM_UP):
                scheduled(*self._inputs)
        module.synchronize()
        self._graph = module.CUDAGraph()
        with module.graph(self._graph):
            self._outputs = scheduled(*self._inputs)

    def __call__(self, *inputs: Any) -> Any:
        if self._copy_inputs:
            for own, given in zip(self._inputs, inputs, strict=True):
                own.copy_(given)
        self._graph.replay()
        return self._outputs


# The implementation `scheduled`.


class ScheduledCall:
    """The launch of a scheduled program over inputs that exist."""

    keeps_state = True
    """One call at a time: several clients would share its lanes."""

    def __init__(self, call: Callable[..., Any], inputs: Sequence[Any], kept: int, described: str) -> None:
        self._call, self._inputs, self.kept, self.described = call, list(inputs), kept, described

    def __call__(self) -> Any:
        return self._call(*self._inputs)


def chosen_schedule(program: GraphProgram, configuration: dict[str, Any], device: Any) -> Schedule:
    """Return the schedule of a configuration; without one, the program as it is, with all threads."""
    if text := configuration.get(SCHEDULE):
        return read_schedule(str(text))
    threads = torch.get_num_threads() if torch.device(device).type == "cpu" else 1
    return whole_program(program.graph(), threads)


def schedule_launch(program: GraphProgram, configuration: dict[str, Any], inputs: Sequence[Any], device: Any) -> Any:
    """Return the launch of a program by the schedule of a configuration."""
    schedule = chosen_schedule(program, configuration, device)
    if torch.device(device).type == "cpu" and schedule.threads != torch.get_num_threads():
        raise TaskError(f"the schedule is for {schedule.threads} threads, and torch has {torch.get_num_threads()} here")
    scheduled = ScheduleRunner(program, schedule, str(device))
    call: Any = scheduled
    if not scheduled.on_threads:
        call = CapturedSchedule(scheduled, inputs, copy_inputs=False)
    kept = {id(one): one.nbytes for one in program.given.values() if isinstance(one, torch.Tensor)}
    return ScheduledCall(call, inputs, sum(kept.values()), schedule.described)


def build_scheduled(source: ModelSource, params: Params, configuration: dict[str, Any], **tensors: Any) -> Any:
    device = next(iter(tensors.values())).device
    with nullcontext() if device.type == "cpu" else torch.device("cpu"):
        program = model_program(source, params, device)
    return schedule_launch(program, configuration, list(tensors.values()), device)
