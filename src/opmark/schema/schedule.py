"""Schedule: which operators of a program run beside each other, where, and with how many threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from opmark.errors import UserError
from opmark.schema.call_sizes import CalledOperator

SCHEDULE = "schedule"
"""Name of a schedule in the configuration of a task."""
SCHEDULED = "scheduled"
"""Name of the implementation that runs a schedule."""
VERSION = 1
Method = Literal["sequential", "stages", "equilibrium", "optimum"]


class OperatorGraph(Struct, frozen=True):
    """The operators of a program in the order in which it calls them, and which results they wait for."""

    operators: list[str]
    """`aten::conv2d`."""
    needs: list[list[int]]
    """For each operator, the numbers of those that have to be done before it; directly, and all of them lower."""
    digest: str
    """A hash of operators, arguments and shapes: a schedule of another program is refused by it."""
    nbytes: list[int] = []
    """Bytes of the results of each operator, which another device would have to be sent; empty if not known."""

    def __post_init__(self) -> None:
        if len(self.operators) != len(self.needs):
            raise UserError(f"{len(self.operators)} operators, and needs of {len(self.needs)}")
        refuse_cycle(self.needs, self.operators)


class Lane(Struct, frozen=True):
    """What one thread, stream or device does in a stage: units, one after the other."""

    units: tuple[int, ...]
    threads: tuple[int, ...]
    """Threads inside of the operators, for each unit; always 1 on a GPU, whose streams share its multiprocessors."""
    device: str = ""
    """The resource of a schedule without sharing; empty where all lanes share one device."""


class ScheduleStage(Struct, frozen=True):
    """Lanes that run beside each other; the next stage begins when all of them are done. A unit of one lane may wait
    for a unit of another one."""

    lanes: tuple[Lane, ...]


class PlacedUnit(Struct, frozen=True):
    """When and where a unit runs: a bar of a timeline."""

    unit: int
    lane: int
    start: float
    end: float


class Timeline(Struct, frozen=True):
    """When units of a schedule run, for people: nothing is decided by it."""

    names: tuple[str, ...] = ()
    """Names of the units."""
    predicted: tuple[PlacedUnit, ...] = ()
    measured: tuple[PlacedUnit, ...] = ()


class Schedule(Struct, frozen=True):
    """An executable schedule of a program."""

    digest: str
    """The digest of the OperatorGraph it was made for."""
    threads: int
    """Threads of the worker, which a stage with a single lane uses."""
    units: tuple[tuple[int, ...], ...]
    """Operators that are called one after the other by one thread, each list in the order of the program."""
    stages: tuple[ScheduleStage, ...]
    timeline: Timeline = Timeline()
    version: int = VERSION

    @property
    def width(self) -> int:
        """Return the largest number of lanes of a stage."""
        return max((len(stage.lanes) for stage in self.stages), default=1)

    @property
    def described(self) -> str:
        beside = sum(len(stage.lanes) > 1 for stage in self.stages)
        return f"{len(self.units)} units, {len(self.stages)} stages, {beside} with lanes, at most {self.width}"

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def read_schedule(text: str | bytes) -> Schedule:
    """Return a schedule from JSON; UserError says what is wrong with it."""
    try:
        found = msgspec.json.decode(text, type=Schedule)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UserError(f"this is no schedule: {error}", "`opmark schedule MODEL --save FILE` writes one") from None
    if found.version != VERSION:
        raise UserError(f"a schedule of version {found.version}; this opmark reads version {VERSION}")
    return found


def refuse_cycle(needs: Sequence[Iterable[int]], names: Sequence[str]) -> None:
    """Raise UserError where operators wait for each other, or for one that does not exist."""
    for place, before in enumerate(needs):
        for other in before:
            if not 0 <= other < len(needs):
                raise UserError(f"operator {place} ({names[place]}) waits for operator {other}, which does not exist")
    order = topological_order(needs)
    if len(order) < len(needs):
        left = sorted(set(range(len(needs))) - set(order))
        named = ", ".join(f"{place} ({names[place]})" for place in left[:4])
        raise UserError(
            f"the graph has a cycle: {named}{' and others' if len(left) > 4 else ''} wait for each other",
            "a program calls one operator after the other: capture it again with `opmark capture`",
        )


def topological_order(needs: Sequence[Iterable[int]]) -> list[int]:
    """Return the numbers in an order in which each follows what it needs, the lowest first; those of a cycle, and what
    needs them, are left out."""
    from heapq import heapify, heappop, heappush

    waits = [set(before) for before in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for place, before in enumerate(waits):
        for other in before:
            followers[other].append(place)
    ready = [place for place, before in enumerate(waits) if not before]
    heapify(ready)
    order = []
    while ready:
        place = heappop(ready)
        order.append(place)
        for follower in followers[place]:
            waits[follower].discard(place)
            if not waits[follower]:
                heappush(ready, follower)
    return order


def unit_needs(units: Sequence[Sequence[int]], needs: Sequence[Iterable[int]]) -> list[set[int]]:
    """Return the units that each unit waits for."""
    owner = {operator: unit for unit, members in enumerate(units) for operator in members}
    return [
        {owner[before] for operator in members for before in needs[operator]} - {unit}
        for unit, members in enumerate(units)
    ]


def check_schedule(schedule: Schedule, graph: OperatorGraph) -> None:
    """Raise UserError where a schedule is not one of this graph, or does not respect it."""
    if schedule.digest != graph.digest:
        raise UserError(
            f"the schedule was made for another program ({schedule.digest}, this is {graph.digest}): the model, its "
            "parameters or torch have changed",
            "`opmark schedule` makes a new one",
        )
    everything = sorted(operator for members in schedule.units for operator in members)
    if everything != list(range(len(graph.operators))):
        raise UserError(f"the units of a schedule have each of the {len(graph.operators)} operators exactly once")
    for members in schedule.units:
        if list(members) != sorted(members):
            raise UserError("the operators of a unit are in the order of the program")
    placed = [unit for stage in schedule.stages for lane in stage.lanes for unit in lane.units]
    if sorted(placed) != list(range(len(schedule.units))):
        raise UserError(f"the lanes of a schedule have each of its {len(schedule.units)} units exactly once")
    if any(len(lane.units) != len(lane.threads) for stage in schedule.stages for lane in stage.lanes):
        raise UserError("a lane has a number of threads for each of its units")
    if any(not 1 <= count <= max(1, schedule.threads) for s in schedule.stages for lane in s.lanes
           for count in lane.threads):  # fmt: skip
        raise UserError(f"a unit has between 1 and {schedule.threads} threads, those of the worker")
    needs = unit_needs(schedule.units, graph.needs)
    refuse_cycle(needs, [f"unit {unit}" for unit in range(len(needs))])
    done: set[int] = set()
    for number, stage in enumerate(schedule.stages):
        own = _run_stage(stage, needs, done)
        if len(own) != sum(len(lane.units) for lane in stage.lanes):
            raise UserError(f"stage {number} of the schedule waits for what only comes after it")
        done |= own


def _run_stage(stage: ScheduleStage, needs: Sequence[set[int]], done: set[int]) -> set[int]:
    """Return the units that get their turn when each lane goes on as soon as it can."""
    own: set[int] = set()
    places = [0] * len(stage.lanes)
    moved = True
    while moved:
        moved = False
        for number, lane in enumerate(stage.lanes):
            while places[number] < len(lane.units) and needs[lane.units[places[number]]] <= done | own:
                own.add(lane.units[places[number]])
                places[number] += 1
                moved = True
    return own


def sequential(digest: str, units: Sequence[Sequence[int]], threads: int, order: Iterable[int]) -> Schedule:
    """Return the schedule that runs everything one after the other, with all threads."""
    placed = tuple(order)
    lane = Lane(placed, (threads,) * len(placed))
    return Schedule(digest, threads, tuple(map(tuple, units)), (ScheduleStage((lane,)),))


def one_by_one(
    digest: str, units: Sequence[Sequence[int]], threads: int, own: int | None = None, device: str = ""
) -> Schedule:
    """Return the schedule in which every unit is a stage, with all threads or a number of its own."""
    stages = tuple(ScheduleStage((Lane((unit,), (own or threads,), device),)) for unit in range(len(units)))
    return Schedule(digest, threads, tuple(map(tuple, units)), stages)


def whole_program(graph: OperatorGraph, threads: int) -> Schedule:
    """Return the schedule of a program as it is: one unit."""
    return sequential(graph.digest, [range(len(graph.operators))], threads, [0])


def lanes_of(schedule: Schedule) -> Iterator[tuple[int, int, Lane]]:
    """Yield (stage, lane, Lane)."""
    for number, stage in enumerate(schedule.stages):
        for place, lane in enumerate(stage.lanes):
            yield number, place, lane


class StageTimes(Struct, frozen=True):
    """Seconds of the stages of a schedule, in every round in which it ran."""

    rounds: list[list[float]]


class ProfiledProgram(Struct, frozen=True):
    """The operators of a program, with what was measured of them."""

    graph: OperatorGraph
    seconds: list[float]
    """Median time of each operator, called one after the other."""


class DescribedProgram(Struct, frozen=True):
    """The operators of a program, with what they compute and move."""

    graph: OperatorGraph
    calls: list[list[CalledOperator]]
    """For each operator, what torch calls for it; nothing for a view."""


class TransferTime(Struct, frozen=True):
    """What it costs to hand a result from one device to another."""

    source: str
    target: str
    seconds: float
    """For any result, however small."""
    bandwidth: float | None
    """Bytes per second on top; None where nothing is copied."""


ScheduleTask = Literal["profile", "describe", "time", "trace", "transfer"]
"""profile: the graph, and times of its operators. describe: the graph, and the work of its operators. time: seconds of
the stages of schedules. trace: when units ran. transfer: what copies between devices cost."""


class ScheduleQuestion(Struct, frozen=True):
    """What a child process is asked about a program."""

    task: ScheduleTask
    name: str
    """`model:NAME` or `trace:FILE`."""
    params: dict[str, Any]
    backend: str
    threads: int
    """Threads of the process."""
    schedules: list[Schedule] = []
    devices: list[str] = []
    """Between which results are handed over."""
    budget: float = 0.0
    """Seconds for the rounds."""
