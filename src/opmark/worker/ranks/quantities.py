"""Measures the quantities of a task on all ranks, and how well communication overlaps with computation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from math import ceil
from statistics import median

from msgspec.structs import replace

from opmark.hardware.host import affinity
from opmark.plugin import Backend, BackendInfo, Exchange, Launch, ProcessGroup
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.schema import QUANTITIES, Case, Caution, Measurement, Overlap, Sampling, Task
from opmark.schema.measurement import PREEMPTED
from opmark.units import count_noun, seconds
from opmark.worker.measure.clock import host_timers
from opmark.worker.measure.engine import measure
from opmark.worker.measure.instruments import Instruments
from opmark.worker.preparation import prepare
from opmark.worker.quantities import quantities_for
from opmark.worker.ranks.sync import RankSampler, max_over_ranks

_COMPUTATION = "matmul"
"""Runs beside communication: products that fit into a cache, so that both do not fight for the memory."""
_SIDE = 128
_BUDGET = 0.3
_MIN_ROUNDS = 5
_MAX_ROUNDS = 50
_TRIALS = 10
_CORRECTIONS = 2

SAMPLE_TIME = 1e-2
"""Seconds that a sample lasts at least. Ranks leave a barrier one after the other, and the first call after it finds
some of them asleep: a sample has to be long against that."""
_THREADS_PER_RANK = 2
"""One thread that calls, and one of the engine that moves data."""
_BY_HOST = ("latency", "host_time", "throughput")


class RankMeasurement:
    """Measures one exchange on all ranks of a group."""

    def __init__(
        self,
        task: Task,
        info: BackendInfo,
        backend: Backend,
        instruments: Instruments,
        exchange: Exchange,
        team: ProcessGroup,
        neighbours: int,
    ) -> None:
        """`neighbours`: ranks that share the cores of this host."""
        self.notes: list[str] = []
        self._task = task
        self._info = info
        self._backend = backend
        self._instruments = instruments
        self._exchange = exchange
        self._team = team
        self._neighbours = neighbours
        self._wait = _wait_function(exchange, backend)
        self._timers = host_timers(self._wait)

    def run(self) -> tuple[Measurement, ...]:
        return tuple(self._measure(quantity) for quantity in self._choose_quantities())

    def overlap(self) -> Overlap | None:
        """How well an asynchronous exchange overlaps with computation, or the two parts of an operator with each
        other."""
        exchange = self._exchange
        if exchange.parts:
            done = self._backend.synchronize if self._backend.asynchronous else None
            (first, alone), (second, other) = (
                (name, partial(_both, part, done)) for name, part in exchange.parts.items()
            )
            together = partial(_both, exchange.start, self._wait)
            return measure_overlap(self._team, self._put_back, first, alone, second, other, together)
        if exchange.finish is None:
            return None
        return overlap_with_computation(
            self._task, self._info, self._backend, self._team, exchange, self._wait or exchange.finish, self._put_back
        )

    def _put_back(self) -> None:
        if self._exchange.restore:
            self._exchange.restore()
            self._backend.synchronize()

    def _choose_quantities(self) -> list[str]:
        settings = self._task.settings
        if "cold" in settings.caches:
            self.notes.append("cold: what ranks exchange is measured warm, one buffer again and again")
        if self._backend.asynchronous:  # calls of a device queue up; on a host several at once would share a buffer
            usual = tuple(name for name in QUANTITIES if name in _BY_HOST)
        else:
            usual = ("latency", "host_time") if self._exchange.finish else ("latency",)
        requested = quantities_for(settings, usual=usual)
        found = [quantity for quantity in requested if quantity in self._timers]
        for quantity in requested:
            if quantity not in found:
                self.notes.append(f"{quantity}: several ranks are timed by the host: {', '.join(self._timers)}")
        return found or ["latency"]

    def _measure(self, quantity: str) -> Measurement:
        settle = self._backend.synchronize if self._backend.asynchronous else None
        sampler = RankSampler(quantity, self._timers[quantity], self._exchange, self._team, settle)
        rule = self._task.settings.sampling
        rule = replace(rule, sample_time=max(rule.sample_time, SAMPLE_TIME))
        (found,) = measure(sampler, rule, self._instruments.watch)
        cautions = (*self._rank_cautions(found.cautions), *self._short_samples(found, rule))
        return replace(found, by_rank=sampler.by_rank(len(found.samples)), cautions=cautions)

    def _rank_cautions(self, cautions: Sequence[Caution]) -> Iterator[Caution]:
        """The cautions without `preempted`, or with `crowded` in its place.

        Ranks that wait for each other hand their cores over, mostly between samples: that says nothing about the
        scheduler. Where there are fewer cores than threads that move data, it is what was asked for, and said.
        """
        cores = len(affinity())
        for caution in cautions:
            if caution.code != PREEMPTED:
                yield caution
            elif self._neighbours * _THREADS_PER_RANK > cores:
                yield Caution(
                    "crowded",
                    f"{count_noun(self._neighbours, 'rank')}, each with a thread that moves data beside one that "
                    f"calls, share {count_noun(cores, 'core')} of this host: times are those of such a crowd",
                    "use fewer --ranks, or a host with more cores",
                )

    def _short_samples(self, found: Measurement, rule: Sampling) -> Iterator[Caution]:
        """A caution where numbers would not stay finite for as many calls as a sample should have."""
        most, lasted = self._exchange.most_calls, min(found.samples) * found.calls
        if rule.samples is None and most is not None and found.calls >= most and lasted < rule.sample_time / 2:
            yield Caution(
                "short-samples",
                f"a sample is {count_noun(found.calls, 'call')} after a barrier, {seconds(lasted)} in all: after more "
                "of them, in place, numbers would not be finite in this element type",
                "-p in_place=false, or an element type with a larger range, is measured over more calls",
            )


def _wait_function(exchange: Exchange, backend: Backend) -> Callable[[], object] | None:
    """The function that waits until the work is done, if there is anything to wait for."""
    if not backend.asynchronous:
        return exchange.finish
    if exchange.finish is None:
        return backend.synchronize
    return partial(_both, exchange.finish, backend.synchronize)


def _both(first: Launch, second: Launch | None) -> None:
    first()
    if second:
        second()


def measure_overlap(
    team: ProcessGroup,
    put_back: Launch,
    first: str,
    first_alone: Launch,
    second: str,
    second_alone: Launch,
    together: Launch,
) -> Overlap:
    """Time two launches alone and together, in turns, on all ranks.

    Each launch waits until its work is done; `put_back` restores the data before the next one.
    """
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
    team: ProcessGroup,
    exchange: Exchange,
    wait: Launch,
    put_back: Launch,
) -> Overlap | None:
    """The overlap with matrix products that take about as long; None where this framework has no such product."""
    product = _prepare_product(task, info, backend)
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


def _prepare_product(task: Task, info: BackendInfo, backend: Backend) -> Launch | None:
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


def _time(team: ProcessGroup, put_back: Launch, launch: Launch) -> float:
    put_back()
    team.barrier()
    start = time.perf_counter()
    launch()
    return max_over_ranks(team, [time.perf_counter() - start])[0]
