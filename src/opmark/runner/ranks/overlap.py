"""How well two things overlap: each alone, then both together, in turns, on all ranks."""

from __future__ import annotations

import time
from functools import partial
from itertools import repeat
from math import ceil

from opmark.interfaces import Backend, BackendInfo, Exchange, Team
from opmark.registry import implementations
from opmark.registry import operator as find_operator
from opmark.runner.prepare import prepare
from opmark.runner.ranks.agree import slowest
from opmark.schema import Case, Launch, Overlap, Task
from opmark.stats import median

_COMPUTATION = "matmul"
"""Runs beside communication: products that fit into a cache, so that both do not fight for the memory."""
_SIDE = 128
_BUDGET = 0.3
_MIN_ROUNDS = 5
_MAX_ROUNDS = 50
_TRIALS = 10
_CORRECTIONS = 2


def measure_overlap(
    team: Team,
    put_back: Launch,
    first: str,
    first_alone: Launch,
    second: str,
    second_alone: Launch,
    together: Launch,
) -> Overlap:
    """Each launch waits for what it does; what it changes is put back before the next."""
    launches = (first_alone, second_alone, together)
    once = sum(_time(team, put_back, launch) for launch in launches)
    rounds = max(_MIN_ROUNDS, min(_MAX_ROUNDS, int(_BUDGET / max(once, 1e-6))))
    times = [[_time(team, put_back, launch) for launch in launches] for _ in range(rounds)]
    alone, other, both = (median(list(column)) for column in zip(*times, strict=True))
    return Overlap(first, alone, second, other, both)


def overlap_with_computation(
    task: Task,
    info: BackendInfo,
    backend: Backend,
    team: Team,
    exchange: Exchange,
    wait: Launch,
    put_back: Launch,
) -> Overlap | None:
    """The overlap with products of matrices that take about as long; None where this framework has no such product."""
    product = _product(task, info, backend)
    if product is None:
        return None

    def communicate() -> None:
        exchange.start()
        wait()

    communicating = median([_time(team, put_back, communicate) for _ in range(_TRIALS)])
    computing = median([_time(team, put_back, partial(_repeat, product, 1, backend)) for _ in range(_TRIALS)])
    times = max(1, ceil(communicating / max(computing, 1e-7)))
    for _ in range(_CORRECTIONS):  # one product alone is mostly waking up, and products in a row are quicker
        taken = median([_time(team, put_back, partial(_repeat, product, times, backend)) for _ in range(_MIN_ROUNDS)])
        times = max(1, ceil(times * communicating / max(taken, 1e-7)))

    def together() -> None:
        exchange.start()
        _repeat(product, times, None)
        wait()

    compute = partial(_repeat, product, times, backend)
    return measure_overlap(team, put_back, task.case.op, communicate, f"{times} x {_COMPUTATION}", compute, together)


def _product(task: Task, info: BackendInfo, backend: Backend) -> Launch | None:
    operator = find_operator(_COMPUTATION)
    fitting = implementations(operator, info)
    if not fitting:
        return None
    params = operator.complete({"M": _SIDE, "N": _SIDE, "K": _SIDE, "dtype": "float32"})
    beside = Task(Case.of(operator.name, params, "forward"), task.backend, fitting[0].label, task.settings)
    return prepare(params, beside, operator, fitting[0], backend).launch


def _repeat(launch: Launch, times: int, backend: Backend | None) -> None:
    for _ in repeat(None, times):
        launch()
    if backend:
        backend.synchronize()


def _time(team: Team, put_back: Launch, launch: Launch) -> float:
    put_back()
    team.barrier()
    start = time.perf_counter()
    launch()
    return slowest(team, [time.perf_counter() - start])[0]
