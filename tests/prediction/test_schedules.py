"""Laws of schedules: they respect dependencies, no schedule beats the critical path or the work divided by the
resources, the optimum beats no other only where it is not one."""

from __future__ import annotations

import itertools
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import UserError
from opmark.prediction import scheduling
from opmark.prediction.equilibrium import DeviceTimes, best_response, find_equilibria, is_equilibrium, play
from opmark.prediction.optimum import Mode, find_optimum, why_no_solver
from opmark.prediction.scheduling import (
    SharedResources,
    StageModel,
    StageSearch,
    _place_played,
    lanes_of_optimum,
    place_stages,
    schedule_devices,
)
from opmark.prediction.stages import (
    BlockSearch,
    StageChoice,
    connected_parts,
    estimated_cost,
    lane_times,
    stage_choices,
    waiting_lanes,
)
from opmark.prediction.units import UnitGraph, blocks, descendants, make_units
from opmark.schema.schedule import (
    Lane,
    OperatorGraph,
    Schedule,
    ScheduleStage,
    StageTimes,
    check_schedule,
    read_schedule,
    refuse_cycle,
    sequential,
)

TIME = st.floats(1e-5, 1e-2)


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> OperatorGraph:
    count = draw(st.integers(1, most))
    needs = [sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)]
    return OperatorGraph([f"aten::op{i}" for i in range(count)], needs, "digest", [1000] * count)


@st.composite
def unit_graphs(draw: st.DrawFn, most: int = 7) -> UnitGraph:
    graph = draw(graphs(most))
    seconds = tuple(draw(TIME) for _ in graph.operators)
    return UnitGraph(tuple((i,) for i in range(len(seconds))), tuple(map(frozenset, graph.needs)), seconds)


def critical_path(needs: Any, seconds: Any) -> float:
    ends: list[float] = []
    for unit, before in enumerate(needs):
        ends.append(seconds[unit] + max((ends[other] for other in before), default=0.0))
    return max(ends)


# Units.


@given(graphs(), st.data())
def test_units_keep_every_operator_and_wait_for_each_other_without_a_cycle(graph: OperatorGraph, data: Any) -> None:
    seconds = [data.draw(TIME) for _ in graph.operators]
    units = make_units(graph, seconds, shortest=data.draw(TIME), most=data.draw(st.integers(2, 6)))
    assert sorted(i for members in units.members for i in members) == list(range(len(seconds)))
    assert sum(units.seconds) >= sum(seconds) * (1 - 1e-9)
    assert all(before < unit for unit, own in enumerate(units.needs) for before in own)
    check_schedule(sequential("digest", units.members, 2, range(len(units))), graph)


@given(graphs(), st.integers(2, 6))
def test_no_block_has_more_units_than_are_allowed(graph: OperatorGraph, most: int) -> None:
    units = make_units(graph, [1.0] * len(graph.operators), shortest=0.0, most=most)
    assert max(map(len, blocks(units))) <= most


@given(unit_graphs(most=10))
def test_blocks_follow_each_other(units: UnitGraph) -> None:
    found = blocks(units)
    assert [unit for block in found for unit in block] == list(range(len(units)))
    after = descendants(units.needs)
    for block, later in itertools.pairwise(found):
        assert all(set(later) <= after[unit] for unit in block) or len(found) == 1


def test_a_chain_is_one_unit_and_a_fork_is_not() -> None:
    graph = OperatorGraph(list("abcdef"), [[], [0], [1], [1], [2, 3], [4]], "x")
    units = make_units(graph, [1.0] * 6)
    assert units.members == ((0, 1), (2,), (3,), (4, 5))
    assert [list(map(list, blocks(units)))] == [[[0], [1, 2], [3]]]


def test_short_siblings_are_joined_before_they_lose_their_place_beside_others() -> None:
    graph = OperatorGraph(["long", *["short"] * 6, "end"], [[], *[[]] * 6, [0, 1, 2, 3, 4, 5, 6]], "x")
    units = make_units(graph, [1e-3, *[1e-5] * 6, 1e-3], shortest=6e-5)
    assert units.members == ((0,), (1, 2, 3, 4, 5, 6), (7,))


# Stages.


def speeds(units: UnitGraph, unit: int, threads: int) -> float:
    """A time that falls with threads, but less than in proportion."""
    return float(units.seconds[unit] / threads**0.7)


def search(units: UnitGraph, cores: int) -> BlockSearch:
    seconds = partial(speeds, units)
    choices = partial(stage_choices, needs=units.needs, seconds=seconds, cores=cores)
    return BlockSearch(range(len(units)), units.needs, choices)


@given(unit_graphs(), st.sampled_from([1, 2, 4]))
@settings(deadline=None)
def test_stages_are_at_best_the_critical_path_and_at_worst_sequential(units: UnitGraph, cores: int) -> None:
    seconds = partial(speeds, units)
    found = search(units, cores)
    total, stages = found.best(estimated_cost(seconds, units.needs, handover=0.0))
    alone = sum(seconds(unit, cores) for unit in range(len(units)))
    fastest = [min(seconds(unit, n) for n in range(1, cores + 1)) for unit in range(len(units))]
    assert total <= alone * (1 + 1e-9)
    assert total >= critical_path(units.needs, fastest) * (1 - 1e-9)
    # The least work of a unit is that with one thread, as more of them are used less well.
    assert total >= sum(units.seconds) / cores * (1 - 1e-9)
    done: set[int] = set()
    for stage in stages:
        for lane in stage.lanes:
            own: set[int] = set()
            for unit in lane:
                assert units.needs[unit] <= done | own
                own.add(unit)
        done |= stage.units
    assert done == set(range(len(units)))


@given(unit_graphs(), st.sampled_from([2, 4]), st.sampled_from([0.0, 1e-4]))
@settings(deadline=None)
def test_lanes_that_wait_for_each_other_run_every_unit_after_what_it_needs(
    units: UnitGraph, cores: int, handover: float
) -> None:
    for choice in waiting_lanes(units.needs, partial(speeds, units), cores, handover):
        assert choice.units == set(range(len(units)))
        assert 2 <= len(choice.lanes) <= cores
        length = {unit: speeds(units, unit, choice.threads) for unit in choice.units}
        times = lane_times(choice.lanes, units.needs, length.__getitem__, handover)
        place = {unit: lane for lane in choice.lanes for unit in lane}
        for unit, (start, end) in times.items():
            assert end == start + length[unit]
            assert all(
                start >= times[before][1] + (0.0 if place[before] is place[unit] else handover)
                for before in units.needs[unit]
            )
        for lane in choice.lanes:
            assert all(times[unit][0] >= times[before][1] for before, unit in itertools.pairwise(lane))


@given(unit_graphs(), st.sampled_from([2, 4]))
@settings(deadline=None)
def test_candidates_contain_a_stage_of_the_best_schedule(units: UnitGraph, cores: int) -> None:
    cost = estimated_cost(partial(speeds, units), units.needs, 0.0)
    found = search(units, cores)
    best = {choice for choice in found.best(cost)[1] if len(choice.lanes) > 1}
    tried = found.candidates(cost, most=1000)
    assert len({choice for _, choice in tried}) == len(tried)
    for done, choice in tried:
        assert not done & choice.units
        assert all(units.needs[unit] <= done | choice.units for unit in choice.units)
    if best:
        assert best & {choice for _, choice in tried}


def test_connected_parts_are_those_between_which_nothing_waits() -> None:
    needs = [frozenset[int](), frozenset({0}), frozenset[int](), frozenset({2}), frozenset({1, 3})]
    assert connected_parts(frozenset({0, 1, 2, 3}), needs) == [(0, 1), (2, 3)]
    assert connected_parts(frozenset({0, 1, 2, 3, 4}), needs) == [(0, 1, 2, 3, 4)]


# The search with a machine that is made up: stages cost what a formula says.


def made_up_machine(units: UnitGraph, slowdown: float, noise: Any = lambda: 1.0) -> Any:
    def time_schedules(schedules: list[Schedule], budget: float) -> list[StageTimes]:
        found = []
        for one in schedules:
            rounds = []
            for _ in range(8):
                own = []
                for stage in one.stages:
                    threads = dict(pair for lane in stage.lanes for pair in zip(lane.units, lane.threads, strict=True))
                    seconds = {unit: speeds(units, unit, count) for unit, count in threads.items()}
                    times = lane_times([lane.units for lane in stage.lanes], units.needs, seconds.__getitem__)
                    length = max(end for _, end in times.values())
                    own.append(length * (slowdown if len(stage.lanes) > 1 else 1.0) * noise())
                rounds.append(own)
            found.append(StageTimes(rounds))
        return found

    return time_schedules


@given(unit_graphs(), st.sampled_from([2, 4]), st.floats(1.0, 3.0))
@settings(deadline=None, max_examples=40)
def test_the_search_finds_executable_schedules_that_are_never_worse_than_sequential(
    units: UnitGraph, cores: int, slowdown: float
) -> None:
    graph = OperatorGraph(["op"] * len(units), [sorted(own) for own in units.needs], "digest")
    found = StageSearch(units, "digest", SharedResources(cores), made_up_machine(units, slowdown), 10.0)
    plain, staged = found.find()
    assert staged.seconds <= plain.seconds * (1 + 1e-9)
    assert plain.seconds == pytest.approx(sum(speeds(units, unit, cores) for unit in range(len(units))))
    for one in (plain, staged):
        assert one.schedule is not None
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.seconds <= one.high
        check_schedule(one.schedule, graph)
        assert {placed.unit for placed in one.timeline} == set(range(len(units)))
        assert max(placed.end for placed in one.timeline) == pytest.approx(one.seconds)


def test_interference_that_eats_the_gain_leaves_it_sequential() -> None:
    units = UnitGraph(((0,), (1,)), (frozenset(), frozenset()), (1e-3, 1e-3))
    quick = StageSearch(units, "digest", SharedResources(2), made_up_machine(units, 1.0), 10.0).find()[1]
    slow = StageSearch(units, "digest", SharedResources(2), made_up_machine(units, 1.9), 10.0)
    assert quick.schedule is not None
    assert quick.schedule.width == 2
    chosen = slow.find()[1].schedule
    assert chosen is not None
    assert chosen.width == 1
    assert slow.slowdown() == pytest.approx(1.9)


def test_lanes_may_wait_for_each_other_where_stages_would_have_to_end() -> None:
    """One lane runs 0, 1 and 2, the other one 4 and then 3, which waits for 0. In stages, 0 has to wait for 4."""
    lengths = (1e-3, 2e-3, 1e-3, 2e-3, 2e-3)
    needs = (frozenset[int](), frozenset({0}), frozenset({1}), frozenset({0}), frozenset[int]())
    units = UnitGraph(tuple((unit,) for unit in range(5)), needs, lengths)
    graph = OperatorGraph(["op"] * 5, [sorted(own) for own in needs], "digest")
    found = StageSearch(units, "digest", SharedResources(2), made_up_machine(units, 1.0), 10.0)
    plain, staged = found.find()
    assert staged.schedule is not None
    check_schedule(staged.schedule, graph)
    assert [choice.waits for choice in found.chosen] == [True]
    assert staged.seconds == pytest.approx(4e-3)
    assert plain.seconds > 4.9e-3
    assert found.slowdown() == pytest.approx(1.0)


# The optimum.

needs_solver = pytest.mark.skipif(bool(why_no_solver()), reason=why_no_solver() or "there is a solver")


@needs_solver
@given(unit_graphs(most=6), st.sampled_from([2, 4]))
@settings(deadline=None, max_examples=25)
def test_the_optimum_is_no_worse_than_stages_and_no_better_than_its_bounds(units: UnitGraph, cores: int) -> None:
    seconds = partial(speeds, units)
    counts = sorted({1, cores // 2, cores})
    modes = [[Mode(seconds(unit, n), 0, n) for n in counts] for unit in range(len(units))]
    found = find_optimum(modes, units.needs, [cores])
    stages = search(units, cores).best(estimated_cost(seconds, units.needs, 0.0))[0]
    rounding = 1e-6 * len(units)
    if found.proven:  # a busy machine may not get there in time
        assert found.seconds <= stages + rounding
    assert found.bound <= found.seconds + rounding
    assert found.seconds >= critical_path(units.needs, [min(m.seconds for m in own) for own in modes]) - rounding
    assert found.seconds >= sum(min(m.seconds * m.amount for m in own) for own in modes) / cores - rounding
    placed = lanes_of_optimum(found)
    ends = {one.unit: one.end for one in found.placed}
    for one in found.placed:
        assert all(ends[before] <= one.start + rounding for before in units.needs[one.unit])
    for lane in {one.lane for one in placed}:
        own = [one for one in placed if one.lane == lane]
        assert all(first.end <= then.start + rounding for first, then in itertools.pairwise(own))
    assert max(one.lane for one in placed) < cores


@needs_solver
def test_the_optimum_of_two_units_beside_each_other_is_proven() -> None:
    modes = [[Mode(2.0, 0, 1), Mode(1.5, 0, 2)], [Mode(1.0, 0, 1), Mode(0.8, 0, 2)]]
    found = find_optimum(modes, [frozenset(), frozenset()], [2], limit=120.0)
    assert found.proven
    assert found.seconds == pytest.approx(2.0)


def test_without_a_solver_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.prediction.optimum.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"opmark\[schedule\]"):
        find_optimum([[Mode(1.0, 0)]], [frozenset()], [1])
    times = DeviceTimes(("a", "b"), ((1.0, 2.0),), (frozenset(),), {})
    found = schedule_devices(times)
    assert found.optimum is None
    assert "ortools" in found.no_optimum
    assert found.equilibria is not None
    assert found.anarchy is None


# Resources that are not shared.


@st.composite
def device_times(draw: st.DrawFn) -> DeviceTimes:
    units = draw(unit_graphs(most=6))
    count = draw(st.integers(1, 3))
    rows = tuple(tuple(draw(TIME) for _ in range(count)) for _ in range(len(units)))
    transfers = {
        (before, unit): {(a, b): draw(st.floats(0, 1e-3)) for a in range(count) for b in range(count) if a != b}
        for unit, own in enumerate(units.needs)
        for before in own
    }
    return DeviceTimes(tuple("abc"[:count]), rows, units.needs, transfers)


@given(device_times(), st.data())
@settings(deadline=None)
def test_what_is_played_respects_dependencies_transfers_and_devices(times: DeviceTimes, data: Any) -> None:
    devices = [data.draw(st.integers(0, len(times.devices) - 1)) for _ in times.needs]
    found = play(times, devices)
    for unit, before in enumerate(times.needs):
        assert found.ends[unit] == pytest.approx(found.starts[unit] + times.seconds[unit][devices[unit]])
        for other in before:
            arrived = found.ends[other] + times.transfer(other, unit, devices[other], devices[unit])
            assert found.starts[unit] >= arrived - 1e-12
    for device in set(devices):
        own = sorted((found.starts[u], found.ends[u]) for u in range(len(devices)) if devices[u] == device)
        assert all(first[1] <= then[0] + 1e-12 for first, then in itertools.pairwise(own))
    assert found.makespan >= critical_path(times.needs, [min(own) for own in times.seconds]) - 1e-12
    assert found.makespan >= sum(map(min, times.seconds)) / len(times.devices) - 1e-12


@given(device_times())
@settings(deadline=None, max_examples=40)
def test_in_an_equilibrium_nobody_gains_by_moving_alone(times: DeviceTimes) -> None:
    reached, _ = best_response(times, [0] * len(times.needs))
    if reached is not None:
        assert is_equilibrium(times, reached.devices)
    found = find_equilibria(times)
    if found is not None:
        assert is_equilibrium(times, found.best.devices)
        assert is_equilibrium(times, found.worst.devices)
        assert found.best.makespan <= found.worst.makespan


@needs_solver
@given(device_times())
@settings(deadline=None, max_examples=25)
def test_the_optimum_is_no_worse_than_any_equilibrium(times: DeviceTimes) -> None:
    found = schedule_devices(times)
    assert found.optimum is not None
    rounding = 1e-6 * len(times.needs)
    if found.equilibria is not None:
        assert found.optimum.seconds <= found.equilibria.best.makespan + rounding
        assert found.anarchy is not None
        assert found.anarchy >= 1
    assert all(found.optimum.seconds <= alone + rounding for alone in found.alone.values())


@needs_solver
def test_the_price_of_anarchy_of_a_known_game() -> None:
    """Two jobs, two machines: both are faster on the first one by themselves, and one has to give way for the best."""
    times = DeviceTimes(("quick", "slow"), ((1.0, 1.9), (2.0, 4.5)), (frozenset(), frozenset()), {})
    found = schedule_devices(times)
    assert found.optimum is not None
    assert found.optimum.seconds == pytest.approx(2.0)
    assert found.equilibria is not None
    assert found.equilibria.worst.makespan == pytest.approx(3.0)
    assert found.anarchy == pytest.approx(1.5)


@needs_solver
def test_no_equilibrium_is_better_than_the_optimum_by_a_rounding() -> None:
    assert schedule_devices(DeviceTimes(("one",), ((1.6e-7,),), (frozenset(),), {})).anarchy == 1


@needs_solver
def test_an_optimum_that_is_not_proven_in_time_is_no_worse_than_stages_that_are_known() -> None:
    """Twice nine heads of like lengths and what joins them: alone, the solver comes nowhere near in so short a time."""
    generator = np.random.default_rng(3)
    modes: list[list[Mode]] = []
    needs: list[frozenset[int]] = []
    stages: list[tuple[tuple[tuple[int, ...], ...], int]] = []
    for layer in range(2):
        heads = range(len(modes), len(modes) + 9)
        for seconds in generator.uniform(0.98, 1.02, len(heads)) * 1.2e-3:
            modes.append([Mode(seconds, 0, 1), Mode(0.72 * seconds, 0, 2)])
            needs.append(frozenset({heads[0] - 1} if layer else ()))
        stages += [((tuple(heads[::2]), tuple(heads[1::2])), 0), (((len(modes),),), 1)]
        modes.append([Mode(2e-3, 0, 1), Mode(1.5e-3, 0, 2)])
        needs.append(frozenset(heads))
    known = place_stages(modes, stages, needs)
    found = find_optimum(modes, needs, [2], limit=2.0, hint=known)
    assert found.seconds <= max(one.end for one in known) + 1e-9


@needs_solver
@given(device_times())
@settings(deadline=None, max_examples=10)
def test_the_best_equilibrium_is_a_schedule_in_whole_ticks(times: DeviceTimes) -> None:
    best = find_equilibria(times)
    if best is not None:
        placed = _place_played(times, best.best.devices)
        for one in placed:
            for before in times.needs[one.unit]:
                assert one.start >= placed[before].end - 1e-9


def test_a_unit_that_a_device_cannot_run_stays_away_from_it() -> None:
    times = DeviceTimes(("a", "b"), ((inf, 5.0), (1.0, 1.0)), (frozenset(), frozenset()), {})
    found = find_equilibria(times)
    assert found is not None
    assert found.worst.devices == (1, 0)


# Schedules as data.


def test_a_cycle_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"cycle: 0 \(a\), 1 \(b\) wait for each other"):
        OperatorGraph(["a", "b", "c"], [[1], [0], []], "x")
    with pytest.raises(UserError, match="operator 7, which does not exist"):
        refuse_cycle([[7]], ["a"])


GRAPH = OperatorGraph(["a", "b", "c"], [[], [0], [0]], "digest")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"digest": "other"}, "another program"),
        ({"units": ((0,), (1,))}, "each of the 3 operators exactly once"),
        ({"stages": (ScheduleStage((Lane((0,), (2,)),)),)}, "each of its 3 units exactly once"),
        ({"stages": (ScheduleStage((Lane((1, 0, 2), (2, 2, 2)),)),)}, "waits for what only comes after"),
        ({"stages": (ScheduleStage((Lane((0, 1, 2), (2, 2)),)),)}, "a number of threads for each"),
        ({"stages": (ScheduleStage((Lane((0, 1, 2), (2, 3, 2)),)),)}, "between 1 and 2 threads"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    good = sequential("digest", [(0,), (1,), (2,)], 2, [0, 1, 2])
    check_schedule(good, GRAPH)
    import msgspec

    with pytest.raises(UserError, match=message):
        check_schedule(msgspec.structs.replace(good, **changed), GRAPH)


def test_lanes_that_wait_for_each_other_in_turn_are_allowed_and_those_in_a_circle_are_not() -> None:
    graph = OperatorGraph(list("abcd"), [[], [], [1], [0]], "digest")
    units = ((0,), (1,), (2,), (3,))
    good = Schedule("digest", 1, units, (ScheduleStage((Lane((0, 2), (1, 1)), Lane((1, 3), (1, 1)))),))
    check_schedule(good, graph)
    circle = Schedule("digest", 1, units, (ScheduleStage((Lane((2, 0), (1, 1)), Lane((3, 1), (1, 1)))),))
    with pytest.raises(UserError, match="only comes after"):
        check_schedule(circle, graph)


def test_a_schedule_is_the_same_after_being_written() -> None:
    one = sequential("digest", [(0,), (1,), (2,)], 2, [0, 1, 2])
    assert read_schedule(one.encode()) == one
    with pytest.raises(UserError, match="no schedule"):
        read_schedule("{}")


def test_a_stage_choice_knows_its_units() -> None:
    assert StageChoice(((0, 2), (1,)), 1).units == {0, 1, 2}
    assert scheduling.SharedResources(4, intra=False).threads(4) == 1


def test_a_modelled_stage_takes_its_longest_lane_with_the_slowdowns_of_the_others() -> None:
    seconds = {0: 4e-3, 1: 1e-3, 2: 3e-3}
    model = StageModel(
        lambda unit, threads: seconds[unit] / threads, lambda unit, other: 1.0 + other / 10, [frozenset()] * 3
    )
    alone = ScheduleStage((Lane((0, 1), (2, 1)),))
    assert model.stage(alone) == pytest.approx(3e-3)
    beside = ScheduleStage((Lane((0,), (1,)), Lane((1, 2), (1, 1))))
    handover = model.stage(ScheduleStage((Lane((0,), (1,)), Lane((), ())))) - 4e-3
    assert 0 < handover < 1e-3
    # Unit 0 beside 1 (1 ms, 1.1) and 2 (3 ms, 1.2): 1.175 times as long. Its own lane slows the other one by nothing.
    assert model.stage(beside) == pytest.approx(4e-3 * 1.175 + handover)
