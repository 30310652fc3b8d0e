"""Which quantities of a task are measured on all ranks, and how; what cannot be had is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from opmark.hardware.detect import affinity
from opmark.interfaces import Backend, BackendInfo, Exchange, Team
from opmark.measure.clock import host_timers
from opmark.measure.engine import measure
from opmark.runner.gear import Gear
from opmark.runner.ranks.agree import RanksSampler
from opmark.runner.ranks.overlap import beside_computation, measured_overlap
from opmark.schema import MODES, QUANTITIES, Caution, Launch, Measurement, Overlap, Sampling, Task
from opmark.schema.measurement import PREEMPTED
from opmark.units import counted, seconds

# Ranks leave a barrier one after the other, and the first call after it finds some of them asleep: a sample has to be
# long against that.
SAMPLE_TIME = 1e-2
# One that calls, and one of the engine that moves data.
_THREADS_OF_A_RANK = 2
_BY_HOST = ("latency", "host_time", "throughput")


class RanksMeasuring:
    """One exchange, on all ranks of a world."""

    def __init__(
        self,
        task: Task,
        info: BackendInfo,
        backend: Backend,
        gear: Gear,
        exchange: Exchange,
        team: Team,
        neighbours: int,
    ) -> None:
        """`neighbours`: ranks that share the cores of this host."""
        self.notes: list[str] = []
        self._task = task
        self._info = info
        self._backend = backend
        self._gear = gear
        self._exchange = exchange
        self._team = team
        self._neighbours = neighbours
        self._wait = _waiting(exchange, backend)
        self._timers = host_timers(self._wait)

    def run(self) -> tuple[Measurement, ...]:
        return tuple(self._measured(quantity) for quantity in self._wanted())

    def overlap(self) -> Overlap | None:
        """Of what is begun and waited for, with computation; of an operator that does two things, with each other."""
        exchange = self._exchange
        if exchange.parts:
            done = self._backend.synchronize if self._backend.asynchronous else None
            (first, alone), (second, other) = (
                (name, partial(_both, part, done)) for name, part in exchange.parts.items()
            )
            together = partial(_both, exchange.start, self._wait)
            return measured_overlap(self._team, self._put_back, first, alone, second, other, together)
        if exchange.finish is None:
            return None
        return beside_computation(
            self._task, self._info, self._backend, self._team, exchange, self._wait or exchange.finish, self._put_back
        )

    def _put_back(self) -> None:
        if self._exchange.restore:
            self._exchange.restore()
            self._backend.synchronize()

    def _wanted(self) -> list[str]:
        settings = self._task.settings
        if "cold" in settings.caches:
            self.notes.append("cold: what ranks exchange is measured warm, one buffer again and again")
        if settings.mode:
            asked: tuple[str, ...] = (MODES[settings.mode],)
        else:
            asked = settings.quantities or self._usual()
        found = [quantity for quantity in asked if quantity in self._timers]
        for quantity in asked:
            if quantity not in found:
                self.notes.append(f"{quantity}: several ranks are timed by the host: {', '.join(self._timers)}")
        return found or ["latency"]

    def _usual(self) -> tuple[str, ...]:
        """Calls of a device queue up one behind the other; on a host several at once would share a buffer."""
        if self._backend.asynchronous:
            return tuple(name for name in QUANTITIES if name in _BY_HOST)
        return ("latency", "host_time") if self._exchange.finish else ("latency",)

    def _measured(self, quantity: str) -> Measurement:
        settle = self._backend.synchronize if self._backend.asynchronous else None
        sampler = RanksSampler(quantity, self._timers[quantity], self._exchange, self._team, settle)
        rule = self._rule()
        (found,) = measure(sampler, rule, self._gear.watch)
        cautions = (*self._of_ranks(found.cautions), *self._short(found, rule))
        return replace(found, by_rank=sampler.by_rank(len(found.samples)), cautions=cautions)

    def _of_ranks(self, cautions: Sequence[Caution]) -> Iterator[Caution]:
        """Ranks that wait for each other hand their cores over, mostly between samples: that says nothing about the
        scheduler. Where there are fewer cores than threads that move data, it is what was asked for, and said."""
        cores = len(affinity())
        for caution in cautions:
            if caution.code != PREEMPTED:
                yield caution
            elif self._neighbours * _THREADS_OF_A_RANK > cores:
                yield Caution(
                    "crowded",
                    f"{counted(self._neighbours, 'rank')}, each with a thread that moves data beside one that calls, "
                    f"share {counted(cores, 'core')} of this host: times are those of such a crowd",
                    "use fewer --ranks, or a host with more cores",
                )

    def _short(self, found: Measurement, rule: Sampling) -> Iterator[Caution]:
        """Where numbers would not stay finite for as many calls as a sample should have."""
        most, lasted = self._exchange.most_calls, min(found.samples) * found.calls
        if rule.samples is None and most is not None and found.calls >= most and lasted < rule.sample_time / 2:
            yield Caution(
                "short-samples",
                f"a sample is {counted(found.calls, 'call')} after a barrier, {seconds(lasted)} in all: after more of "
                "them, in place, numbers would not be finite in this element type",
                "-p in_place=false, or an element type with a larger range, is measured over more calls",
            )

    def _rule(self) -> Sampling:
        rule = self._task.settings.sampling
        return replace(rule, sample_time=max(rule.sample_time, SAMPLE_TIME))


def _waiting(exchange: Exchange, backend: Backend) -> Callable[[], object] | None:
    """What has to be called until the work is done, if anything."""
    if not backend.asynchronous:
        return exchange.finish
    if exchange.finish is None:
        return backend.synchronize
    return partial(_both, exchange.finish, backend.synchronize)


def _both(first: Launch, second: Launch | None) -> None:
    first()
    if second:
        second()
