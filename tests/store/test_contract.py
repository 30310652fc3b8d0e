"""What every store does alike: in memory, in SQLite, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from opmark.schema import Environment, Record, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Figure
from opmark.store.protocol import Store

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]


def numbers(records: list[Record]) -> list[int]:
    return [record.task.case.params["shape"][0] for record in records]


def test_records_come_in_the_order_written(any_store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    any_store.begin(make_run())
    for n in (5, 1, 4, 2, 3):
        any_store.append(make_run().id, make_record(n))
    assert numbers(any_store.records(make_run().id)) == [5, 1, 4, 2, 3]


def test_a_run_has_its_own_records_only(any_store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    for n in (1, 2):
        any_store.begin(make_run(f"run {n}"))
    for run, n in (("run 1", 1), ("run 2", 2), ("run 1", 3)):
        any_store.append(run, make_record(n))
    assert numbers(any_store.records("run 1")) == [1, 3]
    assert any_store.records("run 3") == []


def test_a_task_has_one_record_in_a_run(any_store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    """Also where a run is resumed while the first process still writes to it."""
    any_store.begin(make_run("run"))
    any_store.append("run", make_record(1))
    any_store.append("run", make_record(1, status="error"))
    assert [record.status for record in any_store.records("run")] == ["ok"]


def test_many_at_once_tell_how_many_were_new(any_store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    any_store.begin(make_run("run"))
    assert any_store.extend("run", []) == 0
    assert any_store.extend("run", [make_record(n) for n in (3, 1)]) == 2
    assert any_store.extend("run", [make_record(n) for n in (1, 2, 3, 4)]) == 2
    assert any_store.extend("run", [make_record(4)]) == 0
    assert numbers(any_store.records("run")) == [3, 1, 2, 4]


def test_runs_come_newest_first_whatever_their_ids_say(any_store: Store, make_run: MakeRun) -> None:
    for name in ("b", "c", "a"):
        any_store.begin(make_run(name))
    any_store.begin(make_run("of last year", started="2029-01-01T00:00:00.000+00:00"))
    assert [run.id for run in any_store.runs()] == ["a", "c", "b", "of last year"]
    assert [run.id for run in any_store.runs(limit=2)] == ["a", "c"]


def test_a_run_comes_back_with_all_that_was_said_at_its_begin(any_store: Store, make_run: MakeRun) -> None:
    run = make_run(label="l", command="c", version="v", session="s", revision="r+", description="d")
    any_store.begin(run)
    assert any_store.runs() == [run]


def test_the_last_note_counts(any_store: Store, make_run: MakeRun) -> None:
    any_store.begin(make_run("one", label="first", description="as begun"))
    any_store.begin(make_run("two", label="other"))
    for label in ("second", "third"):
        any_store.note("one", "label", label)
    any_store.note("two", "description", "of two")
    said = {run.id: (run.label, run.description) for run in any_store.runs()}
    assert said == {"one": ("third", "as begun"), "two": ("other", "of two")}
    any_store.note("one", "label", "")
    assert any_store.runs()[1].label == ""


def fill(store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    for run in ("one", "two"):
        store.begin(make_run(run))
    store.append("one", make_record(1, [1.0, 3.0, 2.0], [5.0], environment="e", started="s"))
    store.append("two", make_record(1, [2.0], process=1))
    store.append("one", make_record(2, status="error", reason="broken"))


def test_figures_are_the_medians_of_what_was_measured(
    any_store: Store, make_run: MakeRun, make_record: MakeRecord
) -> None:
    fill(any_store, make_run, make_record)
    case, other = (make_record(n).task.case.id for n in (1, 2))
    who = (case, "add", "null", "null", 2)
    first = [
        Figure("one", *who, 0, "ok", "e", "s", "quantity 0", "warm", 2.0),
        Figure("one", *who, 0, "ok", "e", "s", "quantity 1", "warm", 5.0),
    ]
    failed = Figure("one", other, *who[1:], 0, "error", "", "")
    second = Figure("two", *who, 1, "ok", "", "", "quantity 0", "warm", 2.0)
    assert any_store.figures(runs=["one"]) == [*first, failed]
    assert any_store.figures(runs=["two"], case=case) == [second]
    assert any_store.figures(runs=["two"], case=other) == []
    assert any_store.figures(runs=[]) == []
    assert sorted(any_store.figures(case=case), key=lambda figure: figure.run) == [*first, second]
    assert len(any_store.figures()) == 4
    assert any_store.figures(runs=["none", *map(str, range(2000)), "two"]) == [second]


def test_cases_are_told_by_their_ids_without_what_is_the_records_own(
    any_store: Store, make_run: MakeRun, make_record: MakeRecord
) -> None:
    fill(any_store, make_run, make_record)
    case = make_record(1).task.case
    found = any_store.cases(iter([case.id, "unknown"]))
    assert list(found) == [case.id]
    assert (found[case.id].op, found[case.id].params, found[case.id].tags) == (case.op, case.params, ())


def test_counts_above_one_are_told_by_case(any_store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    fill(any_store, make_run, make_record)
    any_store.begin(make_run("weighted"))
    records = [make_record(n) for n in (1, 2)]
    first = replace(records[0].task, case=replace(records[0].task.case, count=12, duration=1e-3))
    any_store.extend("weighted", [replace(records[0], task=first), records[1]])
    assert any_store.counts("weighted") == {first.case.id: 12}
    assert any_store.records("weighted")[0].task.case.duration == 1e-3
    assert any_store.counts("unknown") == {}


def test_only_the_environments_asked_for_come_back(any_store: Store) -> None:
    one, two = (Environment.of({"cpu": name}) for name in "xy")
    for environment in (one, two, two):
        any_store.add_environment(environment)
    assert any_store.environments(iter([two.id, "unknown"])) == {two.id: two}


def test_the_newest_finding_of_a_kind_and_a_chip_is_the_one_that_counts(any_store: Store) -> None:
    """Newest by when it was found: one of another machine may come later."""
    any_store.keep("peaks", "Fast 9000", "2030", {"flops": 1})
    any_store.keep("peaks", "Fast 9000", "2029", {"flops": 2})
    any_store.keep("peaks", "Slow 1", "2031", {"flops": 3})
    any_store.keep("peaks", "Slow 1", "2031", {"flops": 4})
    any_store.keep("noise", "Fast 9000", "2031", {"floor": [0.01, None]})
    assert any_store.kept("peaks", "Fast 9000") == {"flops": 1}
    assert any_store.kept("peaks", "Slow 1") == {"flops": 4}
    assert any_store.kept("noise", "Fast 9000") == {"floor": [0.01, None]}
    assert any_store.kept("noise", "Slow 1") is None
    found = any_store.findings()
    assert found[1] == MachineFinding("peaks", "Fast 9000", "2029", {"flops": 2})
    assert [finding.started for finding in found] == ["2030", "2029", "2031", "2031", "2031"]


def test_what_is_removed_is_gone_and_nothing_else(any_store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    fill(any_store, make_run, make_record)
    any_store.note("one", "label", "x")
    any_store.keep("peaks", "x", "2030", 1)
    any_store.remove(["one", "never there"])
    assert [run.id for run in any_store.runs()] == ["two"]
    assert any_store.records("one") == []
    assert numbers(any_store.records("two")) == [1]
    assert {figure.run for figure in any_store.figures()} == {"two"}
    assert any_store.kept("peaks", "x") == 1
    any_store.remove([])
    any_store.begin(make_run("one"))
    assert any_store.runs()[0].label == ""
