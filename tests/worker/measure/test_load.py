"""Clients of a load run at the same time, requests are stamped when they are due, and nothing hangs for ever."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean

import pytest
from msgspec.structs import replace

from opmark.errors import RequestTimeout
from opmark.plugin import Launch
from opmark.schema import EFFORTS, Conditions, Measurement
from opmark.schema.load import Load, LoadFacts
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.load import arrivals, find_hanging_clients, measure_load
from opmark.worker.measure.stability import load_cautions

RULE = replace(EFFORTS["quick"], warmup=1)


def measure(launches: Sequence[Launch], load: Load, seed: str = "0 0") -> Measurement:
    return measure_load(launches, load, RULE, seed, ConditionsMonitor(None))


def sleeper(seconds: float) -> Callable[[], None]:
    """A model that takes this long and leaves the processor to others."""
    return lambda: time.sleep(seconds)


class Meeting:
    """Answers only when all clients are inside, which shows that their requests run at the same time."""

    def __init__(self, clients: int) -> None:
        self.barrier = threading.Barrier(clients, timeout=20)
        self.threads: set[int] = set()

    def __call__(self) -> None:
        self.threads.add(threading.get_ident())
        self.barrier.wait()


def test_clients_really_run_at_the_same_time() -> None:
    together = Meeting(3)
    found = measure([together] * 3, Load(3, requests=5))
    assert len(found.samples) == 15
    assert len(together.threads) == 3


def test_each_client_calls_its_own_launch_from_its_own_thread() -> None:
    calls: list[tuple[int, int]] = []

    def launch_of(client: int) -> Launch:
        return lambda: calls.append((client, threading.get_ident()))

    measure([launch_of(0), launch_of(1)], Load(2, requests=4))
    assert [client for client, _ in calls].count(0) == [client for client, _ in calls].count(1) == 4 + 1  # one warms up
    assert len(set(calls)) == 2


def test_a_closed_loop_has_one_request_per_client_in_flight() -> None:
    found = measure([sleeper(0.005)] * 2, Load(2, requests=20))
    assert found.load is not None
    assert found.load.in_flight == pytest.approx(2, rel=0.2)
    assert found.load.in_flight == pytest.approx(sum(found.samples) / found.load.window, rel=0.15)  # Little's law
    assert found.quantity == "request_latency"
    assert found.timer == "2 clients"
    assert found.warmup_calls == 2
    assert not found.load.late
    assert list(found.load.due) == sorted(found.load.due)
    assert found.load.due[0] == 0


def test_waiting_for_a_free_client_counts_in_an_open_loop() -> None:
    """One client that takes 10 ms, asked every 5 ms: the n-th request waits about 5 n ms."""
    found = measure([sleeper(0.01)], Load(1, 20, "constant", 200.0))
    assert found.samples[-1] > 0.09
    assert found.samples[-1] > 4 * found.samples[0]
    assert found.load is not None
    assert max(found.load.late) < found.samples[-1] / 2  # no client was free: that is not the generator's delay
    assert found.load.in_flight == pytest.approx(sum(found.samples) / found.load.window, rel=0.15)
    assert "overloaded" in {caution.code for caution in found.cautions}


def test_an_open_loop_keeps_its_schedule_whatever_the_answers_are() -> None:
    load = Load(2, 15, "poisson", 300.0)
    found = measure([sleeper(0.002)] * 2, load)
    assert found.load is not None
    assert found.load.due == pytest.approx(arrivals(load, "0 0"))
    assert len(found.load.late) == 30
    assert found.timer == "2 clients, poisson 300/s"


def test_arrivals_are_even_or_random_and_a_seed_repeats_them() -> None:
    even = arrivals(Load(2, 50, "constant", 100.0), "a")
    assert {round(b - a, 9) for a, b in pairwise(even)} == {0.01}
    load = Load(4, 5000, "poisson", 100.0)
    drawn = arrivals(load, "a")
    assert drawn == arrivals(load, "a") != arrivals(load, "b")
    gaps = [b - a for a, b in pairwise(drawn)]
    assert mean(gaps) == pytest.approx(0.01, rel=0.05)
    assert mean(gap > 0.01 for gap in gaps) == pytest.approx(0.368, abs=0.02)  # 1/e, as gaps of a Poisson process
    assert len(even) == 100
    assert len(drawn) == 20_000
    assert even[0] == drawn[0] == 0


def test_a_request_that_hangs_ends_the_load_and_is_named() -> None:
    released, calls = threading.Event(), []

    def hang() -> None:
        calls.append(None)
        if len(calls) == 4:
            released.wait(30)

    with pytest.raises(RequestTimeout, match=r"client 2 has no answer to request 3 of 5 after 100 ms; \d+ of 10 req"):
        measure([lambda: None, hang], Load(2, 5, request_timeout=0.1))
    assert [thread.name for thread in find_hanging_clients()] == ["client 2"]
    released.set()
    for thread in find_hanging_clients():
        thread.join(10)
    assert not find_hanging_clients()


def test_a_request_that_hangs_while_it_warms_up_is_named_too() -> None:
    released = threading.Event()
    with pytest.raises(RequestTimeout, match="client 1 has no answer to a request of its warm-up"):
        measure([lambda: released.wait(30)], Load(1, 5, request_timeout=0.1))
    released.set()
    for thread in find_hanging_clients():
        thread.join(10)


@pytest.mark.parametrize("load", [Load(2, 50), Load(2, 50, "constant", 500.0)])
def test_what_a_client_raises_ends_the_load_for_all(load: Load) -> None:
    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise ValueError("no such row")

    with pytest.raises(ValueError, match="no such row") as caught:
        measure([sleeper(0.001), fail], load)
    assert caught.value.request.startswith("client 2, request ")  # type: ignore[attr-defined]
    assert not find_hanging_clients()


def test_the_turns_of_threads_are_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []
    measure([lambda: seen.append(sys.getswitchinterval())], Load(1, 2))
    assert sys.getswitchinterval() == before > seen[-1]


# Cautions.

QUIET = Conditions()


def facts(load: Load, samples: Sequence[float], **changed: object) -> LoadFacts:
    """Facts of a load without anything that is doubtful."""
    due = [0.01 * i for i in range(len(samples))]
    window = max(at + one for at, one in zip(due, samples, strict=True))
    good = LoadFacts(load, window, sum(samples) / window, tuple(due), tuple([0.0] * len(samples)), 1e-6)
    return replace(good, **changed)


def codes(found: LoadFacts, samples: Sequence[float]) -> list[str]:
    return [caution.code for caution in load_cautions(found, samples, QUIET)]


def test_a_good_load_has_no_caution() -> None:
    samples = [0.01] * 100
    assert codes(facts(Load(1, 100), samples), samples) == []
    assert codes(facts(Load(2, 50, "constant", 100.0), samples), samples) == []


def test_a_counter_that_disagrees_with_littles_law_is_named() -> None:
    samples = [0.01] * 100
    good = facts(Load(2, 50, "constant", 100.0), samples)
    assert codes(replace(good, in_flight=1.04 * good.in_flight), samples) == []
    assert codes(replace(good, in_flight=1.06 * good.in_flight), samples) == ["little"]
    assert codes(replace(good, in_flight=0.94 * good.in_flight), samples) == ["little"]


def test_clients_of_a_closed_loop_that_stand_idle_are_named() -> None:
    samples = [0.0085] * 100
    assert codes(facts(Load(1, 100), samples), samples) == ["idle-clients"]


def test_a_schedule_that_is_not_kept_is_named() -> None:
    samples, load = [0.01] * 200, Load(2, 100, "poisson", 100.0)
    late = [0.0] * 196 + [2e-3] * 4
    assert codes(facts(load, samples, late=tuple(late)), samples) == ["late"]
    assert codes(facts(load, samples, late=tuple([0.9e-3] * 200)), samples) == []


def test_a_queue_that_grows_is_named() -> None:
    load = Load(2, 50, "poisson", 100.0)
    growing = [0.01 + 0.002 * i for i in range(100)]
    assert codes(facts(load, growing), growing) == ["overloaded"]


def test_requests_that_are_mostly_the_generator_are_named() -> None:
    samples = [10e-6] * 100
    assert "below-overhead" in codes(facts(Load(1, 100), samples), samples)
