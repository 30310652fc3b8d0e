"""The library: what the command line does, as functions."""

from __future__ import annotations

import inspect
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

import opmark
from opmark.api.coverage import coverage
from opmark.api.describe import describe
from opmark.api.doctor import noise_floor
from opmark.api.export import export, export_workload
from opmark.api.list_ import list_
from opmark.api.result import open_store
from opmark.api.run import run
from opmark.catalogue.families.opinfo import entries
from opmark.cli.coverage import coverage as coverage_command
from opmark.cli.describe import describe as describe_command
from opmark.cli.doctor import doctor as doctor_command
from opmark.cli.list_ import list_ as list_command
from opmark.cli.rank import rank as rank_command
from opmark.cli.show import show as show_command
from opmark.errors import StoreError, UnknownName, UserError
from opmark.plugin.registry import backends, catalogue
from opmark.runner.doctor import doctor
from opmark.runner.executors import base as executor_module
from opmark.schema import EFFORTS, MODES, Case, Record, Run, Settings, Task

QUICK: dict[str, Any] = {"backend": "null", "effort": "quick", "threads": 1}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# The same names and the same defaults.


def defaults(function: Any) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


ONLY_COMMAND = {"as_json", "markdown", "output", "format", "long", "numerics", "wide", "no_color"}


def test_a_run_hands_every_setting_on_to_its_plan(db: Path) -> None:
    asked: dict[str, Any] = {
        "params": {"M": 8, "N": 8, "K": 8}, "phase": "backward", "wrt": "b", "backend": "null", "threads": 2,
        "effort": "quick", "quantity": ["throughput", "latency"], "cache": ["cold", "warm"], "processes": 2,
        "rel_ci": 0.5, "min_time": 0.001, "max_time": 0.002, "warmup": 3, "seed": 5, "verify": False,
    }  # fmt: skip
    whole = opmark.plan("matmul", **asked)
    result = opmark.run("matmul", db=db, **asked)
    assert [record.task for record in result.records] == list(whole.tasks)
    (settings, other) = (task.settings for task in whole.tasks)
    assert (settings.quantities, settings.caches) == (("throughput", "latency"), ("cold", "warm"))
    assert (settings.threads, settings.effort, settings.seed, settings.verify) == (2, "quick", 5, False)
    rule = settings.sampling
    assert (rule.rel_ci, rule.min_time, rule.max_time, rule.warmup) == (0.5, 0.001, 0.002, 3)
    assert opmark.plan("add", backend="null", samples=4).tasks[0].settings.sampling.samples == 4
    assert (settings.process, other.process) == (0, 1)
    assert {task.case.wrt for task in whole.tasks} == {("b",)}


def test_an_argument_that_nobody_knows_is_refused(db: Path) -> None:
    with pytest.raises(TypeError, match="smaples"):
        opmark.run("add", db=db, smaples=3, **QUICK)
    assert not db.exists()


@pytest.mark.parametrize(("mode", "quantity"), MODES.items())
def test_a_mode_of_param_is_one_quantity_warm(db: Path, mode: str, quantity: str) -> None:
    result = opmark.run("add", size="small", db=db, backend="null-device", effort="quick", mode=mode, threads=1)
    (record,) = result.records
    assert [(m.quantity, m.cache) for m in record.measurements] == [(quantity, "warm")]


def test_the_rows_of_a_result_are_one_a_case_and_not_one_a_process(db: Path) -> None:
    result = opmark.run("add", params={"shape": [[1], [2]]}, db=db, processes=3, **QUICK)
    assert len(result.records) == 6
    rows = result.rows()
    assert [(row["params"]["shape"], row["processes"]) for row in rows] == [([1], 3), ([2], 3)]
    assert all(len(row["quantities"]["latency"]["warm"]["process_medians"]) == 3 for row in rows)


def test_every_round_of_processes_is_in_a_fresh_one(db: Path) -> None:
    result = opmark.run("add", size="small", db=db, processes=2, **QUICK)
    again = opmark.run("add", size="small", db=db, processes=2, resume=True, **QUICK)
    assert [record.task.settings.process for record in result.records] == [0, 1]
    assert again.records == result.records


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (show_command, opmark.show),
        (describe_command, describe),
        (list_command, list_),
        (coverage_command, coverage),
        (rank_command, opmark.rank),
    ],
)
def test_the_other_commands_have_the_names_and_defaults_of_their_functions(command: Any, function: Any) -> None:
    asked = {name: default for name, default in defaults(command).items() if name not in ONLY_COMMAND}
    assert asked == defaults(function)


def test_the_doctor_takes_what_its_two_functions_take() -> None:
    """By itself it takes nothing; `--aa` is the noise floor."""
    asked = {name: value for name, value in defaults(doctor_command).items() if name not in ONLY_COMMAND | {"aa"}}
    assert defaults(doctor) == {}
    assert asked.keys() <= defaults(noise_floor).keys()
    assert asked == {name: defaults(noise_floor)[name] for name in asked}


# Plan.


def test_a_plan_is_made_of_one_thing_or_of_several() -> None:
    one = opmark.plan("exp", backend="null", size="small", threads=1)
    assert [(task.case.op, task.backend, task.settings.threads) for task in one.tasks] == [("exp", "null", 1)]
    several = opmark.plan(["exp", "add"], backend=["null", "numpy-cpu"], size=["small", "large"], threads=[1, 2])
    assert Counter(task.backend for task in several.tasks) == {"null": 2 * 2 * 2, "numpy-cpu": 5 * 2 * 2 * 2}


@pytest.mark.parametrize(("effort", "host", "device"), [("quick", 1, 1), ("standard", 5, 1), ("thorough", 10, 5)])
def test_a_processor_takes_more_processes_than_a_device(effort: str, host: int, device: int) -> None:
    plan = opmark.plan("exp", backend=["numpy-cpu", "null-device"], effort=effort, threads=1)
    assert Counter(task.backend for task in plan.tasks) == {"numpy-cpu": host, "null-device": device}
    asked = opmark.plan("exp", backend=["numpy-cpu", "null-device"], effort=effort, threads=1, processes=2)
    assert Counter(task.backend for task in asked.tasks) == {"numpy-cpu": 2, "null-device": 2}


def test_a_plan_stores_nothing(isolated: Path) -> None:
    opmark.plan("exp", backend="null")
    assert not (isolated / "data").exists()


def test_a_plan_of_a_workload_takes_a_path_or_its_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema: 1\nname: mine\ncases: [{op: add, params: {shape: [4]}}]\n")
    assert opmark.plan(workload=path, backend="null") == opmark.plan(workload=str(path), backend="null")


# Run and show.


def test_a_run_is_measured_stored_and_shown(db: Path) -> None:
    result = opmark.run("matmul", params={"M": 8, "N": 8, "K": [4, 8]}, db=db, label="mine", **QUICK)
    assert [record.task.case.params["K"] for record in result.records] == [4, 8]
    assert {record.status for record in result.records} == {"ok"}
    assert not result.failed
    assert (result.run.label, result.run.tasks, result.db) == ("mine", 2, db)
    assert opmark.show(db=db) == result


def test_a_result_brings_the_facts_of_its_environments(db: Path) -> None:
    result = opmark.run("add", size="small", db=db, backend="null", effort="quick", threads=[1, 2])
    threads = [result.environments[record.environment]["threads"] for record in result.records]
    assert threads == [1, 2]


def test_a_failed_case_is_a_failed_result_and_a_skipped_one_is_not(db: Path) -> None:
    result = opmark.run("fault", params={"kind": ["none", "error"]}, db=db, **{**QUICK, "backend": "numpy-cpu"})
    assert [record.status for record in result.records] == ["ok", "error"]
    assert result.failed
    skipped = opmark.run("exp", phase=["forward", "backward"], params={"shape": [4]}, db=db, **{
        **QUICK, "backend": "numpy-cpu",
    })  # fmt: skip
    assert [record.status for record in skipped.records] == ["ok", "skipped"]
    assert not skipped.failed


def test_a_run_tells_what_it_does(db: Path) -> None:
    begun: list[tuple[Run, int, int]] = []
    made: list[Record] = []
    result = opmark.run(
        "add", params={"shape": [[1], [2]]}, db=db, on_record=made.append,
        on_start=lambda run, plan, done: begun.append((run, len(plan.tasks), len(done))), **QUICK,
    )  # fmt: skip
    assert begun == [(result.run, 2, 0)]
    assert made == result.records
    opmark.run(
        "add", params={"shape": [[1], [2]]}, db=db, resume=True,
        on_start=lambda run, plan, done: begun.append((run, len(plan.tasks), len(done))), **QUICK,
    )  # fmt: skip
    assert begun[1] == (result.run, 0, 2)


def test_the_seed_decides_the_data_and_is_part_of_the_task(db: Path) -> None:
    results = [opmark.run("add", size="small", db=db, seed=seed, **QUICK) for seed in (0, 1)]
    tasks = [result.records[0].task for result in results]
    assert [task.settings.seed for task in tasks] == [0, 1]
    assert tasks[0].id != tasks[1].id
    assert tasks[0].case.id == tasks[1].case.id


def test_the_variable_names_the_store(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_DB", str(db))
    result = opmark.run("add", size="small", **QUICK)
    assert result.db == db
    assert opmark.show().run == result.run


def test_without_a_place_the_store_is_in_the_data_directory(isolated: Path) -> None:
    result = opmark.run("add", size="small", **QUICK)
    assert result.db.is_relative_to(isolated / "data")
    assert result.db.exists()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300])
def test_a_timeout_that_is_no_time_is_refused(db: Path, timeout: float) -> None:
    with pytest.raises(UserError, match="timeout: expected seconds above 0"):
        opmark.run("add", size="small", db=db, timeout=timeout, **QUICK)
    assert not db.exists()


def test_a_label_that_is_no_text_is_refused(db: Path) -> None:
    """As Python makes it of an argument that is not UTF-8."""
    with pytest.raises(UserError, match="label"):
        opmark.run("add", size="small", db=db, label="\udcff", **QUICK)
    assert not db.exists()


def test_a_command_that_is_no_text_is_no_obstacle(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["opmark", "run", "-w", "\udcff.yaml"])
    opmark.run("add", size="small", db=db, **QUICK)
    assert "-w" in opmark.show(db=db).run.command


def test_a_mistake_makes_no_run_and_no_store(db: Path) -> None:
    with pytest.raises(UnknownName):
        opmark.run("exq", db=db, **QUICK)
    with pytest.raises(UserError):
        opmark.run("exp", phase="backward", db=db, **{**QUICK, "backend": "numpy-cpu"})
    assert not db.exists()


def test_resuming_a_run_that_is_complete_adds_nothing(db: Path) -> None:
    asked: dict[str, Any] = {"ops": "add", "params": {"shape": [[1], [2]]}, "db": db, **QUICK}
    first = opmark.run(**asked)
    again = opmark.run(**asked, resume=True)
    assert (again.run, again.records) == (first.run, first.records)
    assert len(opmark.show(db=db).records) == 2


def test_resuming_what_was_never_run_is_a_mistake(db: Path) -> None:
    with pytest.raises(StoreError, match="there is no store yet"):
        opmark.run("add", size="small", db=db, resume=True, **QUICK)
    opmark.run("add", size="small", db=db, **QUICK)
    with pytest.raises(UserError, match="no stored run has this plan"):
        opmark.run("add", size="large", db=db, resume=True, **QUICK)
    assert len(opmark.show(db=db).records) == 1


# Which run is shown.


@pytest.fixture
def store(db: Path) -> Path:
    """Four runs without records; the last one has the label of the second."""
    runs = {"20300101-000000-aaaa": "", "20300101-000000-bbbb": "nightly", "20300202-000000-cccc": "weekly"}
    with closing(open_store(db, create=True)) as opened:
        for run_id, label in [*runs.items(), ("20300303-000000-dddd", "nightly")]:
            opened.begin(Run(run_id, f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T00:00:00", "plan", 0, label))
    return db


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, "dddd"),
        ("20300101-000000-aaaa", "aaaa"),
        ("20300202", "cccc"),
        ("20300101-000000-b", "bbbb"),
        ("weekly", "cccc"),
        ("nightly", "dddd"),
        ("nightly~0", "dddd"),
        ("nightly~1", "bbbb"),
        ("nightly@{-1}", "bbbb"),
        ("nightly@{2030-03-03}", "dddd"),
        ("nightly@{2030-03-02}", "bbbb"),
        ("2030-02-02", "cccc"),
        ("2030-01-01", "bbbb"),
    ],
)
def test_a_run_is_found_by_id_by_its_beginning_or_by_label(store: Path, name: str | None, shown: str) -> None:
    assert opmark.show(name, db=store).run.id.endswith(shown)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nightly~2", "`nightly~2`: the label `nightly` is of 2 runs"),
        ("nightly@{-2}", "`nightly@{-2}`: the label `nightly` is of 2 runs"),
        ("nightly@{2029-12-31}", "2 runs with the label `nightly`, none of them by then"),
        ("2030-02-03", "no run named `2030-02-03`"),
        ("monthly@{-1}", "no run named `monthly@{-1}`"),
    ],
)
def test_a_run_that_a_label_does_not_have(store: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        opmark.show(name, db=store)


def test_a_beginning_of_several_runs_is_a_mistake(store: Path) -> None:
    with pytest.raises(UserError, match="`20300101` begins 2 runs") as caught:
        opmark.show("20300101", db=store)
    assert "20300101-000000-aaaa" in caught.value.message
    assert "20300101-000000-bbbb" in caught.value.message


@pytest.mark.parametrize(("name", "meant"), [("weekley", "weekly"), ("20300202-000000-cccd", "20300202-000000-cccc")])
def test_an_unknown_run_is_named_with_the_nearest(store: Path, name: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"no run named `{name}`") as caught:
        opmark.show(name, db=store)
    assert f"`{meant}`" in (caught.value.hint or "")


def test_a_store_without_a_run_says_how_to_make_one(db: Path) -> None:
    with closing(open_store(db, create=True)) as opened:
        opened.begin(Run("x", "2030", "plan", 0))
    with closing(sqlite3.connect(db)) as raw:
        raw.execute("DELETE FROM run")
        raw.commit()
    with pytest.raises(UserError, match="holds no run yet") as caught:
        opmark.show(db=db)
    assert "opmark run" in (caught.value.hint or "")


HOSTILE = "'; DROP TABLE run; --\" [red]x[/red] % ? {y} é"


def test_a_label_survives_whatever_it_says(db: Path) -> None:
    opmark.run("add", size="small", db=db, label=HOSTILE, **QUICK)
    assert opmark.show(HOSTILE, db=db).run.label == HOSTILE
    assert len(opmark.show(db=db).records) == 1


# Lists and descriptions.


def test_what_there_is_can_be_listed() -> None:
    assert list(list_("ops")) == list(catalogue().values())
    found = {backend.name: backend for backend in list_("backends")}
    assert list(found) == list(backends())
    assert (found["null"].reason, found["null"].probed) == (None, False)
    assert {workload.name for workload in list_("suites")} >= {"quick", "faults"}


def test_an_unknown_listing_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no listing named `op`") as caught:
        list_("op")
    assert "`ops`" in (caught.value.hint or "")


def test_an_operator_is_described_by_its_name_or_alias() -> None:
    assert describe("matmul") is describe("mm") is catalogue()["matmul"]
    with pytest.raises(UnknownName, match="no operator named `matmull`"):
        describe("matmull")


def test_a_result_can_be_written_as_json(db: Path) -> None:
    result = opmark.run("add", size="small", db=db, **QUICK)
    again = msgspec.json.decode(msgspec.json.encode(result.records), type=list[Record])
    assert again == result.records


# Coverage of a framework.


needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def of_database(name: str, status: Any = "ok", reason: str = "") -> Record:
    case = Case.of(f"opinfo:{name}", {}, "forward")
    return Record(Task(case, "torch-cpu", "torch", Settings(1, "quick", EFFORTS["quick"])), status, reason)


@needs_torch
def test_coverage_without_a_store_tells_what_could_be_measured_and_makes_none(db: Path) -> None:
    found = coverage("torch", db=db)
    assert (found.framework, found.run) == ("torch", "")
    assert [covered.name for covered in found.operators] == [entry.name for entry in entries()]
    assert coverage(db=db) == found, "torch is the default"
    assert not db.exists()


@needs_torch
def test_coverage_tells_of_the_last_run_that_tried_them_all(db: Path) -> None:
    runs = {
        "20300101-000000-aaaa": [of_database(entry.name) for entry in entries()],
        "20300102-000000-bbbb": [of_database(entry.name, "error", "broken") for entry in entries()],
        "20300103-000000-cccc": [of_database("add")],
        "20300104-000000-dddd": [],
    }
    with closing(open_store(db, create=True)) as opened:
        for run_id, records in runs.items():
            opened.begin(Run(run_id, run_id[:8], "plan", len(records)))
            for record in records:
                opened.append(run_id, record)
    found = coverage("torch", db=db)
    assert found.run == "20300102-000000-bbbb"
    assert all(covered.outcomes == {"forward": "error: broken"} for covered in found.operators)
    assert coverage("numpy", db=db).run == ""


def test_coverage_of_an_unknown_framework_is_named_with_the_nearest(db: Path) -> None:
    with pytest.raises(UnknownName, match="no framework named `tourch`") as caught:
        coverage("tourch", db=db)
    assert "`torch`" in (caught.value.hint or "")


def test_operators_of_a_category_can_be_listed() -> None:
    category = catalogue()["softmax"].category
    found = list_("ops", category)
    assert found == [op for op in catalogue().values() if op.category == category]
    assert found == list_("ops", category=category)


def test_a_result_that_no_file_holds_is_exported() -> None:
    result = run("exp", params={"shape": [8]}, backend="null", db=":memory:", say=lambda _: None)
    (text,) = export(result, format="param").values()
    assert '"op_name":"exp"' in text


def test_what_is_not_in_an_exported_workload_is_said(tmp_path: Path) -> None:
    path = tmp_path / "exp.json"
    path.write_text('{"operator": "exp", "input_shape_list": [[4, 8], [4, 8]], "dtype": ["float32", "mxfloat8"]}')
    files, unsaid = export_workload(path, format="bytemicroperf")
    assert len(files) == 1
    assert [line.split(":")[0] for line in unsaid] == [
        "not imported",
        "1 case stood there before, and each is written once",
    ]
    with pytest.raises(UserError, match="problem"):
        export_workload(path, format="bytemicroperf", strict=True)


def test_a_run_of_which_nothing_was_tried_is_not_called_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet may have no node that takes work; a store that is not there yet is not made for that."""

    def nobody(plan: Any, *_: Any, **__: Any) -> Iterator[Record]:
        return (Record(task, "skipped", "no node has taken work", untried=True) for task in plan.tasks)

    monkeypatch.setattr(executor_module, "run_plan", nobody)
    rows: list[Any] = []
    found = opmark.run("exp", db=tmp_path / "new.db", backend="null", effort="quick", size="small", on_row=rows.append)
    assert [record.reason for record in found.records] == ["no node has taken work"] * len(rows)
    assert (found.exit_code, found.stored) == (1, False)
    assert found.storage.startswith("nothing was stored")
    assert not (tmp_path / "new.db").exists()


def test_what_was_never_tried_is_told_and_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db, whole = tmp_path / "store.db", {"backend": "null", "effort": "quick", "params": {"shape": [[4], [8], [16]]}}
    gone = opmark.plan("exp", **whole).tasks[1:]

    def cut(plan: Any, *arguments: Any, **options: Any) -> Iterator[Record]:
        yield from run_plan(plan.without({task.id for task in gone}), *arguments, **options)
        yield from (Record(task, "error", "rank 1 is gone", untried=True) for task in gone)

    run_plan = executor_module.run_plan
    with monkeypatch.context() as patch:
        patch.setattr(executor_module, "run_plan", cut)
        first = opmark.run("exp", db=db, **whole)
    assert [record.status for record in first.records] == ["ok", "error", "error"]
    assert repr(first) == f"<opmark run {first.run.id}: 1 ok, 2 not tried>"
    assert len(opmark.show(db=db).records) == 1
    resumed = opmark.run("exp", db=db, resume=True, **whole)
    assert [record.status for record in resumed.records] == ["ok", "ok", "ok"]
    assert [record.status for record in opmark.show(db=db).records] == ["ok", "ok", "ok"]
