"""Keeps ranks in step: all go on, or none does; and all decide from the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from types import TracebackType

from opmark.errors import TaskError
from opmark.plugin import Exchange, ProcessGroup, Timer
from opmark.schema import Sampling
from opmark.worker.measure.cache import warm
from opmark.worker.measure.sampler import HostSampler, SampleRows, TimeBudget

_CHUNK_TIME = 0.02
"""Seconds between two synchronisations of the ranks, each of which costs a millisecond or so."""
_MAX_CHUNK = 50
_EXTRA_SAMPLES = 3
"""Samples that are taken once more before the length of a sample is decided."""
_MAX_GROWTH = 10
"""How many times longer a sample may become then."""


class PeerFailed(TaskError):
    """Another rank cannot go on, so this one does not either."""


class InStep:
    """A step that each rank does by itself, as in `with InStep(team): ...`. A rank that fails tells the others, which
    then raise PeerFailed, so that nobody is left waiting.

    Never put communication inside: a rank that fails in the middle of it cannot be heard, and its parent ends the
    others.
    """

    def __init__(self, team: ProcessGroup) -> None:
        self._team = team

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return
        codes = self._team.gathered([float(error is not None)])
        failed = [rank for rank, (code,) in enumerate(codes) if code]
        if failed and error is None:
            raise PeerFailed(f"rank {failed[0]} failed")


def require_same_form(team: ProcessGroup, exchange: Exchange) -> Exchange:
    """The exchange, if all ranks have built one of the same form. Raise TaskError otherwise: some would wait
    for ever."""
    most = exchange.most_calls or 0
    forms = team.gathered([float(exchange.finish is not None), float(len(exchange.parts)), float(most)])
    if len({(finish, parts) for finish, parts, _ in forms}) > 1:
        raise TaskError("ranks have built exchanges of different forms: some would wait for what others never do")
    limits = [int(most) for _, _, most in forms if most]
    return replace(exchange, most_calls=min(limits) if limits else None)


def max_over_ranks(team: ProcessGroup, values: Sequence[float]) -> list[float]:
    """For each value, the largest of all ranks. Every rank gets the same result."""
    return [max(column) for column in zip(*team.gathered(values), strict=True)]


class _AgreedTimer:
    """A clock with the resolution of the coarsest clock of all ranks: they make their batches by it."""

    def __init__(self, timer: Timer, team: ProcessGroup) -> None:
        self.name = timer.name
        self.time = timer.time
        self.overhead = timer.overhead
        (self.resolution,) = max_over_ranks(team, [timer.resolution])


class RankSampler(HostSampler):
    """Samples one quantity on all ranks at once: after a barrier each rank times its calls, and the slowest one counts.

    Every rank learns the times of all, so that all stop at the same sample without being told.
    """

    def __init__(
        self,
        quantity: str,
        timer: Timer,
        exchange: Exchange,
        team: ProcessGroup,
        settle: Callable[[], object] | None = None,
    ) -> None:
        """`settle` waits until restored data has arrived on the device."""
        super().__init__(quantity, _AgreedTimer(timer, team), warm(exchange.start), batches=True)
        self._exchange = exchange
        self._team = team
        self._settle = settle
        self._apart = True
        """Whether a barrier stands before every sample; where each call is one, only before many of them."""
        self._rows: list[tuple[float, ...]] = []

    def by_rank(self, samples: int) -> tuple[tuple[float, ...], ...]:
        """The last samples of each rank, without those of the warm-up before them."""
        return tuple(zip(*self._rows[-samples:], strict=True))

    def prepare(self, rule: Sampling) -> tuple[TimeBudget, list[float]]:
        self._apart = rule.samples is None
        spent, trials = super().prepare(rule)
        if rule.samples is None:
            spent, trials = self._lengthen_samples(rule, spent, trials)
        self._per_sample = max(trials[-1] if trials else self._once(self.calls), 1e-6)
        return spent, trials

    def _lengthen_samples(
        self, rule: Sampling, spent: TimeBudget, trials: list[float]
    ) -> tuple[TimeBudget, list[float]]:
        """Make samples longer where calls may be faster than they seemed, but no longer than the exchange allows.

        Ranks that share cores take several times as long for a call as they can: a sample has to be long also where
        its calls are at their fastest, or it would hold one good or one bad call.
        """
        if self.calls == 1 and min(trials) >= rule.sample_time:
            return spent, trials
        extra = [self._once(self.calls) for _ in range(_EXTRA_SAMPLES)]
        spent = TimeBudget(spent.calls + _EXTRA_SAMPLES * self.calls, spent.seconds + sum(extra))
        fastest = max(min(*trials, *extra) / self.calls, self._clock.resolution)
        target = min(_MAX_GROWTH * self.calls, max(self.calls, ceil(rule.sample_time / fastest)))
        calls = min(target, self._exchange.most_calls or target)
        if calls == self.calls:
            return spent, trials
        self.calls = calls
        self.overhead = self._clock.overhead(calls) / calls
        trials = [self._once(calls) for _ in range(2)]
        return TimeBudget(spent.calls + 2 * calls, spent.seconds + sum(trials)), trials

    def chunk(self, rule: Sampling) -> int:
        """Number of samples to take between two synchronisations of the ranks."""
        return max(1, min(_MAX_CHUNK, int(_CHUNK_TIME / self._per_sample)))

    def take(self, count: int) -> SampleRows:
        start = time.perf_counter()
        if not self._apart:
            self._team.barrier()
        # Each rank subtracts its own cost: the gathered values have to be the same to the last bit on all ranks.
        own = [max(0.0, self._time_own_calls(self.calls) / self.calls - self.overhead) for _ in range(count)]
        every = self._team.gathered([*own, time.perf_counter() - start])
        spent = max(one[-1] for one in every)
        rows = list(zip(*(one[:-1] for one in every), strict=True))
        self._rows += rows
        return SampleRows([(max(row),) for row in rows], spent)

    def warm(self, launch: object) -> float:
        return self._time_own_calls(1)

    def _once(self, calls: int) -> float:
        return max_over_ranks(self._team, [self._time_own_calls(calls)])[0]

    def _time_own_calls(self, calls: int) -> float:
        """Seconds that the calls take on this rank, from the barrier on."""
        if self._exchange.restore:
            self._exchange.restore()
            if self._settle:
                self._settle()
        if self._apart:
            self._team.barrier()
        return self._clock.time(self._exchange.start, calls)
