"""The store without a file: what goes in comes out, once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import opmark
from opmark.schema import Environment, Record, Run, Settings, Task
from opmark.schema.case import Case
from opmark.schema.task import EFFORTS
from opmark.store.memory import MemoryStore

RUN = Run(id="r1", started="2020", plan="p", tasks=1, label="", command="", version="1")
TASK = Task(Case.of("exp", {}, "forward"), "null", "i", Settings(1, "quick", EFFORTS["quick"]))


def test_keeps_runs_newest_first_and_a_record_a_task() -> None:
    store = MemoryStore()
    store.begin(RUN)
    store.begin(Run(id="r2", started="2021", plan="p", tasks=1, label="", command="", version="1"))
    store.append("r1", Record(TASK, "ok"))
    store.append("r1", Record(TASK, "error", "a second one of the same task"))
    assert [run.id for run in store.runs()] == ["r2", "r1"]
    assert [run.id for run in store.runs(1)] == ["r2"]
    assert [record.status for record in store.records("r1")] == ["ok"]
    assert store.records("r2") == []


def test_keeps_environments_and_findings() -> None:
    store = MemoryStore()
    environment = Environment.of({"cpu": "x"})
    store.add_environment(environment)
    assert store.environments([environment.id, "other"]) == {environment.id: environment}
    assert store.kept("peaks", "x") is None
    store.keep("peaks", "x", "2020", RUN)
    assert store.kept("peaks", "x")["id"] == "r1"


def test_a_run_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = opmark.run("exp", params={"shape": [8]}, backend="null", db=":memory:", say=lambda _: None)
    assert [record.status for record in result.records] == ["ok"]
    assert result.rows()[0]["op"] == "exp"
    assert [f for _, _, names in os.walk(tmp_path) for f in names if f.endswith(".db")] == []
