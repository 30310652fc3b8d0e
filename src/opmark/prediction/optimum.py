"""The optimum of a small graph, by constraint programming (CP-SAT of OR-Tools), which is an extra."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from opmark.errors import UserError

MOST_UNITS = 60


@dataclass(frozen=True)
class Mode:
    """One way to run a unit."""

    seconds: float
    resource: int
    """The device; 0 where there is one."""
    amount: int = 1
    """How much of it: cores."""


@dataclass(frozen=True)
class SolvedUnit:
    unit: int
    mode: int
    start: float
    end: float


@dataclass(frozen=True)
class Optimum:
    seconds: float
    placed: tuple[SolvedUnit, ...]
    """In the order of their starts."""
    proven: bool
    """Whether nothing can be better; else time was up, and `bound` says how much better it could be."""
    bound: float


def tick_of(units: Iterable[Iterable[float]]) -> float:
    """Return the seconds of a step of time, because times are whole numbers for the solver: a millionth of the whole or
    less. `units`: the times of each unit, where it can run."""
    return float(10.0 ** (math.floor(math.log10(sum(map(max, units)))) - 6))


def whole_ticks(seconds: float, tick: float, least: int = 1) -> float:
    """Return how long a unit takes for the solver; `least`: its fewest steps of time, 0 for a transfer."""
    return _ticks(seconds, tick, least) * tick


def _ticks(seconds: float, tick: float, least: int = 1) -> int:
    return max(least, round(seconds / tick))


def why_no_solver() -> str:
    """Return why there is no optimum; empty where there is a solver."""
    return "" if find_spec("ortools") else "ortools is not installed (pip install 'opmark[schedule]')"


def find_optimum(
    modes: Sequence[Sequence[Mode]],
    needs: Sequence[frozenset[int]],
    capacities: Sequence[int],
    transfers: Mapping[tuple[int, int], Mapping[tuple[int, int], float]] | None = None,
    *,
    limit: float = 10.0,
    hint: Sequence[SolvedUnit] = (),
) -> Optimum:
    """Return the schedule with the least makespan: every unit in one of its modes, on resources of a capacity, after
    what it needs. `transfers`: seconds between two units by (from, to) resource, where they differ. `hint`: a schedule
    to begin with, so that what is found in time is no worse."""
    if reason := why_no_solver():
        raise UserError(f"no optimum: {reason}", "`--method stages` needs no solver")
    if len(modes) > MOST_UNITS:
        raise UserError(
            f"no optimum: the graph has {len(modes)} units, and the solver is asked for at most {MOST_UNITS}",
            "`--method stages` has no such limit",
        )
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    tick = tick_of([mode.seconds for mode in own] for own in modes)
    ticks = [[_ticks(mode.seconds, tick) for mode in own] for own in modes]
    moves = {
        edge: {pair: _ticks(seconds, tick, 0) for pair, seconds in each.items()}
        for edge, each in (transfers or {}).items()
    }
    horizon = sum(max(own) for own in ticks) + sum(max(each.values(), default=0) for each in moves.values())
    starts = [model.new_int_var(0, horizon, f"start{i}") for i in range(len(modes))]
    ends = [model.new_int_var(0, horizon, f"end{i}") for i in range(len(modes))]
    chosen: list[list[Any]] = []
    loads: list[list[tuple[Any, int]]] = [[] for _ in capacities]
    for unit, own in enumerate(modes):
        picks = [model.new_bool_var(f"mode{unit}_{i}") for i in range(len(own))]
        model.add_exactly_one(picks)
        for mode, pick, length in zip(own, picks, ticks[unit], strict=True):
            part = model.new_optional_interval_var(starts[unit], length, ends[unit], pick, f"run{unit}_{len(loads)}")
            loads[mode.resource].append((part, mode.amount))
        chosen.append(picks)
    for resource, capacity in enumerate(capacities):
        model.add_cumulative([part for part, _ in loads[resource]], [n for _, n in loads[resource]], capacity)
    for unit, before in enumerate(needs):
        for other in before:
            model.add(starts[unit] >= ends[other])
            for (source, target), delay in moves.get((other, unit), {}).items():
                for a, first in enumerate(modes[other]):
                    for b, second in enumerate(modes[unit]):
                        if first.resource == source and second.resource == target and delay:
                            both = [chosen[other][a], chosen[unit][b]]
                            model.add(starts[unit] >= ends[other] + delay).only_enforce_if(both)
    makespan = model.new_int_var(0, horizon, "makespan")
    model.add_max_equality(makespan, ends)
    model.minimize(makespan)
    for one in hint:
        model.add_hint(starts[one.unit], round(one.start / tick))
        for i, pick in enumerate(chosen[one.unit]):
            model.add_hint(pick, i == one.mode)
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise UserError(f"no optimum: the solver found no schedule in {limit:g} s", "`--method stages` needs no solver")
    placed = []
    for unit, own in enumerate(modes):
        picked = next(i for i in range(len(own)) if solver.boolean_value(chosen[unit][i]))
        start = solver.value(starts[unit]) * tick
        placed.append(SolvedUnit(unit, picked, start, solver.value(ends[unit]) * tick))
    placed.sort(key=lambda one: (one.start, one.unit))
    return Optimum(
        solver.objective_value * tick, tuple(placed), status == cp_model.OPTIMAL, solver.best_objective_bound * tick
    )
