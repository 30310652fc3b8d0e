"""Ranks stay in step, whatever each of them measures or meets."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.errors import OutOfMemory, TaskError
from opmark.plugin import Exchange
from opmark.schema import EFFORTS, Sampling
from opmark.worker.measure.engine import measure
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.ranks.sync import InStep, PeerFailed, RankSampler, max_over_ranks, require_same_form

OnRanks = Callable[[int, Callable[[Any], Any]], list[Any]]


class FakeTimer:
    """Each rank measures something else, and nobody sleeps."""

    name = "fake"

    def __init__(self, rank: int, spread: float = 0.5) -> None:
        self.resolution = 1e-9 * (1 + 50 * rank)
        self._random = random.Random(rank)
        self._rank = rank
        self._spread = spread
        self.calls: list[int] = []

    def time(self, launch: Any, calls: int) -> float:
        launch()
        self.calls.append(calls)
        return calls * 1e-3 * (1 + self._rank / 10 + self._spread * self._random.random())

    def overhead(self, calls: int) -> float:
        """Each process finds another cost of its own."""
        return (1 + self._rank) * 1e-6 * calls


def test_a_step_that_works_everywhere_gives_each_rank_its_own_result(on_ranks: OnRanks) -> None:
    def work(team: Any) -> int:
        with InStep(team):
            found: int = team.rank * 10
        return found

    assert on_ranks(3, work) == [0, 10, 20]


def test_a_rank_that_fails_keeps_its_error_and_the_others_stop_without_waiting(on_ranks: OnRanks) -> None:
    def work(team: Any) -> None:
        with InStep(team):
            if team.rank == 1:
                raise OutOfMemory("too much")

    first, second, third = on_ranks(3, work)
    assert isinstance(second, OutOfMemory)
    assert isinstance(first, PeerFailed)
    assert isinstance(third, PeerFailed)
    assert "rank 1" in first.message


def test_what_failed_is_not_held_by_the_step_that_failed(on_ranks: OnRanks) -> None:
    class Buffer:
        pass

    held: list[weakref.ref[Buffer]] = []

    def work(team: Any) -> None:
        def step() -> None:
            buffer = Buffer()
            held.append(weakref.ref(buffer))
            raise OutOfMemory("too much")

        with suppress(OutOfMemory), InStep(team):
            step()

    gc.disable()
    try:
        on_ranks(2, work)
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()


def test_exchanges_of_different_forms_are_refused_by_all_ranks(on_ranks: OnRanks) -> None:
    def nothing() -> None:
        pass

    found = on_ranks(2, lambda team: require_same_form(team, Exchange(nothing, finish=nothing if team.rank else None)))
    assert [type(one) for one in found] == [TaskError, TaskError]
    alike = on_ranks(2, lambda team: require_same_form(team, Exchange(nothing, most_calls=5 + team.rank)).most_calls)
    assert alike == [5, 5]


def test_the_slowest_is_the_same_for_all(on_ranks: OnRanks) -> None:
    found = on_ranks(3, lambda team: max_over_ranks(team, [float(team.rank), float(-team.rank)]))
    assert found == [[2.0, 0.0]] * 3


@pytest.mark.parametrize("effort", sorted(EFFORTS))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_ranks_that_measure_different_times_make_the_same_calls_and_stop_together(
    on_ranks: OnRanks, effort: str, size: int
) -> None:
    def work(team: Any) -> tuple[list[int], list[float], Any]:
        timer = FakeTimer(team.rank)
        sampler = RankSampler("latency", timer, Exchange(lambda: None), team)
        rule = EFFORTS[effort]
        (found,) = measure(sampler, rule, ConditionsMonitor(None))
        return timer.calls, found.samples, sampler.by_rank(len(found.samples))

    calls, samples, by_rank = zip(*on_ranks(size, work), strict=True)
    assert all(one == calls[0] for one in calls)
    assert all(one == samples[0] for one in samples)
    assert all(one == by_rank[0] for one in by_rank)
    assert len(by_rank[0]) == size
    assert samples[0] == [max(row) for row in zip(*by_rank[0], strict=True)]


def _few(samples: int) -> Sampling:
    return replace(EFFORTS["quick"], samples=samples, warmup=2)


def test_a_fixed_number_of_samples_is_that_many_single_calls(on_ranks: OnRanks) -> None:
    def work(team: Any) -> tuple[int, list[int]]:
        timer = FakeTimer(team.rank)
        (found,) = measure(
            RankSampler("latency", timer, Exchange(lambda: None), team), _few(7), ConditionsMonitor(None)
        )
        return len(found.samples), timer.calls

    for samples, calls in on_ranks(2, work):
        assert samples == 7
        assert set(calls) == {1}


def test_what_calls_change_is_put_back_before_every_sample_and_never_called_too_often(on_ranks: OnRanks) -> None:
    def work(team: Any) -> tuple[int, int, int]:
        timer, restored = FakeTimer(team.rank), [0]

        def restore() -> None:
            restored[0] += 1

        exchange = Exchange(lambda: None, restore=restore, most_calls=2)
        rule = replace(EFFORTS["quick"], sample_time=0.05)
        (found,) = measure(RankSampler("latency", timer, exchange, team), rule, ConditionsMonitor(None))
        return found.calls, restored[0], len(timer.calls)

    for calls, restored, timed in on_ranks(2, work):
        assert calls == 2
        assert restored == timed
