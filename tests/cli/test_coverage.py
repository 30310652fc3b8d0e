"""opmark coverage"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.api.result import open_store
from opmark.catalogue.families.opinfo import PREFIX, entries
from opmark.schema import EFFORTS, Case, Phase, Record, Run, Settings, Status, Task, Verification

Command = Callable[..., Any]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
SWEEP = "20300101-000000-aaaa"


def record(name: str, phase: Phase = "forward", status: Status = "ok", reason: str = "") -> Record:
    return Record(Task(Case.of(PREFIX + name, {}, phase), "torch-cpu", "torch", SETTINGS), status, reason)


def keep(db: Path, run: str, records: Sequence[Record]) -> None:
    with closing(open_store(db, create=True)) as store:
        store.begin(Run(run, f"{run[:4]}-01-01", "plan", len(records)))
        for one in records:
            store.append(run, one)


@pytest.fixture
def sweep(db: Path) -> Path:
    """Everything measured forward, but for what failed; two went backward."""
    failed = record("exp", status="error", reason="out of [order]")
    others = [record(entry.name) for entry in entries() if entry.name != "exp"]
    keep(db, SWEEP, [failed, *others, record("add", "backward"), record("mul", "backward", "oom", "too large")])
    return db


@needs_torch
def test_without_a_store_it_says_what_could_be_measured_and_how_to(main: Command, db: Path) -> None:
    done = main("coverage")
    assert done.code == 0
    assert done.out.startswith(f"torch: {len(entries())} operators, ")
    assert "--suite torch-all" in done.out
    assert not db.exists(), "asking makes no store"


@needs_torch
def test_a_run_of_all_of_them_is_told(main: Command, sweep: Path) -> None:
    done = main("coverage")
    assert done.code == 0
    assert "exp: error: out of [order]" in done.out
    assert f"measured: in run {SWEEP}" in done.out


@needs_torch
def test_the_same_as_data_is_one_object(main: Command, sweep: Path) -> None:
    (found,) = main("coverage", "--json").objects
    assert (found["framework"], found["run"], found["operators"]) == ("torch", SWEEP, len(entries()))
    assert found["uncovered"]["exp"] == "error: out of [order]"
    assert "mul" not in found["uncovered"]
    details = {one["name"]: one for one in found["details"]}
    assert details["add"]["outcomes"] == {"forward": "ok", "backward": "ok"}
    assert details["mul"]["outcomes"] == {"forward": "ok", "backward": "oom: too large"}
    measured = found["tiers"]["3"]
    assert measured["backward_measured"] == 1
    assert measured["forward_measured"] == measured["operators"] - 1


@needs_torch
def test_a_run_of_a_few_operators_is_not_the_one(main: Command, db: Path) -> None:
    keep(db, SWEEP, [record("add"), record("exp", status="error", reason="broken")])
    (found,) = main("coverage", "--json").objects
    assert found["run"] == ""
    assert not any(one["outcomes"] for one in found["details"])


@needs_torch
def test_a_few_operators_in_many_processes_and_phases_are_still_a_few(main: Command, db: Path) -> None:
    names = [entry.name for entry in entries()][:300]
    keep(db, SWEEP, [record(name, phase) for name in names for phase in ("forward", "backward")])
    (found,) = main("coverage", "--json").objects
    assert found["run"] == ""


@needs_torch
def test_a_later_run_of_a_few_does_not_hide_the_run_of_all(main: Command, sweep: Path) -> None:
    keep(sweep, "20310101-000000-bbbb", [record("exp")])
    (found,) = main("coverage", "--json").objects
    assert found["run"] == SWEEP


@needs_torch
def test_of_two_runs_of_all_the_later_one_is_told(main: Command, sweep: Path) -> None:
    later = "20310101-000000-bbbb"
    keep(sweep, later, [record(entry.name) for entry in entries()])
    (found,) = main("coverage", "--json").objects
    assert found["run"] == later
    assert "exp" not in found["uncovered"]


@needs_torch
def test_another_store_is_looked_at_where_it_is_named(main: Command, sweep: Path, tmp_path: Path) -> None:
    (found,) = main("coverage", "--db", str(tmp_path / "other.db"), "--json").objects
    assert found["run"] == ""


def test_numpy_has_no_database_and_needs_no_store(main: Command, db: Path) -> None:
    done = main("coverage", "numpy")
    assert done.code == 0
    assert done.out.startswith("numpy: ")
    assert "torch-all" not in done.out
    assert not db.exists()


@needs_torch
def test_a_run_of_torch_is_none_of_numpy(main: Command, sweep: Path) -> None:
    (found,) = main("coverage", "numpy", "--json").objects
    assert found["run"] == ""


def test_an_unknown_framework_is_the_users_mistake(main: Command) -> None:
    done = main("coverage", "numby")
    assert done.code == 2
    assert done.out == ""
    assert done.line("error:") == "no framework named `numby`"
    assert "`numpy`" in done.line("hint:")


def test_by_backend_the_whole_catalogue_is_counted_and_asking_makes_no_store(main: Command, db: Path) -> None:
    done = main("coverage", "--by", "backend")
    assert done.code == 0
    assert "category" in done.out
    assert "torch (" in done.out
    assert not db.exists()


def test_by_backend_stored_runs_are_told(main: Command, db: Path) -> None:
    right = replace(record("add"), verification=Verification("full"))
    keep(db, SWEEP, [replace(right, task=replace(right.task, case=Case.of("add", {}, "forward")))])
    (found,) = main("coverage", "--by", "backend", "--json").objects
    assert found["runs"] == 1
    assert found["backends"]["torch-cpu"]["verified_forward"] == 1
    assert next(one for one in found["details"] if one["op"] == "add")["verified"] == {"torch-cpu": ["forward"]}


def test_what_cannot_be_grouped_by_is_the_users_mistake(main: Command) -> None:
    done = main("coverage", "--by", "backed")
    assert (done.code, done.line("error:")) == (2, "no grouping named `backed`")
    assert "`backend`" in done.line("hint:")
