"""Noise floors from what is stored."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from nights import FACTS, case, flat, nights, record, run_of, step

from opmark.analysis import noise_floor as module
from opmark.analysis.noise_floor import (
    LEAST,
    NoiseEstimate,
    SessionEstimate,
    deviations,
    estimate_noise,
    estimate_sessions,
    spread,
)
from opmark.schema import Environment, Run
from opmark.schema.record import SeriesKey
from opmark.stats.verdict import UNKNOWN_SESSIONS
from opmark.store.memory import MemoryStore

pytestmark = pytest.mark.verdicts

EXP = case()
UNKNOWN = SeriesKey("another", "torch-cpu", "torch", 2, "latency", "warm")


def series_of(one: Any) -> SeriesKey:
    return UNKNOWN._replace(case=one.id)


def learnt_floor(store: Any, facts: dict[str, Any], seconds: float, series: SeriesKey = UNKNOWN) -> float | None:
    """Of a case without a past."""
    found = estimate_noise(store, facts)
    return found.floor_for(series, seconds) if found else None


def same_revision(night: int) -> Run:
    return run_of(night, revision="0000001")


@pytest.mark.parametrize("processes", [2, 3, 5, 10])
def test_the_spread_of_processes_is_found_however_few_a_run_has(processes: int) -> None:
    cases = [(case("exp", shape=[i]), flat()) for i in range(40)]
    store = nights(cases, 10, noise=0.02, processes=processes)
    assert learnt_floor(store, FACTS, 1e-3) == pytest.approx(0.023, rel=0.2)


def test_a_step_between_runs_is_no_noise_of_processes() -> None:
    store = nights([(EXP, step(10, 1.5))], 20, noise=0.01, processes=5)
    assert learnt_floor(store, FACTS, 1e-3) == pytest.approx(0.01, rel=0.3)


def test_one_process_a_run_is_compared_with_the_run_before() -> None:
    cases = [(case("exp", shape=[i]), flat()) for i in range(20)]
    store = nights(cases, 20, noise=0.01, run=same_revision)
    assert learnt_floor(store, FACTS, 1e-3) == pytest.approx(0.012, rel=0.25)


@pytest.mark.parametrize(
    "run",
    [run_of, lambda night: run_of(night, revision="0000001+")],
    ids=["another revision every night", "files that had been changed"],
)
def test_runs_of_other_code_tell_nothing_of_noise(run: Any) -> None:
    assert learnt_floor(nights([(EXP, flat())], 40, run=run), FACTS, 1e-3) is None


def test_runs_of_other_software_tell_nothing_either() -> None:
    store = nights([(EXP, flat())], 40, run=same_revision, facts=lambda night: FACTS | {"torch": str(night)})
    assert learnt_floor(store, FACTS, 1e-3) is None


@pytest.mark.parametrize(
    "facts", [FACTS | {"backend": "numpy-cpu"}, FACTS | {"cpu": "another"}, FACTS | {"device": "cuda", "gpu": "a GPU"}]
)
def test_another_backend_or_machine_is_not_asked(facts: dict[str, Any]) -> None:
    assert learnt_floor(nights([(EXP, flat())], 20, processes=5), facts, 1e-3) is None


def test_too_little_is_not_enough() -> None:
    assert learnt_floor(nights([(EXP, flat())], 1, processes=LEAST - 1), FACTS, 1e-3) is None
    assert learnt_floor(nights([(EXP, flat())], 1, processes=LEAST), FACTS, 1e-3) is not None


def test_only_the_newest_runs_count() -> None:
    cases = [(case("exp", shape=[i]), flat()) for i in range(10)]
    store = nights(cases, 30, noise=0.2, processes=5)
    nights(cases, 20, noise=0.01, processes=5, store=store, run=lambda night: run_of(night + 50))
    assert learnt_floor(store, FACTS, 1e-3) == pytest.approx(0.012, rel=0.25)


def test_no_more_is_read_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FIGURES", 100)
    store = nights([(EXP, flat())], 30, processes=50)
    asked: list[str] = []
    read = store.figures

    def figures(**given: Any) -> Any:
        asked.extend(given["runs"])
        return read(**given)

    monkeypatch.setattr(store, "figures", figures)
    assert learnt_floor(store, FACTS, 1e-3) is not None
    assert asked == [run_of(29).id, run_of(28).id, run_of(27).id]


def test_what_the_scheduler_interrupted_is_no_noise() -> None:
    store, here = MemoryStore(), Environment.of(FACTS)
    store.begin(run_of(0))
    store.add_environment(here)
    calm = [record(EXP, 1e-3 * (1 + 0.001 * (i % 2)), here.id, process=i) for i in range(20)]
    torn = [record(EXP, 9e-3, here.id, process=20 + i, cautions=["preempted"]) for i in range(30)]
    store.extend(run_of(0).id, [*calm, *torn])
    found = learnt_floor(store, FACTS, 1e-3)
    assert found is not None
    assert found < 0.002


def test_short_calls_have_a_floor_of_their_own() -> None:
    quick = [(case("exp", shape=[i]), flat(2e-6)) for i in range(20)]
    slow = [(case("add", shape=[i]), flat(2e-3)) for i in range(20)]
    store = nights(quick, 5, noise=0.05, processes=5)
    nights(slow, 5, noise=0.005, processes=5, store=store, run=lambda night: run_of(night + 10))
    assert learnt_floor(store, FACTS, 1e-6) == pytest.approx(0.06, rel=0.3)
    assert learnt_floor(store, FACTS, 2e-3) == pytest.approx(0.006, rel=0.3)
    assert learnt_floor(store, FACTS, 1.0) == 0.0  # of calls that long nothing is known


def test_a_case_is_as_noisy_as_its_own_past_and_no_quieter_than_nearly_all_others() -> None:
    quiet = [(case("exp", shape=[i]), flat()) for i in range(38)]
    loud = case("sort")
    store = nights(quiet, 5, noise=0.003, processes=5)
    nights([(loud, flat())], 5, noise=0.04, processes=5, store=store, run=lambda night: run_of(night + 10))
    found = estimate_noise(store, FACTS)
    assert found is not None
    assert found.floor_for(series_of(loud), 1e-3) == pytest.approx(0.04, rel=0.3)
    assert found.floor_for(series_of(quiet[0][0]), 1e-3) == found.floor_for(UNKNOWN, 1e-3) < 0.006


def test_of_many_cases_nearly_all_stay_below_what_is_learnt() -> None:
    quiet = [(case("exp", shape=[i]), flat()) for i in range(14)]
    loud = [(case("sort", shape=[i]), flat()) for i in range(6)]
    store = nights(quiet, 4, noise=0.003, run=same_revision)
    nights(loud, 4, noise=0.04, store=store, run=lambda night: same_revision(night + 10))
    assert (learnt_floor(store, FACTS, 1e-3) or 0.0) > 0.03


def test_an_empty_store_knows_nothing() -> None:
    assert estimate_noise(MemoryStore(), FACTS) is None


def test_a_short_past_may_have_missed_the_other_state_of_a_case() -> None:
    assert NoiseEstimate({UNKNOWN: 0.001}, {("latency", "warm", 3): 0.02}).floor_for(UNKNOWN, 1e-3) == 0.02
    assert NoiseEstimate({UNKNOWN: 0.05}, {("latency", "warm", 3): 0.02}).floor_for(UNKNOWN, 1e-3) == 0.05


def test_a_spread_counts_squares_so_that_a_state_of_few_processes_is_not_lost() -> None:
    assert deviations([1e-3]) == []
    assert spread([-0.1, 0.1]) == pytest.approx(0.1)
    assert spread([0.0, 0.0, 0.0, 0.06]) == pytest.approx(0.03)


# How far sessions spread.


def sessions(spread: float, count: int, seed: int = 3) -> Any:
    """Return the level of each night; all processes of a night share what it is off by."""
    off = [random.Random(seed + i).gauss(0, spread) for i in range(count)]
    return lambda night: 2e-3 * math.exp(off[night])


def estimated(store: Any, leave_out: tuple[str, ...] = ()) -> SessionEstimate:
    return estimate_sessions(store, FACTS, leave_out, lambda run: store.figures(runs=[run]))


def test_what_sessions_are_off_by_is_found_and_the_spread_of_processes_is_not() -> None:
    steady = estimated(nights([(EXP, flat())], 18, noise=0.01, processes=10, run=same_revision))
    moved = estimated(nights([(EXP, sessions(0.05, 18))], 18, noise=0.01, processes=10, run=same_revision))
    assert (steady.runs, steady.own[series_of(EXP)].freedom) == (18, 17)
    assert steady.own[series_of(EXP)].deviation == pytest.approx(0.01 / math.sqrt(10), rel=0.5)
    assert moved.own[series_of(EXP)].deviation == pytest.approx(0.05, rel=0.4)


def test_a_part_of_the_spread_is_assumed_and_the_less_the_more_runs_there_are() -> None:
    found = [
        estimated(nights([(EXP, flat())], count, noise=0.001, processes=5, run=same_revision)) for count in (1, 4, 19)
    ]
    spreads = [one.spread_for(series_of(EXP), 1e-3, clocked=False) for one in found]
    assert spreads[0] == UNKNOWN_SESSIONS
    assert spreads[0].deviation > spreads[1].deviation > spreads[2].deviation > 0.005
    assert [one.freedom for one in spreads] == [6, 9, 24]
    assert found[2].spread_for(series_of(EXP), 1e-3, clocked=True).deviation < spreads[2].deviation


def test_runs_that_are_compared_tell_nothing_of_their_own_difference() -> None:
    store = nights([(EXP, step(5, 1.5))], 6, noise=0.001, processes=5, run=same_revision)
    assert estimated(store).own[series_of(EXP)].deviation > 0.1
    assert estimated(store, (run_of(5).id,)).own[series_of(EXP)].deviation < 0.01


@pytest.mark.parametrize(
    ("run", "facts"),
    [
        (run_of, lambda night: FACTS),
        (lambda night: run_of(night, revision="0000001+"), lambda night: FACTS),
        (same_revision, lambda night: FACTS | {"torch": str(night)}),
        (lambda night: run_of(night, revision="0000001", session="turns"), lambda night: FACTS),
    ],
    ids=["another revision every night", "files that had been changed", "other software", "measured in turns"],
)
def test_runs_of_other_code_tell_nothing_of_sessions(run: Any, facts: Any) -> None:
    found = estimated(nights([(EXP, flat())], 10, processes=5, run=run, facts=facts))
    assert (found.own, found.runs) == ({}, 0)


def test_a_host_name_that_differs_is_no_other_software() -> None:
    facts: Any = lambda night: FACTS | {"machine": f"node{night}"}  # noqa: E731
    assert estimated(nights([(EXP, flat())], 10, processes=5, run=same_revision, facts=facts)).runs == 10


def test_each_quantity_has_its_own_spread() -> None:
    """A case without a past takes that of others of its quantity, and of no other quantity."""
    store = nights([(EXP, sessions(0.05, 10))], 10, noise=0.001, processes=5, run=same_revision)
    found = estimated(store)
    assert found.spread_for(UNKNOWN, 2e-3, clocked=False).deviation > 0.025
    assert found.spread_for(UNKNOWN._replace(quantity="host_time"), 2e-3, clocked=False) == UNKNOWN_SESSIONS
    assert found.spread_for(UNKNOWN, 1e-6, clocked=False) == UNKNOWN_SESSIONS
