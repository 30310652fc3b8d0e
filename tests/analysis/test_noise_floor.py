"""Noise floors from what is stored."""

from __future__ import annotations

from typing import Any

import pytest
from nights import FACTS, case, flat, nights, record, run_of, step

from opmark.analysis import noise_floor as module
from opmark.analysis.noise_floor import LEAST, NoiseEstimate, deviations, estimate_noise, spread
from opmark.schema import Environment, Run
from opmark.schema.record import SeriesKey
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
