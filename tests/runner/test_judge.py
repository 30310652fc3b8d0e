"""The verdict about a candidate from the times of its pairs."""

from __future__ import annotations

import pytest

from opmark.runner.judge import _compare, _is_accepted, _mean_times
from opmark.schema.judgement import PairJudged, TrialTurn


def pair(baseline: float, candidate: float, protocol: float = 1e-3, error: float = 1e-6) -> PairJudged:
    base, judged, empty = (TrialTurn(seconds, error, 20) for seconds in (baseline, candidate, protocol))
    return PairJudged(base, empty, judged, ())


NOISE = (1.0, 1.001, 0.999, 1.002, 0.998)


def test_times_are_those_of_calls_without_the_protocol() -> None:
    times = _mean_times([pair(2e-3, 3e-3)])
    assert times.net(times.baseline) == pytest.approx(1e-3)
    assert times.net_ratio(1.5) == pytest.approx(2.0), "3 ms over 2 ms is twice as long beside 1 ms of the protocol"
    assert times.net_ratio(0.0) == 0.0
    assert not times.too_short


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, "slower"), (0.7, "faster"), (1.0, "same")])
def test_the_verdict(factor: float, verdict: str) -> None:
    pairs = [pair(2e-3 * noise, 2e-3 * factor) for noise in NOISE]
    assert _compare(pairs, margin=0.02, looks=1).verdict == verdict


def test_the_margin_is_one_of_calls_without_the_protocol() -> None:
    """1 % of the whole is 10 % of a call that takes a tenth of it."""
    pairs = [pair(1e-2, 1.01e-2, protocol=9e-3) for _ in NOISE]
    assert _compare(pairs, margin=0.05, looks=1).verdict == "slower"
    assert _compare([pair(1e-2, 1.01e-2, protocol=1e-5) for _ in NOISE], margin=0.05, looks=1).verdict == "same"


def test_a_call_that_is_too_short_is_said_to_be_so() -> None:
    assert _mean_times([pair(1.000001e-3, 1.000001e-3, error=1e-5)]).too_short


def test_what_is_undecided_is_accepted_only_if_a_slowdown_is_ruled_out() -> None:
    assert _is_accepted("faster", 0.9)
    assert _is_accepted("same", 1.01)
    assert _is_accepted("undecided", 1.05)
    assert not _is_accepted("undecided", 20.0)
    assert not _is_accepted("slower", 1.05)
