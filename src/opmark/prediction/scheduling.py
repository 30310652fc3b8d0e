"""Finds schedules of a program and predicts their makespans, from times that somebody else measures.

Stages are timed inside of whole runs of the program: each run tries one stage of every block, and everything else is
sequential. So a stage is timed with the caches and the threads that the stage before leaves behind, and one run answers
a question about every block. The rounds with even numbers choose the schedule, those with odd numbers predict it: what
is chosen because it was lucky does not look fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from statistics import median

from opmark.errors import UserError
from opmark.prediction.equilibrium import DeviceTimes, Equilibria, PlayedSchedule, find_equilibria, play
from opmark.prediction.optimum import (
    MOST_UNITS,
    Mode,
    Optimum,
    SolvedUnit,
    find_optimum,
    tick_of,
    whole_ticks,
    why_no_solver,
)
from opmark.prediction.stages import (
    MOST_CANDIDATES,
    BlockSearch,
    StageChoice,
    estimated_cost,
    lane_counts,
    lane_times,
    stage_choices,
    waiting_lanes,
)
from opmark.prediction.units import UnitGraph, blocks
from opmark.schema.schedule import Lane, Method, PlacedUnit, Schedule, ScheduleStage, StageTimes
from opmark.stats.interval import median_interval

_HANDOVER = 30e-6
"""Seconds that a stage with lanes takes on top, before one was measured: to wake threads, and to wait for the last."""
_SOLVER_SECONDS = 5.0
_FEWEST_CANDIDATES = 3
_RUNS = 20
"""Runs of each that should fit into the budget, every second one timed: fewer stages are looked at where a run takes
long."""
_MOST_AT_ONCE = 200
"""Units of a program that is tried as one stage: with more of them, to find its lanes takes longer than to time it."""

TimeSchedules = Callable[[list[Schedule], float], list[StageTimes]]
"""Runs schedules in turns until a budget in seconds is spent."""


@dataclass(frozen=True)
class PredictedSchedule:
    method: Method
    seconds: float
    low: float | None = None
    high: float | None = None
    """Ends of the interval of the median over rounds; None where the makespan follows from a model."""
    schedule: Schedule | None = None
    """None where nothing here can run it."""
    timeline: tuple[PlacedUnit, ...] = ()
    note: str = ""
    joules: float | None = None
    """Predicted energy; None where no model has learnt it."""


@dataclass(frozen=True)
class SharedResources:
    """What the lanes of a schedule share."""

    cores: int
    """Cores of a CPU; on a GPU, the most streams."""
    intra: bool = True
    """Whether an operator can use several of them by itself: threads on a CPU."""

    def threads(self, count: int) -> int:
        return count if self.intra else 1

    def thread_counts(self) -> list[int]:
        """Return the numbers of threads that a unit of a schedule in stages may have."""
        counts = (self.cores, *(max(1, self.cores // count) for count in lane_counts(self.cores)))
        return sorted({self.threads(count) for count in counts})


@dataclass(frozen=True)
class StageModel:
    """Seconds of stages that follow from times of units alone and from slowdowns beside each other: what stands in for
    a measurement of stages."""

    seconds: Callable[[int, int], float]
    """seconds(unit, threads): time of a unit alone."""
    slowdown: Callable[[int, int], float]
    """slowdown(unit, other): how many times as long a unit takes beside another one."""
    needs: Sequence[frozenset[int]]

    def __call__(self, schedules: list[Schedule], budget: float) -> list[StageTimes]:
        return [StageTimes([[self.stage(one) for one in schedule.stages]] * 2) for schedule in schedules]

    def stage(self, stage: ScheduleStage) -> float:
        """Return the time of a stage: until its last lane is done. The slowdowns of several other lanes add up, each
        the mean over the units of the lane, by their times."""
        alone = [
            [self.seconds(*one) for one in zip(lane.units, lane.threads, strict=True)] for lane in stage.lanes
        ]  # fmt: skip
        if len(alone) == 1:
            return sum(alone[0])
        slowed: dict[int, float] = {}
        for number, lane in enumerate(stage.lanes):
            for unit, own in zip(lane.units, alone[number], strict=True):
                excess = 0.0
                for other, lengths in enumerate(alone):
                    whole: float = sum(lengths)
                    if other != number and whole > 0:
                        beside = zip(stage.lanes[other].units, lengths, strict=True)
                        excess += sum(time * (self.slowdown(unit, one) - 1) for one, time in beside) / whole
                slowed[unit] = own * (1 + excess)
        times = lane_times([lane.units for lane in stage.lanes], self.needs, slowed.__getitem__, _HANDOVER)
        return max(end for _, end in times.values()) + _HANDOVER


@dataclass
class StageSearch:
    """Everything that was measured of the stages of a program."""

    units: UnitGraph
    digest: str
    resources: SharedResources
    time: TimeSchedules
    budget: float
    solo: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds of a unit alone, by (unit, threads)."""
    costs: dict[StageChoice, list[float]] = field(default_factory=dict)
    """Seconds of a stage in every round."""
    chosen: list[StageChoice] = field(default_factory=list)
    """The best stages that were found."""

    def find(self) -> tuple[PredictedSchedule, PredictedSchedule]:
        """Return the sequential schedule and the best one in stages."""
        self._time_units()
        needs, cores = self.units.needs, self.resources.cores
        choices = partial(stage_choices, needs=needs, seconds=self._solo_seconds, cores=cores)
        searches = [BlockSearch(block, needs, choices) for block in blocks(self.units)]
        estimate = estimated_cost(self._solo_seconds, needs, _HANDOVER)
        whole = sum(self._solo_seconds(unit, cores) for unit in range(len(self.units)))
        most = max(_FEWEST_CANDIDATES, min(MOST_CANDIDATES, int(self.budget / (_RUNS * whole))))
        tried = [search.candidates(estimate, most) for search in searches]
        sequential_choices = [self._alone(unit) for unit in range(len(self.units))]
        runs: list[list[StageChoice]] = [sequential_choices]
        for number in range(max(map(len, tried), default=0)):
            stages: list[StageChoice] = []
            for search, own in zip(searches, tried, strict=True):
                stages += self._around(search, own[number] if number < len(own) else None)
            runs.append(stages)
        at_once = waiting_lanes(needs, self._solo_seconds, cores, _HANDOVER) if len(needs) <= _MOST_AT_ONCE else []
        runs += [[choice] for choice in at_once]
        times = self.time([self.build(run, joined=False) for run in runs], self.budget)
        for place, (run, found) in enumerate(zip(runs, times, strict=True)):
            for number, choice in enumerate(run):
                if len(choice.lanes) > 1 or place == 0:
                    self.costs.setdefault(choice, []).extend(one[number] for one in found.rounds)
        for choice in sequential_choices:  # of the same rounds as the stages with lanes
            self.solo[choice.lanes[0][0], self.resources.threads(choice.threads)] = median(self.costs[choice])
        best = [search.best(self._choosing_cost) for search in searches]
        self.chosen = [choice for _, stages in best for choice in stages]
        together = min(at_once, key=self._choosing_cost, default=None)
        if together and self._choosing_cost(together) < sum(cost for cost, _ in best):
            self.chosen = [together]
        return self._predicted("sequential", sequential_choices), self._predicted("stages", self.chosen)

    def _time_units(self) -> None:
        """Time every unit alone, with every number of threads that a lane may have."""
        counts = self.resources.thread_counts()
        asked = [self.build([self._alone(unit, count) for unit in range(len(self.units))], joined=False)
                 for count in counts]  # fmt: skip
        for count, found in zip(counts, self.time(asked, self.budget / 3), strict=True):
            for unit in range(len(self.units)):
                self.solo[unit, count] = median(one[unit] for one in found.rounds)

    def _alone(self, unit: int, threads: int | None = None) -> StageChoice:
        return StageChoice(((unit,),), threads or self.resources.cores)

    def _solo_seconds(self, unit: int, threads: int) -> float:
        return self.solo[unit, self.resources.threads(threads)]

    def _around(self, search: BlockSearch, tried: tuple[frozenset[int], StageChoice] | None) -> list[StageChoice]:
        """Return stages of a block: one that is tried, and all other units one after the other."""
        if tried is None:
            return [self._alone(unit) for unit in sorted(search.block)]
        done, choice = tried
        rest = search.block - done - choice.units
        return [*map(self._alone, sorted(done)), choice, *map(self._alone, sorted(rest))]

    def _choosing_cost(self, choice: StageChoice) -> float:
        return median(self.costs[choice][::2]) if choice in self.costs else inf

    def _predicted(self, method: Method, stages: Sequence[StageChoice]) -> PredictedSchedule:
        rounds = min(len(self.costs[choice][1::2]) for choice in stages)
        totals = sorted(sum(self.costs[choice][1::2][i] for choice in stages) for i in range(rounds))
        seconds = sum(median(self.costs[choice][1::2]) for choice in stages)
        interval = median_interval(totals)
        return PredictedSchedule(
            method, seconds, min(interval.low, seconds), max(interval.high, seconds), self.build(stages),
            self._timeline(stages),
        )  # fmt: skip

    def build(self, stages: Sequence[StageChoice], *, joined: bool = True) -> Schedule:
        """Return the schedule of stages; `joined`: units alone that follow each other are one stage, in which nobody
        waits."""
        found: list[ScheduleStage] = []
        for choice in stages:
            threads = self.resources.threads(choice.threads)
            lanes = tuple(Lane(lane, (threads,) * len(lane)) for lane in choice.lanes)
            before = found[-1].lanes if found else ()
            if joined and len(lanes) == 1 and len(before) == 1:
                one = Lane(before[0].units + lanes[0].units, before[0].threads + lanes[0].threads)
                found[-1] = ScheduleStage((one,))
            else:
                found.append(ScheduleStage(lanes))
        return Schedule(self.digest, self.resources.threads(self.resources.cores), self.units.members, tuple(found))

    def _timeline(self, stages: Sequence[StageChoice]) -> tuple[PlacedUnit, ...]:
        """Return when units run: the lanes of a stage are stretched to its measured time."""
        now, placed = 0.0, []
        for choice in stages:
            length = median(self.costs[choice][1::2])
            solo = partial(self._solo_seconds, threads=choice.threads)
            times = lane_times(choice.lanes, self.units.needs, solo)
            longest = max(end for _, end in times.values())
            stretch = length / longest if longest else 0.0
            for number, lane in enumerate(choice.lanes):
                placed += [PlacedUnit(unit, number, *(now + stretch * at for at in times[unit])) for unit in lane]
            now += length
        return tuple(placed)

    def slowdown(self) -> float:
        """Return how much longer stages with lanes took than their longest lane alone: the median of all stages that
        were measured."""
        estimate = estimated_cost(self._solo_seconds, self.units.needs, 0.0)
        ratios = [
            median(found) / estimate(one) for one, found in self.costs.items() if len(one.lanes) > 1 and not one.waits
        ]
        return max(1.0, median(ratios)) if ratios else 1.0

    def optimum(self) -> PredictedSchedule:
        """Return the optimum of a model in which a unit takes its time alone, times the slowdown where it does not have
        all cores; units begin when they can, without stages."""
        cores = self.resources.cores
        if not self.resources.intra:
            raise UserError(
                "no optimum: streams share a GPU in a way that no number of cores describes",
                "`--method stages` measures",
            )
        slowdown = self.slowdown()
        counts = sorted({threads for _, threads in self.solo})
        modes = [
            [Mode(self.solo[unit, count] * (slowdown if count < cores else 1.0), 0, count) for count in counts]
            for unit in range(len(self.units))
        ]
        places = [(choice.lanes, counts.index(self.resources.threads(choice.threads))) for choice in self.chosen]
        hint = place_stages(modes, places, self.units.needs)
        found = find_optimum(modes, self.units.needs, [cores], limit=_SOLVER_SECONDS, hint=hint)
        placed = lanes_of_optimum(found)
        amount = {one.unit: modes[one.unit][one.mode].amount for one in found.placed}
        lanes: dict[int, list[int]] = {}
        for one in placed:
            lanes.setdefault(one.lane, []).append(one.unit)
        stage = ScheduleStage(
            tuple(Lane(tuple(own), tuple(amount[unit] for unit in own)) for _, own in sorted(lanes.items()))
        )
        schedule = Schedule(self.digest, cores, self.units.members, (stage,))
        note = f"by a model: times alone, {slowdown:.3g} times as long beside others"
        if not found.proven:
            note += f"; not proven, the bound is {found.bound:.3g} s"
        return PredictedSchedule("optimum", found.seconds, None, None, schedule, placed, note)


def place_stages(
    modes: Sequence[Sequence[Mode]],
    stages: Sequence[tuple[tuple[tuple[int, ...], ...], int]],
    needs: Sequence[frozenset[int]],
) -> list[SolvedUnit]:
    """Return when units begin in stages of lanes, each with the number of its mode: a schedule that the solver need
    not find."""
    tick = tick_of([mode.seconds for mode in own] for own in modes)
    now, placed = 0.0, list[SolvedUnit]()
    for lanes, mode in stages:
        length = {unit: whole_ticks(modes[unit][mode].seconds, tick) for lane in lanes for unit in lane}
        times = lane_times(lanes, needs, length.__getitem__)
        placed += [SolvedUnit(unit, mode, now + start, now + end) for unit, (start, end) in times.items()]
        now = max(one.end for one in placed)
    return placed


def lanes_of_optimum(found: Optimum) -> tuple[PlacedUnit, ...]:
    """Return the units of an optimum in lanes: each goes to the first lane that is free when it begins."""
    free: list[float] = []
    placed = []
    for one in found.placed:
        lane = next((i for i, end in enumerate(free) if end <= one.start + 1e-9), len(free))
        free[lane : lane + 1] = [one.end]
        placed.append(PlacedUnit(one.unit, lane, one.start, one.end))
    return tuple(placed)


# Resources that are not shared.


@dataclass(frozen=True)
class DeviceSchedules:
    """What a program costs on devices of its own."""

    alone: dict[str, float]
    """Seconds of everything on one device, where one can run everything."""
    equilibria: Equilibria | None
    optimum: Optimum | None
    no_optimum: str
    times: DeviceTimes

    @property
    def anarchy(self) -> float | None:
        """The price of anarchy: how much longer the worst equilibrium takes than the optimum."""
        if self.equilibria is None or self.optimum is None:
            return None
        # The optimum is in whole ticks of the solver, so an equilibrium may look better than it by a rounding.
        return max(1.0, self.equilibria.worst.makespan / self.optimum.seconds)


def schedule_devices(times: DeviceTimes, seed: int = 0, limit: float = 10.0) -> DeviceSchedules:
    """Return equilibria, the optimum, and every device alone."""
    alone = {
        name: sum(own[device] for own in times.seconds)
        for device, name in enumerate(times.devices)
        if all(own[device] < inf for own in times.seconds)
    }
    equilibria = find_equilibria(times, seed)
    optimum, why = None, why_no_solver()
    if not why and len(times.needs) > MOST_UNITS:
        why = f"the graph has {len(times.needs)} units, and the solver is asked for at most {MOST_UNITS}"
    if not why:
        modes = [
            [Mode(seconds, device) for device, seconds in enumerate(own) if seconds < inf] for own in times.seconds
        ]
        hint = _place_played(times, equilibria.best.devices) if equilibria else ()
        optimum = find_optimum(modes, times.needs, [1] * len(times.devices), times.transfers, limit=limit, hint=hint)
    return DeviceSchedules(alone, equilibria, optimum, why, times)


def _place_played(times: DeviceTimes, devices: Sequence[int]) -> list[SolvedUnit]:
    """Return when units begin on their devices, in whole ticks of the solver, each with the number of its mode."""
    tick = tick_of([one for one in own if one < inf] for own in times.seconds)
    ticked = DeviceTimes(
        times.devices,
        tuple(tuple(whole_ticks(one, tick) if one < inf else inf for one in own) for own in times.seconds),
        times.needs,
        {
            edge: {pair: whole_ticks(one, tick, 0) for pair, one in each.items()}
            for edge, each in times.transfers.items()
        },
    )
    played = play(ticked, devices)
    return [
        SolvedUnit(unit, sum(one < inf for one in times.seconds[unit][:device]), played.starts[unit], played.ends[unit])
        for unit, device in enumerate(devices)
    ]


def timeline_of(played: PlayedSchedule) -> tuple[PlacedUnit, ...]:
    """Return a bar for each unit; the lane is the number of the device."""
    return tuple(
        PlacedUnit(unit, played.devices[unit], played.starts[unit], played.ends[unit])
        for unit in range(len(played.devices))
    )


def device_lanes(
    placed: Sequence[PlacedUnit],
    units: UnitGraph,
    digest: str,
    shares: Sequence[int],
    threads: int,
    names: Sequence[str],
) -> Schedule:
    """Return the schedule that runs units on devices that are cores of this CPU: a lane for each device, with as many
    threads as it has cores."""
    lanes: list[Lane] = []
    for device in sorted({one.lane for one in placed}):
        own = [one.unit for one in sorted(placed, key=lambda one: (one.start, one.unit)) if one.lane == device]
        lanes.append(Lane(tuple(own), (shares[device],) * len(own), names[device]))
    return Schedule(digest, threads, units.members, (ScheduleStage(tuple(lanes)),))
