"""opmark compare"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compared import QUIET, keep

import opmark

pytestmark = pytest.mark.verdicts

Command = Callable[..., Any]

A, B = "20300101-000000-aaaa", "20300102-000000-bbbb"
EXP, TANH = "exp", "tanh"
NOTHING = "`nosuch` is no run, no label, no store file"


def times(factor: float) -> list[float]:
    return [1e-3 * factor * one for one in QUIET]


def both(factor: float, backend: str = "torch-cpu") -> dict[Any, Any]:
    return {(backend, EXP): times(1.0), (backend, TANH): times(factor)}


@pytest.fixture
def stored(db: Path) -> Path:
    keep(db, A, "main", both(1.0))
    keep(db, B, "pull", {**both(1.2), ("torch-cpu", "sin"): times(1.0)}, facts={"torch": "2.12"})
    return db


def test_two_runs_by_their_labels(main: Command, stored: Path) -> None:
    done = main("compare", "main", "pull")
    assert (done.code, done.err) == (0, "")
    printed = done.out.splitlines()
    assert printed[0].startswith(f"A main ({A}), B pull ({B}): two sessions")
    assert "differs: torch 2.11 -> 2.12" in printed
    rows = [line.split()[0] for line in printed if " float32 " in line and line.split()[0] in ("exp", "tanh")]
    assert rows == ["tanh", "exp"]
    assert any(line.startswith("1 slower, 1 undecided; geometric mean 1.095x") for line in printed)
    assert "1 undecided; measure in turns: `opmark ab`, where both sides can still be run" in printed
    given = main("compare", "main", "pull", "--drift", "2%").out.splitlines()
    assert any(line.startswith("1 slower, 1 same; geometric mean 1.095x") for line in given)
    assert "1 case in B only: sin 4 float32 (torch-cpu ×2)" in printed


def test_below_two_sessions_stands_the_command_that_decides(main: Command, db: Path) -> None:
    keep(db, A, "main", both(1.0), revision="aaaa")
    keep(db, B, "pull", both(1.05), revision="bbbb")
    command = "opmark ab tanh -p shape=4 -p dtype=float32 --backend torch-cpu --threads 2 --rev aaaa --rev bbbb"
    done = main("compare", "main", "pull")
    assert f"2 undecided; measure in turns, the largest difference first: {command}" in done.out
    found = json.loads(main("compare", "main", "pull", "--json").out)
    assert found["pairs"][0]["in_turns"] == command


@pytest.mark.parametrize(("a", "b"), [(A, B), (A[:10], B[:10]), ("main~0", "pull~0")])
def test_runs_are_found_as_everywhere(main: Command, stored: Path, a: str, b: str) -> None:
    found = json.loads(main("compare", a, b, "--json").out)
    assert (found["runs"], found["counts"]) == ([A, B], {"slower": 1, "undecided": 1})


def test_another_store_is_a_side(main: Command, stored: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    keep(other, "20310101-000000-cccc", "old", both(2.0))
    keep(other, "20310102-000000-dddd", "new", both(3.0))
    last = json.loads(main("compare", "main", str(other), "--json").out)
    assert last["runs"] == [A, "20310102-000000-dddd"]
    named = json.loads(main("compare", f"{other}::old", f"{other}::new", "--json").out)
    assert named["runs"] == ["20310101-000000-cccc", "20310102-000000-dddd"]
    assert named["a"] == f"{other}::old"


def test_files_need_no_store_of_ones_own(main: Command, db: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    keep(other, A, "old", both(2.0))
    assert main("compare", str(other), f"{other}::old").code == 0
    assert not db.exists()


def test_a_label_comes_before_a_file_of_that_name(
    main: Command, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main").write_text("no store")
    monkeypatch.chdir(tmp_path)
    assert json.loads(main("compare", "main", "pull", "--json").out)["runs"] == [A, B]


@pytest.fixture
def beside(db: Path) -> Path:
    keep(db, A, "older", both(1.0))
    keep(db, B, "beside", both(1.0) | both(2.0, "numpy-cpu") | both(0.5, "torch-cpu@/opt/x/bin/python"))
    return db


@pytest.mark.parametrize("more", [[], ["--run", "beside"]])
def test_backends_of_a_run(main: Command, beside: Path, more: list[str]) -> None:
    found = json.loads(main("compare", "torch-cpu", "numpy-cpu", "--json", *more).out)
    assert found["paired"]
    assert found["runs"] == [B, B]
    assert [(pair["op"], pair["verdict"]) for pair in found["pairs"]] == [("tanh", "slower"), ("exp", "same")]


def test_interpreters_of_a_run(main: Command, beside: Path) -> None:
    for name in ("/opt/x/bin/python", "torch-cpu@/opt/x/bin/python"):
        found = json.loads(main("compare", "torch-cpu", name, "--json").out)
        assert [(pair["op"], pair["verdict"]) for pair in found["pairs"]] == [("exp", "same"), ("tanh", "faster")]


def test_an_implementation_of_a_backend(main: Command, beside: Path) -> None:
    assert main("compare", "torch-cpu/torch", "numpy-cpu/numpy").code == 0


def test_a_backend_of_another_run_is_asked_for_with_that_run(main: Command, beside: Path) -> None:
    done = main("compare", "torch-cpu", "numpy-cpu", "--run", "older")
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == (
        f"`numpy-cpu` is no run, no label, no store file, no backend or interpreter of run {A} (torch-cpu)"
    )


def test_unlike_machines_are_refused_unless_told(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-eeee", "laptop", both(1.0), facts={"cpu": "another", "cores": 16})
    done = main("compare", "main", "laptop")
    assert (done.code, done.out) == (2, "")
    assert "cpu: a processor -> another; cores: 2 -> 16" in done.line("error:")
    assert "--unlike" in done.line("hint:")
    told = main("compare", "main", "laptop", "--unlike")
    assert told.code == 0
    assert "differs: cpu a processor -> another; cores 2 -> 16" in told.out


def test_only_some_and_other_formats(main: Command, stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.md"
    assert main("compare", "main", "pull", "--format", "md", "--only", "slower", "-o", str(path)).out == ""
    text = path.read_text()
    assert "| tanh |" in text
    assert "| exp |" not in text
    plain = tmp_path / "out.txt"
    assert main("compare", "main", "pull", "-o", str(plain)).out == ""
    assert plain.read_text() == main("compare", "main", "pull").out


def test_what_failed_says_why(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-eeee", "broken", {("torch-cpu", EXP): "no kernel", ("torch-cpu", TANH): times(1.0)})
    done = main("compare", "main", "broken")
    assert "failed in broken: error: no kernel" in done.out
    assert done.code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["main", "nosuch"], "`main` is a run, but `nosuch` is no run, no label, no store file"),
        (["main", "torch-cpu"], "`main` is a run, but `torch-cpu` is no run, no label, no store file"),
        (["nosuch", "x"], f"{NOTHING}, no backend or interpreter of run {B} (torch-cpu)"),
        (["main", "pull", "--margin", "5"], "--margin: expected a share from 0 to below 1, or in percent, got `5`"),
        (["main", "pull", "--margin", "-1"], "--margin: expected a share from 0 to below 1, or in percent, got `-1`"),
        (["main", "pull", "--drift", "x%"], "--drift: expected a share from 0 to below 1, or in percent, got `x%`"),
        (["main", "pull", "--only", "slow"], "no verdict named `slow`"),
        (["main", "pull", "--format", "xml"], "--format: expected table, md, json, got `xml`"),
        (["main", "pull", "--quantity", "energy"], "`energy` was not measured on both sides"),
        (["main", "pull", "--quantity", "speed"], "no quantity named `speed`"),
        (["main", "pull", "-o", "/proc/x/y"], "/proc/x/y: cannot be written: No such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_the_users(main: Command, stored: Path, arguments: list[str], said: str) -> None:
    done = main("compare", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == said


def test_runs_without_a_case_in_common(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-eeee", "else", {("torch-cpu", "sin"): times(1.0)})
    done = main("compare", "main", "else")
    assert done.code == 2
    assert done.line("error:").startswith("no case in common: `main` has 2 cases: exp 4 float32 forward, tanh 4")


def test_a_label_of_several_runs_is_the_newest_of_them(main: Command, stored: Path) -> None:
    keep(stored, "20300103-000000-eeee", "main", both(1.0))
    done = main("compare", "main", "pull")
    assert done.out.startswith("A main (20300103-000000-eeee), B pull (")
    assert main("compare", "main@{-1}", "pull").out.startswith(f"A main@{{-1}} ({A}), B pull (")


def test_a_file_that_is_no_store(main: Command, stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    done = main("compare", "main", str(path))
    assert done.code == 2
    assert str(path) in done.line("error:")


def test_without_a_store(main: Command, db: Path) -> None:
    assert main("compare", "a", "b").code == 2
    assert not db.exists()


def test_a_server_is_a_side(main: Command, stored: Path, postgres_url: str) -> None:
    keep(postgres_url, "20310101-000000-cccc", "there", both(2.0))
    found = json.loads(main("compare", "main", f"{postgres_url}::there", "--json").out)
    assert found["runs"] == [A, "20310101-000000-cccc"]
    assert json.loads(main("compare", postgres_url, "main", "--json").out)["counts"] == {"faster": 1, "undecided": 1}


def test_the_same_from_python(stored: Path) -> None:
    found = opmark.compare("main", "pull", db=stored, margin=0.5)
    assert [pair.verdict for pair in found.pairs] == ["same", "same"]
    with pytest.raises(opmark.UserError, match="margin: expected a share from 0 to below 1, got 3"):
        opmark.compare("main", "pull", db=stored, margin=3)


def test_runs_that_were_measured_on_this_machine(main: Command) -> None:
    quick = ["--size", "small", "--backend", "null", "--effort", "quick", "--processes", "4"]
    for label in ("one", "two"):
        main("run", "exp", *quick, "--label", label)
    done = main("compare", "one", "two", "--drift", "0")
    assert done.code == 0
    assert "1 same; geometric mean 1.000x" in done.out
