"""Change points over many stored runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from nights import FACTS, case, flat, nights, record, run_of, step, upgraded

from opmark.analysis.history import FEWEST, HistoryQuery, followed, histories
from opmark.errors import UnknownName, UserError
from opmark.schema import Environment, Run
from opmark.schema.machine import Floor, NoiseFloor
from opmark.store.memory import MemoryStore
from opmark.store.runs import noise_under

pytestmark = pytest.mark.verdicts

EXP, ADD, MATMUL = case(), case("add"), case("matmul", shape=[8])


def test_a_step_is_told_with_the_runs_around_it_and_what_else_changed() -> None:
    store = nights([(EXP, step(60, 1.04))], facts=upgraded, processes=3)
    (history,) = histories(store, HistoryQuery()).series
    (change,) = history.changes
    assert (change.before.id, change.after.id) == (run_of(59).id, run_of(60).id)
    assert (change.after.label, change.after.revision) == ("nightly", f"{60:07x}")
    assert change.direction == "slower"
    assert change.low < 1.04 < change.high
    assert change.p < 1e-6
    assert change.sure
    assert change.differing == {"torch": ("2.12", "2.13")}  # the host is another every night and explains nothing
    assert history.last == pytest.approx(1, abs=0.02)
    assert history.level == pytest.approx(1.04e-3, rel=0.01)


def test_a_small_step_of_a_young_series_is_not_listed_but_shown_when_asked_for() -> None:
    store = nights([(EXP, step(20, 1.05))], count=30, noise=0.003)
    found = histories(store, HistoryQuery())
    assert (found.series, found.unsettled, found.unsure) == ([], 1, 0)
    for query, everything in ((HistoryQuery(ops=["exp"]), False), (HistoryQuery(), True)):
        ((change,),) = (one.changes for one in histories(store, query, everything=everything).series)
        assert (change.settled, change.sure, change.after.id) == (False, False, run_of(20).id)
    large = histories(nights([(EXP, step(20, 1.2))], count=30, noise=0.003), HistoryQuery())
    assert [change.sure for one in large.series for change in one.changes] == [True]


def test_drifts_and_states_are_counted_and_are_no_changes() -> None:
    store = nights([
        (EXP, lambda night: 1e-3 * (1 + 0.0006 * night)),
        (ADD, lambda night: 1e-3 * (1.05 if night // 5 % 2 else 1.0)),
        (MATMUL, flat()),
    ], noise=0.004)  # fmt: skip
    found = histories(store, HistoryQuery())
    assert (found.series, found.drifting, found.alternating) == ([], 1, 1)
    shown = {one.op: one for one in histories(store, HistoryQuery(), everything=True).series}
    assert shown["exp"].drift == pytest.approx(1.06, abs=0.01)
    assert shown["add"].states == (pytest.approx(1e-3, rel=0.01), pytest.approx(1.05e-3, rel=0.01))
    assert (shown["matmul"].drift, shown["matmul"].states) == (None, None)
    assert not any(one.changes or one.warning for one in shown.values())


def test_what_got_faster_is_said_so() -> None:
    (history,) = histories(nights([(EXP, step(40, 0.9))]), HistoryQuery()).series
    assert [change.direction for change in history.changes] == ["faster"]
    assert history.changes[0].differing == {}


def test_without_a_name_only_what_changed_is_listed_and_the_newest_change_first() -> None:
    store = nights([(EXP, step(20, 1.1)), (ADD, flat()), (MATMUL, step(80, 1.1))])
    found = histories(store, HistoryQuery())
    assert [history.op for history in found.series] == ["matmul", "exp"]
    assert (found.looked, found.short) == (3, 0)
    assert [history.op for history in histories(store, HistoryQuery(), everything=True).series] == [
        "matmul",
        "exp",
        "add",
    ]


def test_what_is_named_is_told_even_if_nothing_changed() -> None:
    store = nights([(EXP, flat()), (ADD, flat())], count=20)
    (history,) = histories(store, HistoryQuery(ops=["add"])).series
    assert (history.op, history.changes, len(history.points)) == ("add", (), 20)


@pytest.mark.parametrize(
    ("asked", "ops"),
    [
        (HistoryQuery(ops=["a*"]), {"add"}),
        (HistoryQuery(ops=["exp", "add"]), {"exp", "add"}),
        (HistoryQuery(case=EXP.id), {"exp"}),
        (HistoryQuery(case=EXP.id[:6]), {"exp"}),
        (HistoryQuery(ops=["*"], params={"shape": [8]}), {"matmul"}),
        (HistoryQuery(ops=["*"], params={"shape": [[8], [9]]}), {"matmul"}),
        (HistoryQuery(ops=["*"], backends=["torch*"]), {"exp", "add", "matmul"}),
    ],
)
def test_series_are_chosen(asked: HistoryQuery, ops: set[str]) -> None:
    store = nights([(EXP, flat()), (ADD, flat()), (MATMUL, flat())], count=3)
    assert {history.op for history in histories(store, asked).series} == ops


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (HistoryQuery(ops=["exo"]), "no stored case is exo"),
        (HistoryQuery(ops=["exp"], params={"shape": [7]}), r"no stored case is exp shape=\[7\]"),
        (HistoryQuery(ops=["exp"], phases=["backward"]), "no stored case is exp backward"),
        (HistoryQuery(ops=["exp"], backends=["jax-cpu"]), "no run has measured exp jax-cpu"),
        (HistoryQuery(quantity="energy"), "no run has measured energy"),
        (HistoryQuery(label="weekly"), "no run is left"),
        (HistoryQuery(since="2040-01-01"), "no run is left"),
        (HistoryQuery(last=0), "expected 1 or more, got 0"),
        (HistoryQuery(quantity="latncy"), "no quantity named `latncy`"),
    ],
)
def test_what_is_not_there_is_the_users_mistake(asked: HistoryQuery, said: str) -> None:
    with pytest.raises(UserError, match=said):
        histories(nights([(EXP, flat())], count=3), asked)


def test_a_store_of_failures_has_no_history() -> None:
    store = MemoryStore()
    store.begin(run_of(0))
    store.append(run_of(0).id, record(EXP, None, ""))
    with pytest.raises(UserError, match="no run has measured anything"):
        histories(store, HistoryQuery())


def test_an_unknown_quantity_comes_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as raised:
        histories(nights([(EXP, flat())], count=1), HistoryQuery(quantity="latncy"))
    assert raised.value.hint is not None
    assert "latency" in raised.value.hint


def test_runs_are_followed_in_the_order_of_time_whatever_that_of_the_store_is() -> None:
    runs = [run_of(2), run_of(0, label="weekly"), run_of(1), run_of(3, session="ab")]
    assert [run.id for run in followed(runs, HistoryQuery())] == [run_of(i).id for i in (0, 1, 2)]
    assert [run.id for run in followed(runs, HistoryQuery(label="night*"))] == [run_of(i).id for i in (1, 2)]
    assert [run.id for run in followed(runs, HistoryQuery(last=1))] == [run_of(2).id]
    assert [run.id for run in followed(runs, HistoryQuery(since=run_of(1).started))] == [run_of(i).id for i in (1, 2)]
    assert [run.id for run in followed(runs, HistoryQuery(sessions=True))] == [run_of(i).id for i in (0, 1, 2, 3)]


def test_a_merged_store_gives_the_same_answer() -> None:
    whole = nights([(EXP, step(60, 1.05))], 100)
    merged = MemoryStore()
    for run in whole.runs():  # newest first: the other way round
        merged.begin(run)
        merged.extend(run.id, whole.records(run.id))
    merged.add_environment(Environment.of(FACTS))
    assert histories(merged, HistoryQuery()) == histories(whole, HistoryQuery())


def test_too_few_runs_say_nothing_of_a_level() -> None:
    found = histories(nights([(EXP, step(2, 2.0))], count=FEWEST - 1), HistoryQuery(ops=["exp"]))
    assert (found.looked, found.short) == (0, 1)
    assert found.series[0].changes == ()


def test_one_run_is_a_history_too() -> None:
    (history,) = histories(nights([(EXP, flat())], count=1), HistoryQuery(ops=["exp"])).series
    assert (history.last, history.changes, history.warning) == (1.0, (), False)


def test_the_newest_runs_out_of_line_are_a_warning_before_they_are_a_change() -> None:
    (history,) = histories(nights([(EXP, step(38, 1.3)), (ADD, flat())], count=40), HistoryQuery()).series
    assert history.changes == ()
    assert history.warning
    assert history.last == pytest.approx(1.3, rel=0.05)


def test_another_chip_is_another_series_and_another_host_is_not() -> None:
    def facts(night: int) -> dict[str, Any]:
        return FACTS | {"cpu": ("a processor", "another")[night % 2], "machine": f"host{night}"}

    found = histories(nights([(EXP, flat())], count=20, facts=facts), HistoryQuery(ops=["exp"])).series
    assert {(history.chip, len(history.points)) for history in found} == {("a processor", 10), ("another", 10)}


def test_the_floor_is_that_of_the_doctor_where_there_is_one() -> None:
    store = nights([(EXP, step(50, 1.05))], processes=5)
    asked = HistoryQuery(ops=["exp"])
    (history,) = histories(store, asked).series
    assert history.floor == pytest.approx(0.01, rel=0.3)  # from its processes
    assert len(history.changes) == 1
    floor = NoiseFloor("a processor", "torch-cpu", 2, "", 10, 16, [Floor("exp", "", 1e-3, 0.05, 0.01)])
    store.keep("noise", noise_under("torch-cpu", FACTS), "2030-01-01", floor)
    (history,) = histories(store, asked).series
    assert history.floor == 0.05
    assert history.changes == ()  # three floors of five processes together are 6.7 %


def test_the_margin_is_the_least_change() -> None:
    store = nights([(EXP, step(50, 1.05))], noise=0.003)
    assert len(histories(store, HistoryQuery()).series) == 1
    assert histories(store, HistoryQuery(), margin=0.1).series == []


def test_chance_among_many_series_is_not_listed_as_news() -> None:
    """Noise of one night in five hundred series: some of them look like a change, and none of these is listed."""
    cases = [(case("exp", shape=[i]), flat()) for i in range(500)]
    found = histories(nights(cases, 40, seed=3), HistoryQuery())
    assert (found.looked, found.by_chance) == (500, 1.0)
    assert len(found.series) <= 1
    assert all(change.sure for history in found.series for change in history.changes)


def test_a_change_that_may_be_chance_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.stats.change_point import Change, SeriesShape

    cases = [(case("exp", shape=[100 + i]), flat()) for i in range(30)]
    store = nights([(EXP, step(10, 2.0)), (ADD, flat(1e-6)), *cases], 20)

    def seen(values: list[float], floor: float, margin: float) -> SeriesShape:
        p = 1e-9 if max(values) > 1.5e-3 else 0.009 if max(values) < 1e-5 else 1.0
        return SeriesShape([Change(10, 1e-3, 1.03e-3, 1.03, 1.01, 1.05, p)] if p < 1 else [])

    monkeypatch.setattr("opmark.analysis.history.describe_series", seen)
    found = histories(store, HistoryQuery())
    assert [history.case for history in found.series] == [EXP.id]
    assert found.unsure == 1
    everything = histories(store, HistoryQuery(), everything=True).series
    assert {change.sure for history in everything for change in history.changes} == {True, False}


def test_cases_of_every_plan_are_found() -> None:
    store = nights([(EXP, flat())], 8)

    def weekly(night: int) -> Run:
        return replace(run_of(night, plan="weekly", label="weekly"), id=f"weekly-{night}")

    nights([(ADD, flat())], 2, store=store, run=weekly)
    found = histories(store, HistoryQuery(ops=["*"])).series
    assert {(history.op, len(history.points)) for history in found} == {("exp", 8), ("add", 2)}


def test_a_newest_run_that_was_cut_short_hides_no_case() -> None:
    store = nights([(EXP, flat()), (ADD, flat())], 8)
    store.begin(run_of(9, tasks=2))
    store.append(run_of(9).id, record(EXP, 1e-3, Environment.of(FACTS).id))
    assert {history.op for history in histories(store, HistoryQuery(ops=["*"])).series} == {"exp", "add"}


def test_an_operator_that_is_no_longer_installed_is_followed_all_the_same() -> None:
    (history,) = histories(nights([(case("gone_op"), step(50, 1.1))]), HistoryQuery()).series
    assert (history.op, len(history.changes)) == ("gone_op", 1)


@pytest.mark.parametrize("known", [True, False])
def test_a_change_knows_the_clocks_of_both_levels(known: bool) -> None:
    """Two steps: a slower clock, then slower code."""
    store, here = MemoryStore(), Environment.of(FACTS)
    store.add_environment(here)
    for night in range(90):
        clock = 2e9 if night < 30 else 1.6e9
        seconds = 2e6 / clock * (1.0 if night < 60 else 1.5) * (1 + 0.002 * (night % 3))
        store.begin(run_of(night))
        told = clock if known or night != 40 else None  # one run of the level in the middle does not know its clock
        store.append(run_of(night).id, record(EXP, seconds, here.id, clock=told))
    (history,) = histories(store, HistoryQuery()).series
    first, second = history.changes
    assert (first.ratio, second.ratio) == (pytest.approx(1.25, rel=0.01), pytest.approx(1.5, rel=0.01))
    if not known:
        assert first.clocks is second.clocks is first.cycles_ratio is None
        return
    assert first.clocks == (pytest.approx(2e9), pytest.approx(1.6e9))
    assert first.cycles_ratio == pytest.approx(1, rel=0.01)
    assert second.clocks == (pytest.approx(1.6e9), pytest.approx(1.6e9))
    assert second.cycles_ratio is None
