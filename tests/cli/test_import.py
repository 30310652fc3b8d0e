"""opmark import, opmark export, opmark list formats, and foreign files in opmark run"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from opmark.api.import_ import read_workload
from opmark.api.run import plan
from opmark.api.show import show
from opmark.catalogue.workload_file import load

Command = Callable[..., Any]

ADD = {"type": "tensor", "dtype": "float", "shape": [4, 8]}
PARAM = {
    "torch.add": {
        "input_data_generator": "PyTorch:DefaultDataGenerator",
        "config": [{"input": [{"args": [ADD, ADD]}, {"args": [ADD, {"type": "int", "value": 3}]}]}],
    }
}
BROKEN = {**PARAM, "torch.mm": {**PARAM["torch.add"], "input_iterator": "RangeConfigIteratr"}}
V1 = {"operator": "exp", "iterations": 100, "input_shape_list": [[4, 8], [16, 8]], "dtype": ["float32"]}


@pytest.fixture
def param(tmp_path: Path) -> str:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(PARAM))
    return str(path)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "b.json"
    path.write_text(json.dumps(BROKEN))
    return str(path)


def test_prints_a_workload_of_ours(main: Command, param: str) -> None:
    done = main("import", param)
    assert (done.code, "2 cases of param" in done.err) == (0, True)
    assert [entry["args"] for entry in yaml.safe_load(done.out)["cases"]] == [
        ["4x8 float32 0..1", "4x8 float32 0..1"], ["4x8 float32 0..1", 3],
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_what_it_writes_runs_as_the_same_cases(main: Command, param: str, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"own.{ending}"
    assert main("import", param, "-o", str(out)).code == 0
    assert load(out).description == "param, imported from p.json"
    same = [[task.case.id for task in plan(workload=path).tasks] for path in (param, out)]
    assert same[0] == same[1]


def test_a_part_that_is_not_understood_is_said_and_costs_the_exit_code(main: Command, broken: str) -> None:
    done = main("import", broken)
    assert done.code == 1
    assert f'not imported: {broken}: $["torch.mm"].input_iterator' in done.err
    assert "did you mean `RangeConfigIterator`?" in done.err
    assert len(yaml.safe_load(done.out)["cases"]) == 2


def test_strict_stops(main: Command, broken: str) -> None:
    for command in (["import", broken], ["run", "-w", broken, "--backend", "null"]):
        done = main(*command, "--strict")
        assert (done.code, done.out) == (2, "")
        assert "1 problem" in done.err


def test_run_takes_a_foreign_file_and_its_exit_code_tells_of_problems(main: Command, broken: str, db: Path) -> None:
    done = main("run", "-w", broken, "--backend", "null", "--effort", "quick")
    assert done.code == 1
    assert "not imported" in done.err
    assert [r.task.case.sources for r in show(db=db).records] == [
        ("b.json#torch.add|0|0|0",),
        ("b.json#torch.add|0|0|1",),
    ]


def test_run_says_how_the_file_would_be_measured(main: Command, tmp_path: Path) -> None:
    path = tmp_path / "exp.json"
    path.write_text(json.dumps(V1))
    assert "--samples 100" in main("run", "-w", str(path), "--backend", "null", "--effort", "quick").err
    asked = main("run", "-w", str(path), "--backend", "null", "--samples", "100", "--warmup", "1")
    assert "calls exactly" not in asked.err


def test_phases_of_a_foreign_file(main: Command, param: str) -> None:
    done = main("import", param, "--phase", "forward,backward")
    assert "4 cases" in done.err


def test_a_folder(main: Command, param: str, tmp_path: Path) -> None:
    (tmp_path / "exp.json").write_text(json.dumps(V1))
    done = main("import", str(tmp_path))
    assert "4 cases of bytemicroperf, param" in done.err
    joined = yaml.safe_load(done.out)["cases"][0]
    assert joined["params"] == {"dtype": "float32", "shape": [[4, 8], [16, 8]]}


def test_a_run_is_exported(main: Command, param: str, tmp_path: Path) -> None:
    assert main("run", "-w", param, "--backend", "null", "--effort", "quick").code == 0
    done = main("export", "-f", "param")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["id"] for line in lines if "id" in line] == ["0|0|0", "0|0|1"]
    tree = tmp_path / "tree"
    assert main("export", "-f", "bytemicroperf-v3", "-o", str(tree)).code == 0
    assert [p.suffix for p in sorted(tree.rglob("*.*l"))] == [".jsonl"]


def test_a_workload_is_exported(main: Command, param: str, tmp_path: Path) -> None:
    out = tmp_path / "back.json"
    assert main("export", "-w", param, "-f", "param", "-o", str(out)).code == 0
    again = read_workload(out)
    assert [case.id for case in again.cases] == [case.id for case in read_workload(param).cases]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["export"], "no format is named"),
        (["export", "-f", "parma"], "did you mean `param`?"),
        (["export", "-w", "x.yaml", "-f", "parma"], "did you mean `param`?"),
        (["export", "last", "-w", "x.yaml", "-f", "param"], "two things"),
        (["import", "nosuch.json"], "cannot be read"),
        (["list", "format"], "did you mean `formats`?"),
    ],
)
def test_mistakes(main: Command, command: list[str], said: str) -> None:
    done = main(*command)
    assert done.code == 2
    assert said in done.err


def test_formats_are_listed(main: Command) -> None:
    listed = [line.split()[:3] for line in main("list", "formats").out.splitlines()]
    assert {("opmark", "import", "param"), ("opmark", "export", "bytemicroperf-v1")} <= {tuple(row) for row in listed}
