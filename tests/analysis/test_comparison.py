"""Two sides of the same cases."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from compared import HERE, QUIET, both, case_of, failed, figures, side
from msgspec.structs import replace as change

from opmark.analysis.compared_side import side_of
from opmark.analysis.comparison import LEAST_CASES, compare
from opmark.analysis.noise_floor import ASSUMED_FLOOR, DISTURBED_FLOOR, NoiseEstimate, SessionEstimate
from opmark.analysis.pairs import Values, Way
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.report.comparison import footer
from opmark.schema import EFFORTS, Environment, Measurement, Record, Run, Settings, Task
from opmark.schema.comparison import Pairing
from opmark.schema.record import Figure, SeriesKey
from opmark.stats.verdict import FEWEST, Spread
from opmark.store.memory import MemoryStore

pytestmark = pytest.mark.verdicts

MS = 1e-3
SERIES = SeriesKey(case_of().id, "torch-cpu", "torch", 2, "latency", "warm")
REVISIONS = (("r1", "aaaa"), ("r2", "bbbb"), ("r3", "bbbb+"))


def times(factor: float = 1.0) -> list[float]:
    return [MS * factor * one for one in QUIET]


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "same"), (1.10, "slower"), (0.90, "faster"), (1.02, "undecided")]
)
def test_a_case_gets_a_ratio_with_its_interval_and_a_verdict(factor: float, verdict: str) -> None:
    found = both(figures(times()), figures(times(factor)), drift=0.02)
    (pair,) = found.pairs
    assert pair.verdict == verdict
    assert pair.ratio == pytest.approx(factor)
    assert (pair.low or 0.0) < factor < (pair.high or 0.0)
    assert (pair.a, pair.b) == (pytest.approx(MS, rel=1e-3), pytest.approx(MS * factor, rel=1e-3))
    assert (pair.op, pair.params, pair.phase) == ("exp", "4 float32", "forward")
    assert pair.where == ("torch-cpu ×2", "torch-cpu ×2")
    assert pair.processes == (5, 5)
    assert not found.paired
    assert (found.drift, found.sessions) == (0.02, None)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "undecided"), (1.08, "undecided"), (1.15, "slower"), (0.85, "faster")]
)
def test_where_nothing_is_known_of_its_sessions_a_machine_is_not_trusted(factor: float, verdict: str) -> None:
    found = both(figures(times()), figures(times(factor)))
    (pair,) = found.pairs
    assert (pair.verdict, found.drift, found.sessions) == (verdict, 0.02, 0)
    assert (pair.low or 0.0) < 0.95 * factor < 1.05 * factor < (pair.high or 0.0)


def test_sessions_that_were_steady_show_smaller_differences() -> None:
    known = SessionEstimate({}, {("latency", "warm", 3): 0.002}, 15)._replace(own={SERIES: Spread(0.002, 14)})
    a, b = figures(times()), figures(times(1.05))
    steady = replace(side(a), sessions=lambda environment, leave_out: known)
    found = compare(steady, replace(side(b, "B"), sessions=steady.sessions), {case_of().id: case_of()})
    assert (found.pairs[0].verdict, found.sessions) == ("slower", 15)
    assert 0.002 < found.drift < 0.02
    assert compare(steady, side(b, "B"), {case_of().id: case_of()}).pairs[0].verdict == "undecided", "one side is not"


def test_an_undecided_case_of_two_sessions_says_what_to_type() -> None:
    a, b = figures(times()), figures(times(1.05))
    assert both(a, b).pairs[0].in_turns == "", "nothing is known that differs"
    assert both(a, figures(times(1.05), backend="numpy-cpu", implementation="numpy")).pairs[0].in_turns == (
        "opmark ab exp -p shape=4 -p dtype=float32 --backend torch-cpu,numpy-cpu --threads 2"
    )
    other = both(a, figures(times(1.05), implementation="compiled")).pairs[0].in_turns
    assert other.endswith("--backend torch-cpu --threads 2 --impl torch,compiled")
    cases = {case_of().id: case_of()}
    one, two, dirty = (replace(side(a), run=Run(name, "", "", 1, revision=rev)) for name, rev in REVISIONS)
    assert compare(one, two, cases).pairs[0].in_turns.endswith("--rev aaaa --rev bbbb")
    assert compare(one, dirty, cases).pairs[0].in_turns.endswith("--threads 2 --rev aaaa")
    assert compare(dirty, one, cases).pairs[0].in_turns == "", "those files are gone"
    assert both(a, figures(times(2.0))).pairs[0].in_turns == "", "it is decided"
    assert compare(side(a, session="s"), side(b[:3], "B", session="s"), cases).pairs[0].in_turns == ""


def test_two_interpreters_are_compared_by_their_paths() -> None:
    there = {**HERE, "torch": "2.13", "interpreter": "/b/python"}
    one, other = side(figures(times())), side(figures(times(1.05), environment="there"), "B")
    one.facts["here"] = {**HERE, "torch": "2.12", "interpreter": "/a/python"}  # type: ignore[index]
    other.facts["there"] = there  # type: ignore[index]
    (pair,) = compare(one, other, {case_of().id: case_of()}).pairs
    assert "--backend torch-cpu --python /a/python,/b/python" in pair.in_turns
    other.facts["there"] = {**there, "interpreter": "/a/python"}  # type: ignore[index]
    assert compare(one, other, {case_of().id: case_of()}).pairs[0].in_turns == "", "one of them is gone"


def test_a_run_beside_itself_and_single_processes_were_not_measured_in_turns() -> None:
    a, b = figures(times()), figures(times(2.0), backend="numpy-cpu", implementation="numpy")
    cases = {case_of().id: case_of()}
    assert compare(side(a, run="r"), side(b, "B", run="r"), cases, unlike=True).paired
    itself = compare(side(a, run="r"), side(a, run="r"), cases)
    assert (itself.paired, itself.drift, itself.sessions, itself.pairs[0].verdict) == (False, 0.0, None, "same")
    assert not compare(side(a[:1], run="r"), side(b[:1], "B", run="r"), cases, unlike=True).paired


def test_two_sessions_may_differ_by_what_the_clock_drifts_and_locked_clocks_do_not() -> None:
    a, b = figures(times()), figures(times(1.012))
    assert both(a, b).pairs[0].verdict != "slower"
    assert both(a, b, drift=0.0).pairs[0].verdict == "slower"


def test_processes_that_were_measured_in_turns_are_pairs() -> None:
    """The drift of both sides is ten times their difference: only in pairs it goes away."""
    drifting = [MS * (1 + 0.1 * i) for i in range(5)]
    a, b = figures(drifting), figures([value * 1.03 * (1 + 0.0001 * i) for i, value in enumerate(drifting)])
    cases = {case_of().id: case_of()}
    apart = compare(side(a), side(b, "B"), cases)
    assert apart.pairs[0].verdict == "undecided"
    turns = compare(side(a, session="s"), side(b, "B", session="s"), cases)
    assert (turns.paired, turns.drift, turns.pairs[0].verdict) == (True, 0.0, "slower")
    other = compare(side(a, session="s"), side(b, "B", session="t"), cases)
    assert not other.paired


def test_only_processes_that_both_sides_have_are_pairs() -> None:
    a, b = figures(times()), figures(times(1.1))
    (pair,) = compare(side(a, session="s"), side(b[:4], "B", session="s"), {case_of().id: case_of()}).pairs
    assert pair.processes == (4, 4)


def test_backends_of_one_run_are_pairs_and_their_machine_is_not_asked() -> None:
    a = figures(times(), backend="torch-cpu", environment="torch")
    b = figures(times(2.0), backend="numpy-cpu", implementation="numpy", environment="numpy")
    one, other = side(a, "torch-cpu", run="r"), side(b, "numpy-cpu", run="r")
    one.facts["torch"], other.facts["numpy"] = HERE, {**HERE, "threads": 1}  # type: ignore[index]
    found = compare(one, other, {case_of().id: case_of()})
    assert found.paired
    assert found.pairs[0].verdict == "slower"
    assert found.pairs[0].where == ("torch-cpu ×2", "numpy-cpu ×2")


def test_time_and_cycles_have_to_agree_where_the_clock_is_known() -> None:
    """A clock 3 % lower takes 3 % more time and no more cycles; without cycles it would be called."""
    base = [1e6 * one for one in QUIET]
    a = figures(times(), cycles=base)
    clock = both(a, figures(times(1.03), cycles=base)).pairs[0]
    assert clock.verdict == "undecided"
    assert clock.note == "slower in time, but in cycles 1.000x (same): the clock moved"
    assert both(figures(times()), figures(times(1.03)), drift=0.02).pairs[0].verdict == "slower"


def test_time_and_cycles_are_as_sure_as_the_less_sure_of_them() -> None:
    spread = [1e6 * one for one in (0.99, 1.0, 1.01, 1.005, 0.995)]
    a, b = figures(times(), cycles=spread), figures(times(1.1), cycles=[1.1 * one for one in spread])
    sure, less = both(figures(times()), figures(times(1.1)), drift=0.0).pairs[0].p, both(a, b).pairs[0].p
    assert sure is not None
    assert less is not None
    assert less > 10 * sure


def test_where_the_clock_is_known_sessions_spread_less() -> None:
    base = [1e6 * one for one in QUIET]
    a, b = figures(times(), cycles=base), figures(times(1.04), cycles=[1.04 * one for one in base])
    assert both(a, b).pairs[0].verdict == "slower"
    assert both(a, figures(times(1.04), cycles=[*base[:4], 0.0])).pairs[0].verdict != "slower"  # one does not know it
    small = figures(times(1.012), cycles=[1.012 * one for one in base])
    assert [both(a, small, **how).pairs[0].verdict for how in ({}, {"drift": 0.02})] == ["same", "slower"]


def test_a_difference_up_to_twice_the_noise_floor_is_none() -> None:
    a, b = figures(times()), figures(times(1.10))
    cases = {case_of().id: case_of()}
    assert compare(side(a, floor=0.04), side(b, "B"), cases, drift=0.02).pairs[0].verdict == "slower"
    loud = compare(side(a), side(b, "B", floor=0.06), cases, drift=0.02).pairs[0]
    assert (loud.verdict, loud.floor) == ("undecided", 0.06)


def test_the_floor_of_times_says_nothing_of_energy() -> None:
    a, b = (figures(times(factor), quantity="energy") for factor in (1.0, 1.10))
    (pair,) = compare(side(a, floor=0.06), side(b, "B"), {case_of().id: case_of()}, drift=0.02).pairs
    assert (pair.verdict, pair.floor) == ("slower", 0.0)


def test_lone_processes_decide_what_is_obvious_and_more_where_the_noise_is_known() -> None:
    a, b = figures([MS]), figures([1.2 * MS])
    lone = both(a, b).pairs[0]
    assert (lone.verdict, lone.floor) == ("undecided", ASSUMED_FLOOR)
    assert lone.note == "1 process only"
    obvious = figures([1.9 * MS])
    assert (both(a, obvious).pairs[0].verdict, both(a, obvious).pairs[0].note) == ("slower", "")
    loaded = figures([1.9 * MS], cautions=("loaded",))
    assert (both(a, loaded).pairs[0].verdict, both(a, loaded).pairs[0].floor) == ("undecided", DISTURBED_FLOOR)
    cases = {case_of().id: case_of()}
    assert compare(side(a, floor=0.01), side(b, "B", floor=0.01), cases).pairs[0].verdict == "slower"
    beside = compare(side(a, run="r", floor=0.01), side(b, "B", run="r", floor=0.01), cases)
    assert beside.pairs[0].verdict == "slower"


def test_a_lone_process_takes_the_noise_that_stored_runs_tell_and_several_do_not() -> None:
    learnt: Any = {"learnt": lambda environment: NoiseEstimate({}, {("latency", "warm", 3): 0.01})}
    cases = {case_of().id: case_of()}
    a, b = (replace(side(figures([value]), name), **learnt) for name, value in (("A", MS), ("B", 2 * MS)))
    assert (compare(a, b, cases).pairs[0].verdict, compare(a, b, cases).pairs[0].floor) == ("slower", 0.01)
    a, b = (replace(side(figures(times(factor)), name), **learnt) for name, factor in (("A", 1.0), ("B", 1.1)))
    assert compare(a, b, cases).pairs[0].floor == 0.0


def test_what_the_scheduler_measured_is_not_judged() -> None:
    (pair,) = both(figures(times()), figures(times(3.0), cautions=("preempted",))).pairs
    assert (pair.verdict, pair.ratio) == ("undecided", None)
    assert pair.note == "preempted in B: the number is the scheduler's"


def test_a_disturbed_side_is_undecided_and_no_failure() -> None:
    found = both(figures(times()), figures(times(3.0), status="disturbed", cautions=("preempted",)))
    (pair,) = found.pairs
    assert (pair.verdict, pair.ratio, pair.statuses) == ("undecided", None, ("ok", "disturbed"))
    assert "preempted in B" in pair.note


def test_an_unchecked_side_is_compared_with_a_warning() -> None:
    found = both(figures(times()), figures(times(0.5), status="unchecked"))
    (pair,) = found.pairs
    assert (pair.verdict, pair.ratio, pair.note) == ("faster", pytest.approx(0.5), "unchecked in B")
    assert any(line.startswith("WARNING: 1 case unchecked") for line in footer(found))
    assert not any("unchecked" in line for line in footer(both(figures(times()), figures(times(0.5)))))


def test_a_process_that_the_scheduler_measured_is_left_out() -> None:
    b = figures(times(1.2))
    b[1] = figures([5 * MS] * 2, cautions=("preempted",))[1]
    (pair,) = compare(side(figures(times()), session="s"), side(b, "B", session="s"), {case_of().id: case_of()}).pairs
    assert (pair.verdict, pair.processes, pair.ratio) == ("slower", (4, 4), pytest.approx(1.2))
    assert pair.note == "without 1 of 5 processes that were preempted in B"
    b[0], b[2] = (figures([5 * MS] * 3, cautions=("preempted",))[i] for i in (0, 2))
    assert both(figures(times()), b).pairs[0].note == "preempted in B: the number is the scheduler's"


@pytest.mark.parametrize("value", [0.0, None])
def test_what_is_below_the_clock_is_not_judged(value: float) -> None:
    (pair,) = both(figures([MS, value]), figures(times())).pairs
    assert (pair.verdict, pair.note) == ("undecided", "below what can be measured in A")


def test_many_cases_at_once_are_judged_more_strictly() -> None:
    """What is barely a difference alone is none among forty that are not."""
    a, b = [], []
    barely = [MS * one for one in (1.0, 1.01, 0.99, 1.005, 0.995)]
    cases = [case_of(size=n) for n in range(1, 41)]
    for case in cases:
        a += figures(barely, case)
        b += figures([1.043 * one for one in barely] if case is cases[0] else barely, case)
    alone = both(a[:5], b[:5], cases[0], drift=0.02).pairs[0]
    assert alone.verdict == "slower"
    assert 0.05 / len(cases) < (alone.p or 0.0) < 0.01
    among = next(pair for pair in both(a, b, *cases, drift=0.02).pairs if pair.case == cases[0].id)
    assert (among.verdict, among.p) == ("undecided", alone.p)


def test_the_headline_is_the_first_that_both_have() -> None:
    a = figures(times(), quantity="device_time", cache="cold") + figures(times(), quantity="latency")
    b = figures(times(2.0), quantity="latency") + figures(times(3.0), quantity="throughput")
    (pair,) = both(a, b).pairs
    assert (pair.quantity, pair.cache, pair.verdict) == ("latency", "warm", "slower")


def test_another_quantity_or_all_of_them() -> None:
    a = [
        f
        for cache in ("cold", "warm")
        for q in ("device_time", "latency")
        for f in figures(times(), quantity=q, cache=cache)
    ]
    found = [(pair.quantity, pair.cache) for pair in both(a, a, quantity="latency").pairs]
    assert found == [("latency", "cold"), ("latency", "warm")]
    assert len(both(a, a, quantity="all").pairs) == 4
    assert [pair.cache for pair in both(a, a, quantity="latency:cold").pairs] == ["cold"]


def test_a_quantity_that_nobody_measured() -> None:
    a = figures(times())
    with pytest.raises(UserError, match="`energy` was not measured on both sides") as told:
        both(a, a, quantity="energy")
    assert told.value.hint == "measured: latency:warm"
    with pytest.raises(UnknownName, match="no quantity named `latenzy`"):
        both(a, a, quantity="latenzy")
    with pytest.raises(InvalidParameter, match="expected one of cold, warm, rotated behind the colon, got `hot`"):
        both(a, a, quantity="latency:hot")


def test_sides_that_measured_different_things_of_a_case_say_so() -> None:
    (pair,) = both(figures(times(), quantity="device_time", cache="cold"), figures(times())).pairs
    assert pair.note == "nothing was measured on both sides: device_time cold in A, latency warm in B"


def test_what_failed_on_one_side_is_said_with_its_reason_and_stands_first() -> None:
    good, slow, broken, lacking = (case_of(size=n) for n in (1, 2, 3, 4))
    a = [f for case in (good, slow, broken, lacking) for f in figures(times(), case)]
    b = figures(times(), good) + figures(times(2.0), slow) + [failed(broken), failed(lacking, "skipped")]
    found = compare(
        side(a), side(b, "B", reason="no such thing"), {c.id: c for c in (good, slow, broken, lacking)}, drift=0.02
    )
    assert [(pair.params, pair.verdict) for pair in found.pairs] == [
        ("3 float32", "undecided"), ("4 float32", "undecided"), ("2 float32", "slower"), ("1 float32", "same"),
    ]  # fmt: skip
    assert [pair.note for pair in found.pairs[:2]] == [
        "failed in B: error: no such thing",
        "skipped in B: no such thing",
    ]
    assert [pair.statuses for pair in found.pairs] == [("ok", "error"), ("ok", "skipped"), ("ok", "ok"), ("ok", "ok")]
    assert found.geomean is not None
    assert found.geomean.cases == 2


def test_one_process_that_failed_is_a_case_that_failed() -> None:
    b = [*figures(times())[:4], failed(status="timeout", process=4)]
    found = compare(side(figures(times())), side(b, "B", reason="too slow"), {case_of().id: case_of()})
    assert found.pairs[0].note == "failed in B (1 of 5 processes): timeout: too slow"
    assert found.pairs[0].ratio is None


def test_what_failed_on_both_sides_stands_last() -> None:
    good, broken = case_of(size=1), case_of(size=2)
    a = [failed(broken), *figures(times(), good)]
    found = compare(side(a, reason="x"), side(a, "B", reason="y"), {c.id: c for c in (good, broken)})
    assert [pair.note for pair in found.pairs] == ["", "failed in A: error: x; failed in B: error: y"]


def test_reasons_are_looked_up_only_where_something_failed() -> None:
    def must_not(way: object) -> str:
        raise AssertionError

    quiet = replace(side(figures(times())), why=must_not)
    (pair,) = compare(quiet, side(figures(times()), "B"), {case_of().id: case_of()}, drift=0.02).pairs
    assert pair.verdict == "same"


def test_cases_of_one_side_only_are_listed() -> None:
    shared, first, second = (case_of(size=n) for n in (1, 2, 3))
    a, b = (figures(times(), shared) + figures(times(), own) for own in (first, second))
    found = both(a, b, shared, first, second)
    assert found.only == (("exp 2 float32 (torch-cpu ×2)",), ("exp 3 float32 (torch-cpu ×2)",))
    assert len(found.pairs) == 1


def test_runs_without_a_case_in_common_say_what_they_have() -> None:
    first, second = case_of(size=2), case_of("tanh", size=3)
    with pytest.raises(UserError) as told:
        both(figures(times(), first), figures(times(), second), first, second)
    assert told.value.message == (
        "no case in common: `A` has 1 case: exp 2 float32 forward; `B` has 1 case: tanh 3 float32 forward"
    )
    assert "run the same workload" in str(told.value.hint)


def test_another_backend_name_is_matched_by_case() -> None:
    found = both(figures(times()), figures(times(2.0), backend="numpy-cpu", implementation="numpy"))
    assert found.pairs[0].where == ("torch-cpu ×2", "numpy-cpu ×2")
    assert found.pairs[0].verdict == "slower"


def test_other_threads_are_matched_by_case_where_the_machines_may_differ() -> None:
    b = figures(times(2.0), threads=1, environment="there")
    other = side(b, "B", facts=HERE)
    other.facts["there"] = {**HERE, "threads": 1}  # type: ignore[index]
    cases = {case_of().id: case_of()}
    with pytest.raises(UserError, match="threads: 2 -> 1"):
        compare(side(figures(times())), other, cases)
    found = compare(side(figures(times())), other, cases, unlike=True)
    assert found.pairs[0].where == ("torch-cpu ×2", "torch-cpu ×1")
    assert found.differing == {"threads": (2, 1)}


def test_several_ways_without_a_common_name_are_no_match() -> None:
    a = figures(times()) + figures(times(), backend="numpy-cpu", implementation="numpy")
    b = figures(times(), backend="jax-cpu", implementation="jax")
    with pytest.raises(UserError, match="A has torch-cpu/torch ×2, numpy-cpu/numpy ×2; B has jax-cpu/jax ×2"):
        both(a, b)


def test_the_same_ways_are_matched_and_the_rest_is_said() -> None:
    a = figures(times()) + figures(times(), backend="numpy-cpu", implementation="numpy")
    found = both(a, figures(times()))
    assert [pair.where[0] for pair in found.pairs] == ["torch-cpu ×2"]
    assert found.only == (("exp 4 float32 (numpy-cpu ×2)",), ())


def test_another_interpreter_is_matched_backend_by_backend() -> None:
    a = [f for name in ("torch-cpu", "torch-compile-cpu") for f in figures(times(), backend=name)]
    b = [f for name in ("torch-cpu@x", "torch-compile-cpu@x") for f in figures(times(), backend=name)]
    assert [pair.where for pair in both(a, b).pairs] == [
        ("torch-cpu ×2", "torch-cpu@x ×2"), ("torch-compile-cpu ×2", "torch-compile-cpu@x ×2"),
    ]  # fmt: skip


def test_a_case_that_the_store_cannot_name_is_called_by_its_id() -> None:
    (pair,) = compare(side(figures(times())), side(figures(times()), "B"), {}).pairs
    assert pair.params == f"case {case_of().id}"


def test_the_mean_over_cases_has_the_interval_of_its_processes() -> None:
    """Each process is off by 2 % in all of its cases: as many cases as you like tell no more than five processes."""
    off = (1.0, 1.02, 0.98, 1.01, 0.99)
    cases = [case_of(size=n) for n in range(1, 21)]
    a = [f for case in cases for f in figures([MS * one for one in off], case)]
    b = [f for case in cases for f in figures([1.1 * MS * one for one in off], case)]
    found = both(a, b, *cases).geomean
    assert found is not None
    assert (found.cases, found.ratio) == (20, pytest.approx(1.1))
    one = both(a[:5], b[:5], cases[0]).pairs[0]
    assert (found.low, found.high) == (pytest.approx(one.low or 0.0), pytest.approx(one.high or 0.0))


def test_the_mean_over_cases_of_single_processes_has_the_interval_of_the_cases() -> None:
    cases = [case_of(size=n) for n in range(1, LEAST_CASES + 1)]
    a = [f for case in cases for f in figures([MS], case)]
    b = [f for i, case in enumerate(cases) for f in figures([MS * (1 + 0.03 * i)], case)]
    found = both(a, b, *cases).geomean
    assert found is not None
    assert 0.9 < found.low < found.ratio < found.high < 1.5


@pytest.mark.parametrize(("cases", "processes"), [(1, 1), (2, 1), (LEAST_CASES - 1, 1), (2, 2), (2, FEWEST - 1)])
def test_a_mean_over_few_cases_of_few_processes_has_no_interval(cases: int, processes: int) -> None:
    """The interval of two cases or of two processes went from 10^-16 to 10^15."""
    listed = [case_of(size=n) for n in range(1, cases + 1)]
    a = [f for case in listed for f in figures(times()[:processes], case)]
    b = [f for i, case in enumerate(listed) for f in figures(times(1.1 + i)[:processes], case)]
    for sides in ((side(a), side(b, "B")), (side(a, session="s"), side(b, "B", session="s"))):
        mean = compare(*sides, {case.id: case for case in listed}).geomean
        assert mean is not None
        assert (mean.low, mean.high, mean.cases) == (0.0, math.inf, cases)


def test_two_sides_that_failed_have_no_mean() -> None:
    assert compare(side([failed()]), side([failed()], "B"), {case_of().id: case_of()}).geomean is None


def test_centres_are_geometric() -> None:
    values = Values.of(*(dict(enumerate(figures(times))) for times in ([1.0, 4.0], [2.0])))
    assert (values.centre("a"), values.centre("b"), values.rounds) == (2.0, 2.0, [0])


def test_a_side_is_read_from_a_store() -> None:
    store, here = MemoryStore(), Environment.of(HERE)
    store.begin(Run("r1", "2030", "plan", 2, label="nightly"))
    store.add_environment(here)
    sampled = Measurement("latency", "warm", "virtual", [MS], 1, 0.0, 1, 0.0, "count")
    settings = Settings(2, "quick", EFFORTS["quick"])
    for backend, status in (("torch-cpu", "ok"), ("numpy-cpu", "error")):
        task = Task(case_of(), backend, backend.partition("-")[0], settings)
        found = (sampled,) if status == "ok" else ()
        store.append("r1", Record(task, status, "broke" if not found else "", found, environment=here.id))  # type: ignore[arg-type]
    store.keep("noise", "torch-cpu on a processor ×2", "2030", {
        "chip": "", "backend": "torch-cpu", "threads": 2, "started": "", "processes": 10, "labelings": 1,
        "floors": [{"op": "exp", "params": "", "seconds": 1.0, "between": 0.03, "within": 0.0}],
    })  # fmt: skip
    one = side_of(store, store.runs()[0])
    assert (one.name, len(one.figures), one.facts) == ("nightly", 2, {here.id: HERE})
    assert one.noise[here.id].floor_for(1.0, "latency", "warm") == 0.03
    assert one.why(Way(case_of().id, "numpy-cpu", "numpy", 2)) == "broke"
    assert one.why(Way(case_of().id, "torch-cpu", "torch", 2)) == ""
    chosen = side_of(store, store.runs()[0], "numpy", lambda figure: figure.backend == "numpy-cpu")
    assert [figure.status for figure in chosen.figures] == ["error"]


def test_the_reasons_of_a_large_run_are_left_to_who_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.analysis.compared_side.MANY", 0)
    store = MemoryStore()
    store.begin(Run("r1", "2030", "plan", 1))
    task = Task(case_of(), "torch-cpu", "torch", Settings(2, "quick", EFFORTS["quick"]))
    store.append("r1", Record(task, "error", "broke"))
    (pair,) = compare(side(figures(times())), side_of(store, store.runs()[0], "B"), {}).pairs
    assert pair.note == "failed in B: error: `opmark show r1` says why"


def simulated(draw: random.Random, factor: float, *, clocked: bool) -> str:
    """The verdict of ten processes a side, 0.5 % apart, in two sessions whose clocks are 2 % apart, give or take."""
    sides = []
    for work in (1.0, factor):
        clock = draw.gauss(1.0, 0.02 / math.sqrt(2))
        cycles = [1e6 * work * draw.gauss(1.0, 0.005) for _ in range(10)]
        sides.append(figures([one / (clock * 1e9) for one in cycles], cycles=cycles if clocked else None))
    return both(*sides).pairs[0].verdict


def test_a_clock_that_moves_between_sessions_makes_no_verdict_where_it_is_known() -> None:
    draw = random.Random(8)
    found = Counter(simulated(draw, 1.0, clocked=True) for _ in range(400))
    assert found["slower"] + found["faster"] <= 4
    drifted = Counter(simulated(draw, 1.05, clocked=True) for _ in range(200))
    assert drifted["faster"] == 0
    assert drifted["slower"] >= 160


# Cycles beside seconds.

GPU = {**HERE, "gpu": "NVIDIA Example", "device": "cuda"}


def clocked(seconds: float, hertz: float, **more: Any) -> list[Figure]:
    times = [seconds * one for one in QUIET]
    return figures(times, cycles=[time * hertz for time in times], quantity="device_time", cache="cold", **more)


def pair_of(a: list[Figure], b: list[Figure], facts: tuple[dict[str, Any], dict[str, Any]] = (GPU, GPU)) -> Pairing:
    sides = side(a, facts=facts[0]), side(b, "B", facts=facts[1])
    (pair,) = compare(*sides, {case_of().id: case_of()}, unlike=True, quantity="all").pairs
    return pair


def test_a_slower_clock_shows_in_seconds_and_not_in_cycles() -> None:
    found = pair_of(clocked(1e-3, 2e9), clocked(1.25e-3, 1.6e9, run="run-b")).cycles
    assert found is not None
    assert (found.a, found.b) == (pytest.approx(2e6, rel=1e-3), pytest.approx(2e6, rel=1e-3))
    assert found.ratio == pytest.approx(1)
    assert found.clocks == (pytest.approx(2e9), pytest.approx(1.6e9))
    assert found.moved


def test_slower_code_at_the_same_clock_is_slower_in_cycles() -> None:
    found = pair_of(clocked(1e-3, 2e9), clocked(1.25e-3, 2e9, run="run-b")).cycles
    assert found is not None
    assert found.ratio == pytest.approx(1.25)
    assert not found.moved


@pytest.mark.parametrize(("hertz", "moved"), [(1.981e9, False), (1.979e9, True), (2.019e9, False), (2.021e9, True)])
def test_a_clock_has_moved_from_one_percent_on(hertz: float, moved: bool) -> None:
    found = pair_of(clocked(1e-3, 2e9), clocked(1e-3, hertz, run="run-b")).cycles
    assert found is not None
    assert found.moved is moved


def test_only_processes_that_were_compared_count() -> None:
    """Of a session, those that both sides have."""
    a, b = clocked(1e-3, 2e9), clocked(1e-3, 1e9, run="run-b")[:4]
    strange = [change(a[-1], cycles=1.0)]
    sides = (
        side([*a[:-1], *strange], session="s", facts=GPU),
        side(b, "B", session="s", facts=GPU),
    )
    (pair,) = compare(*sides, {case_of().id: case_of()}).pairs
    assert pair.cycles is not None
    assert pair.cycles.clocks == (pytest.approx(2e9), pytest.approx(1e9))


def test_there_are_no_cycles_where_a_clock_is_not_known_or_not_the_same_kind() -> None:
    good, other = clocked(1e-3, 2e9), clocked(1e-3, 1e9, run="run-b")
    assert pair_of(good, [*other[:-1], change(other[-1], cycles=None)]).cycles is None
    assert pair_of(good, other, (GPU, HERE)).cycles is None
    for quantity in ("energy", "host_time"):
        a, b = ([change(one, quantity=quantity) for one in found] for found in (good, other))
        assert pair_of(a, b).cycles is None


def test_joules_times_hertz_are_no_reason_to_doubt_a_verdict() -> None:
    a, b = ([change(one, quantity="energy") for one in clocked(1.0, hertz)] for hertz in (2e9, 1e9))
    sides = side(a, facts=GPU), side([change(one, run="run-b") for one in b], "B", facts=GPU)
    (pair,) = compare(*sides, {case_of().id: case_of()}, drift=0.0).pairs
    assert (pair.verdict, pair.note) == ("same", "")


def test_the_mean_is_over_the_cases_of_one_quantity() -> None:
    """Energy doubles, and has no part in the mean of times."""
    cases = [case_of(size=n) for n in (1, 2, 3)]
    a, b = ([f for case in cases for f in figures(times(factor), case)] for factor in (1.0, 1.1))
    a += figures(times(), cases[0], quantity="energy")
    b += figures(times(2.0), cases[0], quantity="energy")
    found = both(a, b, *cases, quantity="all")
    assert len(found.pairs) == 4
    assert found.geomean is not None
    assert (found.geomean.cases, found.geomean.quantity, found.geomean.cache) == (3, "latency", "warm")
    assert found.geomean.ratio == pytest.approx(1.1)
    assert any("geometric mean 1.100x" in line and "over 3 cases by latency warm" in line for line in footer(found))
