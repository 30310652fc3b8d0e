"""Puts a loaded model under load: clients that send requests at the same time, and the latency of each request.

A client is a thread with inputs of its own. In a closed loop it sends its next request when it has the answer to the
last. In an open loop requests are due at times that were drawn before, and a request is stamped with the time at which
it was due: if no client is free then, its waiting counts.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise, repeat
from statistics import median
from typing import NamedTuple

from opmark.errors import RequestTimeout
from opmark.plugin import Launch
from opmark.schema import Measurement, Sampling
from opmark.schema.codec import gc_disabled
from opmark.schema.load import Load, LoadFacts
from opmark.schema.measurement import REQUEST_LATENCY
from opmark.units import count_noun, seconds
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.stability import load_cautions

_PR_SET_TIMERSLACK = 29
_TIMER_SLACK = 1
"""Nanoseconds by which Linux may let a sleep of a client last longer; it is 50 µs for other threads."""
_LONGEST_SLEEP = 0.05
"""Seconds after which a client that waits looks whether the load was ended, and the generator whether a client
hangs."""
_LEAD = 0.005
"""Seconds between the start of a load and its first request, in which all clients wake up."""
_SWITCH_INTERVAL = 0.5e-3
"""Seconds for which a thread may keep Python's lock while another wants it. The usual 5 ms would make a request that
is due wait for another client's Python code."""
_EMPTY_REQUESTS = 200
_FEWEST_WARMUP_CALLS = 2
_WARMING_UP = -1

_now = time.perf_counter


def measure_load(
    launches: Sequence[Launch], load: Load, rule: Sampling, seed: str, watch: ConditionsMonitor
) -> Measurement:
    """Measure the latency of every request of a load. There is one launch per client. `rule` says how each client
    warms up; `seed` chooses the times of Poisson arrivals.

    Raise RequestTimeout where a request has no answer in time, and what a client raised where one did. Threads that
    hang are left behind (`find_hanging_clients`).
    """
    overhead = _cost_of_a_request()
    generator = _LoadGenerator(launches, load, rule, seed)
    with gc_disabled(), _short_turns():
        generator.warm_up()
        watch.begin()
        generator.run()
    conditions = watch.end(load.total)
    answers = sorted(answer for client in generator.clients for answer in client.answers)
    start = answers[0].due
    window = max(answer.ended for answer in answers) - start
    samples = [answer.ended - answer.due for answer in answers]
    late = [max(0.0, answer.begun - max(answer.due, answer.free)) for answer in answers]
    facts = LoadFacts(
        load=load,
        window=window,
        in_flight=generator.in_flight.area / window,
        due=tuple(answer.due - start for answer in answers),
        late=() if load.arrival == "closed" else tuple(late),
        overhead=overhead,
    )
    return Measurement(
        quantity=REQUEST_LATENCY,
        cache="warm",
        timer=load.text,
        samples=samples,
        calls=1,
        overhead=0.0,
        warmup_calls=sum(client.warmup_calls for client in generator.clients),
        warmup_time=max(client.warmup_time for client in generator.clients),
        stop="count",
        cautions=load_cautions(facts, samples, conditions),
        conditions=conditions,
        load=facts,
    )


def find_hanging_clients() -> list[threading.Thread]:
    """Return the threads of clients that still wait for an answer, although their load has ended."""
    return [thread for thread in threading.enumerate() if isinstance(thread, _Client) and thread.is_alive()]


def arrivals(load: Load, seed: str) -> list[float]:
    """Return when the requests of an open loop are due, in seconds after the first one."""
    if load.arrival == "constant":
        return [request / load.rate for request in range(load.total)]
    drawn = random.Random(f"arrivals {seed}")
    gaps = (drawn.expovariate(load.rate) for _ in repeat(None, load.total - 1))
    return list(accumulate(gaps, initial=0.0))


class _Answer(NamedTuple):
    """The times of one request, by the monotonic clock. They are sorted by the first."""

    due: float
    begun: float
    ended: float
    free: float
    """When the client that took the request had become free."""


class _InFlight:
    """Counts the requests in flight and integrates their number over time, by clock readings of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._last = 0.0
        self.area = 0.0

    def enter(self, waited: float = 0.0) -> None:
        """Count a request that begins now, and for which nobody was free for so many seconds."""
        with self._lock:
            self._advance()
            self.area += waited
            self._count += 1

    def leave(self) -> None:
        with self._lock:
            self._advance()
            self._count -= 1

    def _advance(self) -> None:
        now = _now()
        self.area += self._count * (now - self._last)
        self._last = now


def _wait_until(due: float, ended: threading.Event) -> None:
    """Wait for a moment, or until the load is ended. It only sleeps: looking at the clock all the time would keep
    Python's lock from other clients, and on a busy machine it uses up the time that the scheduler gives to the
    request."""
    while (left := due - _now()) > 0 and not ended.is_set():
        time.sleep(min(left, _LONGEST_SLEEP))


def _sleep_exactly() -> None:
    """Let sleeps of this thread end when they should."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK)


class _Queue:
    """Hands out the requests of an open loop. One client at a time waits for the next request to be due: if all of them
    did, they would take the processor from the model."""

    def __init__(self, due: Sequence[float]) -> None:
        self._due = due
        self._turn = threading.Lock()
        self._next = 0
        self.start = 0.0

    def take(self, ended: threading.Event) -> tuple[int, float] | None:
        """Wait for the next request, and return its number and when it was due; None if there is none left."""
        with self._turn:
            request = self._next
            if request >= len(self._due):
                return None
            self._next += 1
            due = self.start + self._due[request]
            _wait_until(due, ended)
        return request, due


class _Client(threading.Thread):
    def __init__(self, number: int, launch: Launch, load: Load, rule: Sampling, generator: _LoadGenerator) -> None:
        super().__init__(name=f"client {number}", daemon=True)  # a client that hangs does not keep the process alive
        self._launch = launch
        self._load = load
        self._rule = rule
        self._generator = generator
        self.warm = threading.Event()
        self.warmup_calls = 0
        self.warmup_time = 0.0
        self.answers: list[_Answer] = []
        self.request = _WARMING_UP
        self.waiting_since: float | None = None
        """When the request that is in work began; None between requests."""
        self.error: Exception | None = None

    @property
    def doing(self) -> str:
        """Which request it is at, in words."""
        if self.request == _WARMING_UP:
            return "a request of its warm-up"
        of = self._load.requests if self._load.arrival == "closed" else self._load.total
        return f"request {self.request + 1} of {of}"

    def run(self) -> None:
        try:
            _sleep_exactly()
            self._warm_up()
            self.warm.set()
            self._generator.go.wait()
            if self._load.arrival == "closed":
                self._send_in_turn()
            else:
                self._send_when_due()
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; the generator raises it again
            self.error = error
            self._generator.ended.set()
        finally:
            self.waiting_since = None
            self.warm.set()

    def _warm_up(self) -> None:
        start = _now()
        while not self._is_warm(_now() - start):
            self.waiting_since = _now()
            self._launch()
            self.warmup_calls += 1
        self.waiting_since = None
        self.warmup_time = _now() - start

    def _is_warm(self, elapsed: float) -> bool:
        rule = self._rule
        if rule.warmup is not None:
            return self.warmup_calls >= rule.warmup
        enough = self.warmup_calls >= _FEWEST_WARMUP_CALLS and elapsed >= rule.warmup_min
        return enough or (elapsed >= rule.warmup_max and self.warmup_calls > 0)

    def _send_in_turn(self) -> None:
        launch, in_flight, ended, answers = self._launch, self._generator.in_flight, self._generator.ended, self.answers
        _wait_until(self._generator.queue.start, ended)
        for request in range(self._load.requests):
            if ended.is_set():
                return
            self.request = request
            in_flight.enter()
            due = self.waiting_since = _now()
            launch()
            done = _now()
            self.waiting_since = None
            in_flight.leave()
            answers.append(_Answer(due, due, done, due))

    def _send_when_due(self) -> None:
        launch, in_flight, ended, answers = self._launch, self._generator.in_flight, self._generator.ended, self.answers
        queue = self._generator.queue
        free = queue.start
        while (taken := queue.take(ended)) and not ended.is_set():
            self.request, due = taken
            begun = self.waiting_since = _now()
            in_flight.enter(begun - due)
            launch()
            done = _now()
            self.waiting_since = None
            in_flight.leave()
            answers.append(_Answer(due, begun, done, free))
            free = done


class _LoadGenerator:
    """Runs the clients, and looks whether one of them hangs or has failed."""

    def __init__(self, launches: Sequence[Launch], load: Load, rule: Sampling, seed: str) -> None:
        self._load = load
        self.in_flight = _InFlight()
        self.queue = _Queue([] if load.arrival == "closed" else arrivals(load, seed))
        self.go = threading.Event()
        self.ended = threading.Event()
        """Set when no request is to be sent any more."""
        self.clients = [_Client(number, launch, load, rule, self) for number, launch in enumerate(launches, 1)]

    def warm_up(self) -> None:
        """Start the clients, and wait until each has warmed up in its own thread."""
        for client in self.clients:
            client.start()
        for client in self.clients:
            while not client.warm.wait(self._patience):
                self._refuse_hanging()
        self._raise_errors()

    def run(self) -> None:
        """Let the clients send their requests, and wait for the last answer."""
        self.queue.start = _now() + _LEAD
        self.go.set()
        for client in self.clients:
            while client.is_alive():
                client.join(self._patience)
                self._refuse_hanging()
        self._raise_errors()

    @property
    def _patience(self) -> float:
        return min(_LONGEST_SLEEP, self._load.request_timeout)

    def _refuse_hanging(self) -> None:
        now = _now()
        for client in self.clients:
            since = client.waiting_since
            if since is not None and now - since > self._load.request_timeout:
                self.ended.set()
                self.go.set()
                # An error of another client may be why this one waits, and says more.
                self._raise_errors()
                answered = sum(len(one.answers) for one in self.clients)
                raise RequestTimeout(
                    f"{client.name} has no answer to {client.doing} after {seconds(self._load.request_timeout)}; "
                    f"{answered} of {count_noun(self._load.total, 'request')} were answered before the load was ended"
                )

    def _raise_errors(self) -> None:
        failed = next((client for client in self.clients if client.error), None)
        if failed is None:
            return
        self.go.set()
        deadline = _now() + self._load.request_timeout
        for client in self.clients:
            client.join(max(0.0, deadline - _now()))
        assert failed.error is not None
        failed.error.request = f"{failed.name}, {failed.doing}"  # type: ignore[attr-defined]
        raise failed.error


@contextmanager
def _short_turns() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _cost_of_a_request() -> float:
    """Return the seconds that a client spends on a request to a model that does nothing."""
    load, once = Load(1, _EMPTY_REQUESTS), Sampling(0, 0, 1, 0, 1, 0, 0, 1, warmup=1)
    generator = _LoadGenerator([_do_nothing], load, once, "")
    with gc_disabled():
        generator.warm_up()
        generator.run()
    return median([second.due - first.due for first, second in pairwise(generator.clients[0].answers)])


def _do_nothing() -> None:
    pass
