"""Two timers that agree, and two that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opmark.frameworks.null.backend import VARIABLE, NullDeviceClock
from opmark.plugin import Launch
from opmark.schema import EFFORTS, Caution, CrossCheck, Measurement
from opmark.worker.measure.cache import warm
from opmark.worker.measure.engine import measure
from opmark.worker.measure.sampler import EventSampler, TraceSampler, cross_check

EARLIER = Caution("noisy", "by chance")


@pytest.fixture
def compare(device: Any, kernels: Callable[..., Launch]) -> Callable[[float, float], Measurement]:
    """What a profiler said, checked by events that say something else."""

    def compare(own: float, other: float) -> Measurement:
        found = Measurement(
            quantity="device_span", cache="warm", timer="cupti", samples=[0.5 * own, own, 3 * own], calls=1,
            overhead=0.0, warmup_calls=0, warmup_time=0.0, stop="precise", cautions=(EARLIER,),
        )  # fmt: skip
        return cross_check(found, EventSampler("device_span", device, warm(kernels(other))))

    return compare


def codes(found: Measurement) -> list[str]:
    return [caution.code for caution in found.cautions]


@pytest.mark.parametrize(
    ("own", "other", "agree"),
    [
        (1e-3, 1.049e-3, True),
        (1e-3, 1.051e-3, False),
        (1e-3, 0.951e-3, True),
        (1e-3, 0.949e-3, False),
        # Of a short call, 5 % would be less than an event costs.
        (2e-6, 4.9e-6, True),
        (2e-6, 5.1e-6, False),
        (10e-6, 7.1e-6, True),
        (10e-6, 6.9e-6, False),
    ],
)
def test_timers_agree_to_5_percent_or_3_microseconds(
    compare: Callable[[float, float], Measurement], own: float, other: float, agree: bool
) -> None:
    found = compare(own, other)
    assert found.check == CrossCheck("events", pytest.approx(other))
    assert codes(found) == (["noisy"] if agree else ["noisy", "timers-disagree"])


def test_a_disagreement_says_who_says_what_and_what_to_do(compare: Callable[[float, float], Measurement]) -> None:
    caution = compare(1e-3, 2e-3).cautions[-1]
    assert caution.message == "cupti says 1.00 ms, events say 2.00 ms; up to 5.0 % or 3.00 µs is usual"
    assert caution.hint


def test_the_samples_are_left_as_they_are(compare: Callable[[float, float], Measurement]) -> None:
    assert compare(1e-3, 2e-3).samples == [0.5e-3, 1e-3, 3e-3]


@pytest.mark.parametrize(("fault", "agree"), [("", True), ("events-off", False)])
def test_a_device_of_which_the_events_are_off_is_found_out(
    monkeypatch: pytest.MonkeyPatch, told_watch: Any, fault: str, agree: bool
) -> None:
    monkeypatch.setenv(VARIABLE, fault)
    clock, supply = NullDeviceClock(), warm(lambda: 1e-4)
    _, span = measure(TraceSampler(clock, supply), EFFORTS["quick"], told_watch())
    found = cross_check(span, EventSampler("device_span", clock, supply))
    assert ("timers-disagree" not in codes(found)) is agree
