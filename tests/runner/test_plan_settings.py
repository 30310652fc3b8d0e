"""How a person wants things measured, in words, as settings."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.hardware.host import affinity
from opmark.plugin.registry import operator
from opmark.runner.plan import make_plan, settings_for
from opmark.schema import CACHES, EFFORTS, MODES, PROCESSES, QUANTITIES, Case, Sampling, Settings, Task
from opmark.schema.load import Load
from opmark.schema.options import LONGEST, MOST_PROCESSES, MOST_SAMPLES, MOST_THREADS, TIMERS, MeasureOptions
from opmark.schema.task import _fields_in_id


def one(**asked: Any) -> Settings:
    (settings,) = settings_for(MeasureOptions(**{"threads": [1], "effort": "quick", **asked}))
    return settings


def rule(**sampling: Any) -> Sampling:
    return one(**sampling).sampling


# Threads, effort, seed.


def test_without_threads_it_is_every_core_that_may_be_used() -> None:
    assert one(threads=[]).threads == len(affinity())


def test_a_number_of_threads_counts_once() -> None:
    assert [s.threads for s in settings_for(MeasureOptions(threads=[2, 1, 2], effort="quick"))] == [2, 1]


@pytest.mark.parametrize("effort", EFFORTS)
def test_an_effort_is_its_sampling(effort: str) -> None:
    first, *_ = settings_for(MeasureOptions(threads=[1], effort=effort, seed=7, verify=False))
    assert (first.effort, first.sampling) == (effort, EFFORTS[effort])
    assert (first.seed, first.verify) == (7, False)


def test_an_unknown_effort_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no effort named `quik`") as caught:
        settings_for(MeasureOptions(effort="quik"))
    assert "`quick`" in (caught.value.hint or "")


# Processes.


@pytest.mark.parametrize("effort", EFFORTS)
def test_an_effort_brings_its_number_of_processes(effort: str) -> None:
    assert len(settings_for(MeasureOptions(threads=[1], effort=effort))) == PROCESSES[effort]


def test_a_number_of_processes_goes_above_that_of_the_effort() -> None:
    assert [s.process for s in settings_for(MeasureOptions(threads=[1], effort="thorough", processes=2))] == [0, 1]
    assert [s.process for s in settings_for(MeasureOptions(threads=[1], effort="quick", processes=3))] == [0, 1, 2]


def test_a_round_of_processes_has_every_number_of_threads() -> None:
    found = [(s.process, s.threads) for s in settings_for(MeasureOptions(threads=[4, 2], effort="quick", processes=2))]
    assert found == [(0, 4), (0, 2), (1, 4), (1, 2)]


# Names.


def test_names_are_kept_in_the_order_asked_for_and_once_each() -> None:
    found = one(quantity=["throughput", "latency", "throughput"], cache=["warm", "cold", "warm"], timer="events")
    assert (found.quantities, found.caches, found.timer) == (("throughput", "latency"), ("warm", "cold"), "events")


def test_nothing_asked_for_is_left_to_the_backend() -> None:
    found = one()
    assert (found.quantities, found.caches, found.mode, found.timer, found.process) == ((), (), "", "", 0)


@pytest.mark.parametrize(
    ("asked", "message", "near"),
    [
        ({"quantity": ["latency", "devicetime"]}, "no quantity named `devicetime`", "device_time"),
        ({"cache": ["warm", "clod"]}, "no cache named `clod`", "cold"),
        ({"mode": "discreet"}, "no mode named `discreet`", "discrete"),
        ({"timer": "event"}, "no timer named `event`", "events"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(asked: dict[str, Any], message: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        one(**asked)
    assert caught.value.message == message
    assert f"`{near}`" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ({"quantity": ["zzz"]}, QUANTITIES),
        ({"cache": ["zzz"]}, CACHES),
        ({"mode": "zzz"}, MODES),
        ({"timer": "zzz"}, TIMERS),
        ({"effort": "zzz"}, EFFORTS),
    ],
)
def test_a_name_like_none_lists_those_there_are(asked: dict[str, Any], known: Any) -> None:
    with pytest.raises(UnknownName) as caught:
        one(**asked)
    assert all(name in (caught.value.hint or "") for name in known)


@pytest.mark.parametrize("name", ["", "Latency", "latency "])
def test_a_quantity_that_is_nearly_right_is_wrong(name: str) -> None:
    with pytest.raises(UnknownName):
        one(quantity=[name])


@pytest.mark.parametrize(("mode", "quantity"), MODES.items())
def test_a_mode_does_not_go_with_a_quantity(mode: str, quantity: str) -> None:
    assert one(mode=mode).mode == mode
    with pytest.raises(UserError, match=f"{mode}: {quantity}") as caught:
        one(mode=mode, quantity=["latency"])
    assert "--quantity" in (caught.value.hint or "")


# Numbers.


WHOLE = [
    ("threads", lambda value: settings_for(MeasureOptions(threads=[1, value])), 1, MOST_THREADS),
    ("processes", lambda value: one(processes=value), 1, MOST_PROCESSES),
    ("seed", lambda value: one(seed=value), 0, 2**63 - 1),
    ("warmup", lambda value: rule(warmup=value), 0, MOST_SAMPLES),
    ("samples", lambda value: rule(samples=value), 1, MOST_SAMPLES),
    ("min_samples", lambda value: rule(min_samples=value), 1, MOST_SAMPLES),
]


@pytest.mark.parametrize(("name", "make", "least", "most"), WHOLE, ids=[row[0] for row in WHOLE])
def test_a_whole_number_out_of_its_range_is_refused(name: str, make: Any, least: int, most: int) -> None:
    for value in [least - 1, -1, most + 1, 10**20, 1.0, 1.5, "2", True, math.nan]:
        with pytest.raises(InvalidParameter, match=rf"^{name}: expected a whole number .*{least}") as caught:
            make(value)
        assert repr(value) in caught.value.message
        assert f"--{name.replace('_', '-')}" in (caught.value.hint or "")


@pytest.mark.parametrize(("name", "make", "least", "most"), WHOLE[2:], ids=[row[0] for row in WHOLE[2:]])
def test_the_ends_of_the_range_of_a_whole_number_are_taken(name: str, make: Any, least: int, most: int) -> None:
    for value in (least, most):
        assert make(value)


@pytest.mark.parametrize("name", ["min_time", "max_time", "rel_ci"])
@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, math.inf, -math.inf, "x", True, [1.0], 2 * LONGEST])
def test_a_number_out_of_its_range_is_refused_with_a_hint(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}: expected") as caught:
        rule(**{name: value})
    assert caught.value.hint


def test_an_interval_wider_than_the_median_is_no_aim() -> None:
    assert rule(rel_ci=1.0).rel_ci == 1.0
    with pytest.raises(
        InvalidParameter, match=r"rel_ci: expected a fraction of the median above 0 and up to 1, got 1\.5"
    ):
        rule(rel_ci=1.5)


def test_what_is_not_given_is_that_of_the_effort() -> None:
    assert rule(rel_ci=None, min_time=None, max_time=None, warmup=None, samples=None) == EFFORTS["quick"]
    found = rule(warmup=7, samples=9)
    assert (found.rel_ci, found.warmup, found.samples) == (EFFORTS["quick"].rel_ci, 7, 9)
    assert (found.min_time, found.max_time) == (EFFORTS["quick"].min_time, EFFORTS["quick"].max_time)


@pytest.mark.parametrize("other", ["rel_ci", "min_time", "max_time", "min_samples"])
def test_a_fixed_number_of_samples_leaves_no_other_rule(other: str) -> None:
    with pytest.raises(InvalidParameter, match="fixed number of samples") as caught:
        rule(samples=9, **{other: 1})
    assert caught.value.hint


@pytest.mark.parametrize("timer", ["events", "graph"])
def test_a_timer_that_cannot_tell_what_is_asked_for_is_refused(timer: str) -> None:
    with pytest.raises(UserError, match="cannot tell device_time"):
        settings_for(MeasureOptions(timer=timer, quantity=["device_time"]))
    assert settings_for(MeasureOptions(timer=timer, quantity=["device_time", "device_span"]))


def test_a_mode_has_its_own_timer() -> None:
    with pytest.raises(UserError, match="in its own way"):
        settings_for(MeasureOptions(mode="discrete", timer="graph"))


# The least and the most time.


def test_both_times_are_taken_as_they_are() -> None:
    found = rule(min_time=0.25, max_time=0.5)
    assert (found.min_time, found.max_time) == (0.25, 0.5)


def test_a_long_minimum_raises_the_budget() -> None:
    least = 10 * EFFORTS["quick"].max_time
    found = rule(min_time=least)
    assert (found.min_time, found.max_time) == (least, least)


def test_a_short_budget_is_kept() -> None:
    most = EFFORTS["quick"].min_time / 10
    found = rule(max_time=most)
    assert (found.min_time, found.max_time) == (most, most)


def test_a_minimum_above_the_maximum_is_a_contradiction() -> None:
    with pytest.raises(InvalidParameter, match=r"min_time 2 s is longer than max_time 1 s") as caught:
        rule(min_time=2, max_time=1)
    assert caught.value.hint


times = st.none() | st.floats(1e-6, 1e3)


@given(times, times, st.sampled_from(sorted(EFFORTS)))
def test_a_time_that_was_asked_for_is_the_one_that_counts(least: float | None, most: float | None, effort: str) -> None:
    if least is not None and most is not None and least > most:
        least, most = most, least
    (first, *_) = settings_for(MeasureOptions(threads=[1], effort=effort, min_time=least, max_time=most))
    found = first.sampling
    assert found.min_time <= found.max_time
    assert least in (None, found.min_time)
    assert most in (None, found.max_time)


@pytest.mark.parametrize(("told", "threads"), [("3", 3), ("", None), ("0", None), ("1,2", None), ("many", None)])
def test_the_environment_says_how_many_threads_there_are(
    told: str, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert [s.threads for s in settings_for(MeasureOptions(processes=1))] == [threads or len(affinity())]


# Load.


def test_each_number_of_clients_and_each_rate_is_a_setting_of_its_own() -> None:
    asked = MeasureOptions(
        threads=[1], effort="quick", clients=[1, 4, 1], arrival="poisson", rate=[50.0, 100.0], requests=10,
        request_timeout=2.0,
    )  # fmt: skip
    found = [settings.load for settings in settings_for(asked)]
    assert found == [Load(clients, 10, "poisson", rate, 2.0) for clients in (1, 4) for rate in (50.0, 100.0)]


def test_without_an_option_of_a_load_there_is_none() -> None:
    assert one().load is None


@pytest.mark.parametrize(
    ("asked", "load"),
    [
        ({"clients": 3}, Load(3)),
        ({"requests": 7}, Load(1, 7)),
        ({"quantity": "request_latency"}, Load(1)),
        ({"quantity": "request_latency", "clients": 2}, Load(2)),
        ({"arrival": "constant", "rate": 20}, Load(1, 100, "constant", 20)),
    ],
)
def test_any_option_of_a_load_asks_for_one(asked: dict[str, Any], load: Load) -> None:
    assert one(**asked).load == load


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rate": 5.0}, "--rate is for requests that are due at given times"),
        ({"clients": 2, "arrival": "closed", "rate": 5.0}, "--rate is for requests that are due at given times"),
        ({"arrival": "poisson"}, "--arrival poisson needs a rate"),
        ({"clients": 2, "compile_only": True}, "which has no --compile-only"),
        ({"clients": 2, "mode": "discrete"}, "which has no --mode"),
        ({"clients": 2, "cache": "cold"}, "which has no --cache: requests follow each other"),
        ({"clients": 2, "timer": "events"}, "which has no --timer"),
        ({"requests": 2, "samples": 5}, "--requests puts a case under load, which has no --samples: --requests says"),
        ({"clients": 2, "max_time": 5.0}, "which has no --max-time"),
        ({"clients": 2, "quantity": "latency"}, "--clients measures request_latency, not latency"),
        ({"arrival": "constant", "rate": 1.0}, r"100 requests at 1 per second take 100 s, longer than a task may take"),
    ],
)
def test_what_contradicts_a_load_is_refused_with_a_hint(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        one(**asked)
    assert caught.value.hint


@pytest.mark.parametrize("asked", [{"clients": 0}, {"rate": 0.0}, {"rate": [5.0, -1]}, {"requests": 0}])
def test_a_load_of_nothing_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=f"^{next(iter(asked))}: expected"):
        MeasureOptions(**asked)


def test_ranks_have_no_clients() -> None:
    case = Case.of("all_reduce", operator("all_reduce").complete({"size": 1024, "ranks": 2}), "forward")
    plan = make_plan([case], ["torch-cpu"], [one(clients=2)], may_be_empty=True)
    assert [record.reason for record in plan.skipped] == [
        "ranks do a call together: clients of one process cannot send it"
    ]


def test_loads_are_different_tasks_and_a_task_without_load_keeps_its_id() -> None:
    case = Case.of("add", operator("add").complete({"shape": [4]}), "forward")
    tasks = [Task(case, "null", "null", one(**asked)) for asked in ({}, {"clients": 1}, {"clients": 2})]
    assert len({task.id for task in tasks}) == 3
    assert "load" not in _fields_in_id(tasks[0].settings)
