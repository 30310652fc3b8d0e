"""Keeps ranks in step: all go on, or none does; and all decide from the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import TypeVar

from opmark.errors import TaskError
from opmark.interfaces import Exchange, Team, Timer
from opmark.measure.sampler import HostSampler, Spent, Taken
from opmark.measure.supply import warm
from opmark.schema import Sampling

T = TypeVar("T")

# Between two words with the others, which cost each rank a millisecond or so.
_CHUNK_TIME = 0.02
_MOST_IN_A_CHUNK = 50
# Samples that are looked at once more before their length is decided.
_AGAIN = 3
_MOST_TIMES_LONGER = 10


class PeerFailed(TaskError):
    """Another rank cannot go on, so this one does not either."""


def in_step(team: Team, step: Callable[[], T]) -> T:
    """Something that each rank does by itself: whoever fails tells the others, and nobody is left waiting.

    Never around communication: a rank that fails in the middle of it cannot be heard, and its parent ends the others.
    """
    failure: Exception | None = None
    try:
        found = step()
    except Exception as error:  # noqa: BLE001 - raised again below, when the others know
        failure = error
    failed = [rank for rank, (code,) in enumerate(team.gathered([float(failure is not None)])) if code]
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # it holds this frame, and this frame it: the buffers of what failed would stay for a while
    if failed:
        raise PeerFailed(f"rank {failed[0]} failed")
    return found


def of_one_form(team: Team, exchange: Exchange) -> Exchange:
    """What ranks have built, if all of them will do the same steps with it: else one would wait for ever."""
    most = exchange.most_calls or 0
    forms = team.gathered([float(exchange.finish is not None), float(len(exchange.parts)), float(most)])
    if len({(finish, parts) for finish, parts, _ in forms}) > 1:
        raise TaskError("ranks have built exchanges of different forms: some would wait for what others never do")
    limits = [int(most) for _, _, most in forms if most]
    return replace(exchange, most_calls=min(limits) if limits else None)


def slowest(team: Team, values: Sequence[float]) -> list[float]:
    """Of each value, the largest of any rank: the same on all of them."""
    return [max(column) for column in zip(*team.gathered(values), strict=True)]


class _Agreed:
    """A clock whose steps all ranks believe to be those of the coarsest of them: batches are made by that."""

    def __init__(self, timer: Timer, team: Team) -> None:
        self.name = timer.name
        self.time = timer.time
        self.overhead = timer.overhead
        (self.resolution,) = slowest(team, [timer.resolution])


class RanksSampler(HostSampler):
    """One quantity on all ranks at once: a barrier, then each times its calls, and the slowest counts.

    Every rank learns the times of all, so that all stop at the same sample without being told.
    """

    def __init__(
        self, quantity: str, timer: Timer, exchange: Exchange, team: Team, settle: Callable[[], object] | None = None
    ) -> None:
        """`settle` waits until what was put back is there."""
        super().__init__(quantity, _Agreed(timer, team), warm(exchange.start), batches=True)
        self._exchange = exchange
        self._team = team
        self._settle = settle
        self._apart = True
        """Whether a barrier stands before every sample; where each call is one, only before many of them."""
        self._rows: list[tuple[float, ...]] = []

    def by_rank(self, samples: int) -> tuple[tuple[float, ...], ...]:
        """The last so many samples of each rank: what was before them was warm-up."""
        return tuple(zip(*self._rows[-samples:], strict=True))

    def prepare(self, rule: Sampling) -> tuple[Spent, list[float]]:
        self._apart = rule.samples is None
        spent, shown = super().prepare(rule)
        if rule.samples is None:
            spent, shown = self._long_enough(rule, spent, shown)
        self._per_sample = max(shown[-1] if shown else self._once(self.calls), 1e-6)
        return spent, shown

    def _long_enough(self, rule: Sampling, spent: Spent, shown: list[float]) -> tuple[Spent, list[float]]:
        """Ranks that share cores take several times as long for a call as they can: a sample has to be long also where
        its calls are at their fastest, or it would hold one good or one bad call. And no more of them than may be."""
        if self.calls == 1 and min(shown) >= rule.sample_time:
            return spent, shown
        again = [self._once(self.calls) for _ in range(_AGAIN)]
        spent = Spent(spent.calls + _AGAIN * self.calls, spent.seconds + sum(again))
        fastest = max(min(*shown, *again) / self.calls, self._clock.resolution)
        wanted = min(_MOST_TIMES_LONGER * self.calls, max(self.calls, ceil(rule.sample_time / fastest)))
        calls = min(wanted, self._exchange.most_calls or wanted)
        if calls == self.calls:
            return spent, shown
        self.calls = calls
        self.overhead = self._clock.overhead(calls) / calls
        shown = [self._once(calls) for _ in range(2)]
        return Spent(spent.calls + 2 * calls, spent.seconds + sum(shown)), shown

    def chunk(self, rule: Sampling) -> int:
        """As many as fit between two words."""
        return max(1, min(_MOST_IN_A_CHUNK, int(_CHUNK_TIME / self._per_sample)))

    def take(self, count: int) -> Taken:
        start = time.perf_counter()
        if not self._apart:
            self._team.barrier()
        # Each rank takes off its own cost: what is gathered has to be the same to the last bit for all.
        own = [max(0.0, self._alone(self.calls) / self.calls - self.overhead) for _ in range(count)]
        every = self._team.gathered([*own, time.perf_counter() - start])
        spent = max(one[-1] for one in every)
        rows = list(zip(*(one[:-1] for one in every), strict=True))
        self._rows += rows
        return Taken([(max(row),) for row in rows], spent)

    def warm(self, launch: object) -> float:
        return self._alone(1)

    def _once(self, calls: int) -> float:
        return slowest(self._team, [self._alone(calls)])[0]

    def _alone(self, calls: int) -> float:
        """On this rank, from the barrier on."""
        if self._exchange.restore:
            self._exchange.restore()
            if self._settle:
                self._settle()
        if self._apart:
            self._team.barrier()
        return self._clock.time(self._exchange.start, calls)
