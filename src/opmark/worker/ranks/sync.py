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


def of_one_form(team: ProcessGroup, exchange: Exchange) -> Exchange:
    """The exchange, if all ranks have built one of the same form: otherwise one of them would wait for ever."""
    most = exchange.most_calls or 0
    forms = team.gathered([float(exchange.finish is not None), float(len(exchange.parts)), float(most)])
    if len({(finish, parts) for finish, parts, _ in forms}) > 1:
        raise TaskError("ranks have built exchanges of different forms: some would wait for what others never do")
    limits = [int(most) for _, _, most in forms if most]
    return replace(exchange, most_calls=min(limits) if limits else None)


def slowest(team: ProcessGroup, values: Sequence[float]) -> list[float]:
    """For each value the largest of any rank, which is the same on all of them."""
    return [max(column) for column in zip(*team.gathered(values), strict=True)]


class _AgreedTimer:
    """A clock with the resolution of the coarsest clock of all ranks: they make their batches by it."""

    def __init__(self, timer: Timer, team: ProcessGroup) -> None:
        self.name = timer.name
        self.time = timer.time
        self.overhead = timer.overhead
        (self.resolution,) = slowest(team, [timer.resolution])


class RankSampler(HostSampler):
    """One quantity on all ranks at once: a barrier, then each times its calls, and the slowest counts.

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
        """`settle` waits until what was put back is there."""
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
        spent, shown = super().prepare(rule)
        if rule.samples is None:
            spent, shown = self._long_enough(rule, spent, shown)
        self._per_sample = max(shown[-1] if shown else self._once(self.calls), 1e-6)
        return spent, shown

    def _long_enough(self, rule: Sampling, spent: TimeBudget, shown: list[float]) -> tuple[TimeBudget, list[float]]:
        """Make samples longer where calls may be faster than they seemed, but no longer than the exchange allows.

        Ranks that share cores take several times as long for a call as they can: a sample has to be long also where
        its calls are at their fastest, or it would hold one good or one bad call.
        """
        if self.calls == 1 and min(shown) >= rule.sample_time:
            return spent, shown
        again = [self._once(self.calls) for _ in range(_EXTRA_SAMPLES)]
        spent = TimeBudget(spent.calls + _EXTRA_SAMPLES * self.calls, spent.seconds + sum(again))
        fastest = max(min(*shown, *again) / self.calls, self._clock.resolution)
        wanted = min(_MAX_GROWTH * self.calls, max(self.calls, ceil(rule.sample_time / fastest)))
        calls = min(wanted, self._exchange.most_calls or wanted)
        if calls == self.calls:
            return spent, shown
        self.calls = calls
        self.overhead = self._clock.overhead(calls) / calls
        shown = [self._once(calls) for _ in range(2)]
        return TimeBudget(spent.calls + 2 * calls, spent.seconds + sum(shown)), shown

    def chunk(self, rule: Sampling) -> int:
        """Number of samples to take between two synchronisations of the ranks."""
        return max(1, min(_MAX_CHUNK, int(_CHUNK_TIME / self._per_sample)))

    def take(self, count: int) -> SampleRows:
        start = time.perf_counter()
        if not self._apart:
            self._team.barrier()
        # Each rank takes off its own cost: what is gathered has to be the same to the last bit for all.
        own = [max(0.0, self._alone(self.calls) / self.calls - self.overhead) for _ in range(count)]
        every = self._team.gathered([*own, time.perf_counter() - start])
        spent = max(one[-1] for one in every)
        rows = list(zip(*(one[:-1] for one in every), strict=True))
        self._rows += rows
        return SampleRows([(max(row),) for row in rows], spent)

    def warm(self, launch: object) -> float:
        return self._alone(1)

    def _once(self, calls: int) -> float:
        return slowest(self._team, [self._alone(calls)])[0]

    def _alone(self, calls: int) -> float:
        """Seconds that the calls take on this rank, from the barrier on."""
        if self._exchange.restore:
            self._exchange.restore()
            if self._settle:
                self._settle()
        if self._apart:
            self._team.barrier()
        return self._clock.time(self._exchange.start, calls)
