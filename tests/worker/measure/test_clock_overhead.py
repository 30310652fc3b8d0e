"""Calls that are too small to measure anything but what a call costs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from opmark.plugin import Launch
from opmark.schema import Caution, Cost, Measurement
from opmark.worker.measure.clock import fastest_call, mark_small_calls

LEAST = 1e-6
LITTLE = 64 << 10


class Timed:
    """Rounds that take what they are told to, with some cost of the timer itself."""

    def __init__(self, *rounds: float, overhead: float = 0.0) -> None:
        self._rounds, self._overhead = list(rounds), overhead
        self.calls: list[int] = []

    def time(self, launch: Launch, calls: int) -> float:
        self.calls.append(calls)
        return self._rounds.pop(0) * calls

    def overhead(self, calls: int) -> float:
        return self._overhead * calls


def test_the_fastest_round_counts_and_the_first_only_warms_up() -> None:
    timer = Timed(1e-9, 5.0, 3.0, 2.0, 4.0, 6.0)
    assert fastest_call(timer, lambda: None) == pytest.approx(2.0)
    assert len(set(timer.calls)) == 1


def test_what_the_timer_takes_is_taken_off() -> None:
    assert fastest_call(Timed(*[3.0] * 6, overhead=1.0), lambda: None) == pytest.approx(2.0)


def test_a_call_never_takes_less_than_nothing() -> None:
    assert fastest_call(Timed(*[1.0] * 6, overhead=2.0), lambda: None) == 0.0


def measured(quantity: str, *samples: float) -> Measurement:
    return Measurement(quantity, "warm", "clock", list(samples), 1, 0.0, 1, 0.1, "precise")


def codes(found: tuple[Measurement, ...]) -> list[list[str]]:
    return [[caution.code for caution in measurement.cautions] for measurement in found]


SHORT, LONG = measured("latency", 10 * LEAST, 10 * LEAST), measured("latency", 11 * LEAST, 11 * LEAST)


@pytest.mark.parametrize(
    ("latency", "cost", "bound"),
    [
        (SHORT, Cost(None, LITTLE, 0), True),
        (SHORT, Cost(10**5, LITTLE // 2, LITTLE // 2), True),
        (SHORT, Cost(10**5 + 1, LITTLE // 2, LITTLE // 2), False),
        (SHORT, Cost(None, LITTLE, 1), False),
        (LONG, Cost(None, LITTLE, 0), False),
        (LONG, Cost(None, LITTLE, 1), False),
        (SHORT, None, False),
    ],
)
def test_little_data_in_little_time_is_overhead(latency: Measurement, cost: Cost | None, bound: bool) -> None:
    assert codes(mark_small_calls([latency], cost, LEAST)) == [["overhead-bound"] if bound else []]


def test_the_headline_is_labelled_though_the_latency_decides() -> None:
    device = measured("device_time", 1.0)
    found = mark_small_calls([device, SHORT], Cost(None, 8, 8), LEAST)
    assert codes(found) == [["overhead-bound"], []]
    assert codes(mark_small_calls([device, LONG], Cost(None, 8, 8), LEAST)) == [[], []]


def test_without_a_latency_nothing_is_said() -> None:
    assert codes(mark_small_calls([measured("device_time", 1e-9)], Cost(None, 8, 8), LEAST)) == [[]]
    assert mark_small_calls([], Cost(None, 8, 8), LEAST) == ()


def test_the_median_decides_and_not_one_slow_sample() -> None:
    latency = measured("latency", LEAST, LEAST, 1.0)
    assert codes(mark_small_calls([latency], Cost(None, 8, 8), LEAST)) == [["overhead-bound"]]


def test_what_was_doubted_before_is_still_doubted() -> None:
    noisy = replace(SHORT, cautions=(Caution("noisy", "it spreads", "look"),))
    assert codes(mark_small_calls([noisy], Cost(None, 8, 8), LEAST)) == [["noisy", "overhead-bound"]]
    assert noisy.samples == mark_small_calls([noisy], Cost(None, 8, 8), LEAST)[0].samples


def test_it_says_how_much_was_moved_and_what_a_call_takes() -> None:
    (found,) = mark_small_calls([measured("latency", 4e-6)], Cost(None, 1024, 1024), LEAST)
    (caution,) = found.cautions
    assert "2.00 KiB are moved in 4.00 µs" in caution.message
    assert "smallest calls takes 1.00 µs" in caution.message
    assert caution.hint == "give it more data"
