"""`opmark run --profiler`: its options, its line below the table, its JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.machine

Command = Callable[..., Any]

RUN = ("run", "add", "-p", "shape=4,8", "--backend", "null", "--effort", "quick", "--processes", "1")


def test_a_trace_is_named_below_the_table_and_is_in_the_json(main: Command, tmp_path: Path) -> None:
    done = main(*RUN, "--profiler", "trace", "--profile-dir", str(tmp_path / "p"), "--profile-iterations", "2")
    assert done.code == 0
    (trace,) = (tmp_path / "p").glob("*.trace.json")
    assert f"trace profile of 2 cases: {trace}" in done.out
    assert main("show").out == done.out
    shown = main("show", "--json").objects
    assert [row["profiles"][0]["file"] for row in shown] == [str(trace)] * 2
    assert [len(row["profiles"][0]["kernels"]) for row in shown] == [2, 2]


def test_without_a_profiler_there_is_none(main: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = main(*RUN, "--json")
    assert [row["profiles"] for row in done.objects] == [[], []]
    assert not (tmp_path / "opmark-profiles").exists()


def test_files_go_below_the_current_folder_unless_told_otherwise(
    main: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = main(*RUN, "--profiler", "trace", "--profile-batch", "1", "--json")
    files = [Path(row["profiles"][0]["file"]) for row in done.objects]
    assert [file.parent for file in files] == [tmp_path / "opmark-profiles"] * 2
    assert all(json.loads(file.read_text())["traceEvents"] for file in files)
    assert len(set(files)) == 2


def test_a_profiler_that_cannot_be_had_costs_a_line_and_no_number(main: Command, tmp_path: Path) -> None:
    done = main(*RUN, "--profiler", "ncu", "--profiler-bin", "/no/ncu", "--profile-dir", str(tmp_path / "p"))
    assert done.code == 0
    why = "no profile by ncu: no program /no/ncu can be run here"
    assert f"add 4 float32 and 1 more: {why}\n" in done.out
    assert done.err.splitlines().count(why) == 1


def test_arguments_come_from_a_file(main: Command, tmp_path: Path) -> None:
    (tmp_path / "args").write_text("--unset HOME  # a remark\n")
    asked = ("--profiler-args", str(tmp_path / "args"), "--profile-dir", str(tmp_path / "p"))
    seen = "import os, sys; open(sys.argv[1], 'w').write(os.environ.get('HOME', 'none'))"
    done = main(*RUN, "--profiler-command", f'env {sys.executable} -c "{seen}" {{output}} {{program}}', *asked)
    assert "no profile by command: the program did not come to this task" in done.err
    (written,) = (tmp_path / "p").glob("*.command")
    assert written.read_text() == "none"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--profiler", "nuc"), "no profiler named `nuc`"),
        (("--profiler-bin", "ncu"), "--profiler-bin goes with --profiler"),
        (("--profiler", "ncu", "--profiler-args", "/no/file"), "/no/file: expected arguments of a profiler"),
        (
            ("--profiler", "trace", "--profile-batch", "0"),
            "profile_batch: expected a whole number of at least 1, got 0",
        ),
        (("--profiler", "trace", "--profile-timeout", "-1"), "profile_timeout: expected seconds above 0 and"),
        (("--profiler-command", "vendorprof"), "expected {program} in it"),
        (("--profiler", "trace", "--profiler-command", "x {program}"), "go together"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_measured(
    main: Command, db: Path, options: tuple[str, ...], said: str
) -> None:
    done = main(*RUN, *options)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
    assert not db.exists()
