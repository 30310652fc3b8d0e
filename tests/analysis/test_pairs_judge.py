"""What few processes, sessions that were cut short, coarse clocks and cycles make of a verdict."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from compared import QUIET, both, case_of, figures, side
from rich.console import Console

from opmark.analysis.comparison import compare
from opmark.analysis.noise_floor import NoiseEstimate
from opmark.analysis.pairs import COARSEST, tick_of
from opmark.report.console.comparison import print_comparison
from opmark.schema.comparison import Compared, Pairing
from opmark.schema.machine import Floor, NoiseFloor

pytestmark = pytest.mark.verdicts

MS = 1e-3
CASES = {case_of().id: case_of()}
LOUD: Any = {"learnt": lambda environment: NoiseEstimate({}, {("latency", "warm", 3): 0.01})}


def times(factor: float = 1.0, count: int = 5) -> list[float]:
    return [MS * factor * one for one in QUIET[:count]]


def in_turns(a: list[float], b: list[float], **options: Any) -> Pairing:
    one, other = side(figures(a), session="s"), side(figures(b), "B", session="s")
    return compare(replace(one, **LOUD), replace(other, **LOUD), CASES, **options).pairs[0]


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_a_session_of_few_pairs_decides_nothing_and_takes_no_noise_from_elsewhere(pairs: int) -> None:
    found = in_turns(times(count=pairs), times(1.5, pairs))
    assert (found.verdict, found.floor, found.p) == ("undecided", 0.0, 1.0)
    assert found.note == f"{pairs} pair{'s' if pairs > 1 else ''} of processes: 4 are needed for a verdict"
    assert in_turns(times(count=4), times(1.5, 4)).verdict == "slower"


def test_a_session_without_a_common_round_decides_nothing() -> None:
    later = [f for f in figures(times(1.5)) if f.process > 2]
    found = compare(
        replace(side(figures(times(count=2)), session="s"), **LOUD),
        replace(side(later, "B", session="s"), **LOUD),
        CASES,
    )
    assert (found.pairs[0].verdict, found.pairs[0].floor) == ("undecided", 0.0)
    assert found.pairs[0].note == "no process of one side was measured next to one of the other"


def test_few_processes_need_a_noise_that_is_known() -> None:
    a, b = figures(times(count=3)), figures(times(1.12, 3))
    assert both(a, b).pairs[0].verdict == "undecided"
    assert both(a, b).pairs[0].note == "3 processes only"
    assert "1 undecided with fewer than 4 processes: --processes 5 tells more" in shown(both(a, b))
    known = compare(replace(side(a), **LOUD), replace(side(b, "B"), **LOUD), CASES).pairs[0]
    assert (known.verdict, known.floor, known.note) == ("slower", 0.01, "")


def test_for_few_processes_the_largest_floor_of_the_doctor_stands() -> None:
    floors = [Floor("a", "", MS, 0.01, 0), Floor("b", "", 1, 0.2, 0)]
    noise: Any = {"noise": {"here": NoiseFloor("", "torch-cpu", 2, "", 10, 1, floors)}}

    def found(count: int) -> Compared:
        a, b = side(figures(times(1.0, count))), side(figures(times(1.3, count)), "B")
        return compare(replace(a, **noise), replace(b, **noise), CASES)

    few, many = found(1), found(5)
    assert (few.pairs[0].floor, few.pairs[0].verdict) == (0.2, "undecided")
    assert (many.pairs[0].floor, many.pairs[0].verdict) == (0.01, "slower")


def test_cycles_of_a_lone_process_say_that_it_is_alone() -> None:
    (pair,) = both(figures([MS], cycles=[1e6]), figures([1.1 * MS], cycles=[1.1e6])).pairs
    assert pair.verdict == "undecided"
    assert pair.note == "1 process only"


def test_a_step_of_a_coarse_clock_is_no_difference() -> None:
    """Ticks of 32 ns: all processes of a side are rounded alike."""
    tick = 32e-9
    a, b = [50 * tick] * 5, [51 * tick] * 5
    assert both(figures(a), figures(b), drift=0.0).pairs[0].verdict == "undecided"
    assert in_turns(a, b).verdict == "undecided"
    assert in_turns(a, [75 * tick] * 4 + [76 * tick]).verdict == "slower"


def test_a_clock_is_coarse_where_processes_are_exactly_alike() -> None:
    assert tick_of([1e-6, 1e-6, 1.02e-6], [1.02e-6, 1.04e-6]) == pytest.approx(0.02)
    assert tick_of([1e-6, 1.01e-6], [1.02e-6, 1.04e-6]) == 0.0
    assert tick_of([1e-6, 1e-6], [1e-6]) == 0.0
    assert tick_of([1e-3, 1e-3], [2e-3]) == COARSEST / 1e-3


def shown(found: Compared) -> str:
    text = StringIO()
    print_comparison(found, Console(file=text, width=200))
    return text.getvalue()


def test_the_caption_says_what_is_called_the_same() -> None:
    apart = both(figures(times()), figures(times()), drift=0.02)
    assert apart.resolution == 0.04
    assert "up to 4.0 % is called the same: two sessions may drift by 2.0 %" in shown(apart)
    for options in ({"drift": 0.0}, {"margin": 0.05}):
        found = both(figures(times()), figures(times()), **options)
        assert found.resolution is None
        assert shown(found).rstrip().endswith("is called the same")


def test_where_cycles_judged_it_is_said_how_far_sessions_spread() -> None:
    base = [1e6 * one for one in QUIET]
    found = both(figures(times(), cycles=base), figures(times(), cycles=base))
    assert (found.clocked, found.drift, found.sessions) == (True, 0.005, 0)
    assert "two sessions, by time and by cycles, which spread by 0.50 % for the same code (assumed)" in shown(found)
    given = both(figures(times(), cycles=base), figures(times(), cycles=base), drift=0.02)
    assert (given.clocked, given.drift, given.resolution) == (True, 0.0, None)
    assert "up to 1.0 % is called the same" in shown(given)


def test_below_the_table_stands_what_to_type_for_the_undecided() -> None:
    small, large = case_of(size=1), case_of(size=2)
    a = figures(times(), small) + figures(times(), large)
    other = [
        figures(times(ratio), size, backend="numpy-cpu", implementation="numpy")
        for ratio, size in ((1.01, small), (1.04, large))
    ]
    found = both(a, other[0] + other[1], small, large)
    command = "opmark ab exp -p shape=2 -p dtype=float32 --backend torch-cpu,numpy-cpu --threads 2"
    assert f"2 undecided; measure in turns, the largest difference first: {command}" in shown(found)
    assert "measure in turns" not in shown(both(a, a, small, large, drift=0.02))
    assert "a run with itself" in shown(compare(side(a, run="r"), side(a, run="r"), {small.id: small, large.id: large}))


def test_one_process_each_is_not_called_measured_in_turns() -> None:
    a, b = figures([MS]), figures([2 * MS], backend="numpy-cpu", implementation="numpy")
    found = compare(side(a, "torch-cpu", run="r"), side(b, "numpy-cpu", run="r"), CASES)
    assert "one process each, in one run" in shown(found)
    assert "measured in turns" not in shown(found)


def test_p_over_many_cases_counts_every_look() -> None:
    a, b = times(), [1.02 * one for one in times()[::-1]]
    one = compare(side(figures(a), run="r"), side(figures(b), "B", run="r"), CASES).pairs[0]
    looked = in_turns(a, b)
    assert (looked.p or 0.0) == pytest.approx(3 * (one.p or 1.0))


def test_the_mean_lies_in_its_interval_where_cases_went_on_for_longer() -> None:
    """Later processes of the one case say nothing of the other."""
    first, second = case_of(), case_of("log")
    a = figures(times(), first) + figures([MS] * 20, second)
    b = figures(times(1.02), first) + figures([*times(), *[1.1 * MS] * 15], second)
    found = compare(side(a, session="s"), side(b, "B", session="s"), {c.id: c for c in (first, second)}).geomean
    assert found is not None
    assert found.ratio == pytest.approx(1.01, abs=0.001)
    assert found.low < found.ratio < found.high


@pytest.mark.parametrize("status", ["disturbed", "unchecked"])
def test_below_the_table_stands_what_a_doubtful_side_means(status: Any) -> None:
    text = shown(both(figures(times()), figures(times(), status=status)))
    assert f"WARNING: 1 case {status}: " in text
    assert "WARNING" not in shown(both(figures(times()), figures(times())))
