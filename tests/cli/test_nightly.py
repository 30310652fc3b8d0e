"""opmark nightly: printed plans, two starts at once, a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from opmark.api.nightly_state import hold_lock
from opmark.api.result import open_store
from opmark.errors import StoreError

Command = Callable[..., Any]
JOB = {"name": "small", "ops": ["exp", "add"], "size": "small", "backend": "null", "effort": "quick"}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    def write(*jobs: dict[str, Any], **keys: Any) -> str:
        path = tmp_path / "nights.yaml"
        path.write_text(yaml.safe_dump({"schema": 1, "jobs": list(jobs) or [JOB], **keys}))
        return str(path)

    return write


def test_the_plan_says_what_would_be_done(main: Command, file: Any, tmp_path: Path) -> None:
    jobs = {**JOB, "spread": 7, "ops": ["e*"]}, {**JOB, "name": "other", "baseline": "main"}
    path = file(*jobs, gate={"margin": 0.1}, bisect={"package": "torch"}, hook={"command": "true", "when": "failed"})
    done = main("nightly", path, "--dry-run", "--night", "2030-01-01")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"night of 2030-01-01: would begin; files in {tmp_path / 'nights-nights'}"
    assert "nightly/small part " in lines[1]
    assert lines[1].endswith("on null, quick; baseline none yet")
    assert lines[2] == "nightly/other: 2 cases on null, quick; baseline main"
    assert lines[3:] == [
        "gate: margin 0.1", "bisect: versions of torch, or commits, for 1 case per run at most",
        "hook: a command, when failed",
    ]  # fmt: skip
    assert not (tmp_path / "nights-nights").exists()


def test_a_night_is_printed_and_its_exit_code_is_the_verdict(main: Command, file: Any) -> None:
    done = main("nightly", file(), "--night", "2030-01-01")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "night of 2030-01-01: passed"
    failing = file(hook={"command": "exit 1", "when": "always"})
    done = main("nightly", failing, "--night", "2030-01-02", "--json")
    assert done.code == 1
    (night,) = done.objects
    assert (night["verdict"], night["problems"]) == (
        "failed", ["hook: the command failed with exit code 1: it printed nothing"],
    )  # fmt: skip
    assert main("nightly", failing, "--night", "2030-01-02").code == 1, "its verdict stands"


def test_the_second_start_says_who_holds_the_lock(main: Command, file: Any, tmp_path: Path) -> None:
    path = file()
    with hold_lock(tmp_path / "nights-nights"):
        done = main("nightly", path)
    assert (done.code, done.out) == (2, "")
    assert f"a night is running already: process {os.getpid()} on " in done.line("error:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no file is named"),
        (["nowhere.yaml"], "--template` prints a file"),
        (["FILE", "--night", "soon"], "expected a date"),
    ],
)
def test_bad_input_is_a_message(main: Command, file: Any, arguments: list[str], message: str) -> None:
    done = main("nightly", *(file() if word == "FILE" else word for word in arguments))
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_the_template_is_a_file_of_nights(main: Command) -> None:
    done = main("nightly", "--template")
    assert done.code == 0
    assert {job["suite"] for job in yaml.safe_load(done.out)["jobs"]} == {"torch-all", "opperf"}


@pytest.mark.slow
def test_a_killed_night_goes_on_and_measures_nothing_twice(
    opmark: Command, file: Any, db: Path, start_process: Any
) -> None:
    ops = ["exp", "add", "abs", "sin", "cos", "relu", "tanh", "sigmoid"]
    path = file({**JOB, "ops": ops, "processes": 20})
    command = [sys.executable, "-m", "opmark.cli.main", "nightly", path, "--night", "2030-01-01"]
    process = start_process(*command, env={**os.environ, "OPMARK_DB": str(db)})
    deadline = time.monotonic() + 60
    while stored_records(db) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = stored_records(db)
    assert 5 <= before < 160
    done = opmark("nightly", path, "--night", "2030-01-01", "--json")
    assert done.code == 0, done.err
    assert "is continued" in done.err
    (run,) = done.objects[0]["runs"]
    with closing(open_store(db)) as store:
        (only,) = store.runs()
        tasks = [record.task.id for record in store.records(only.id)]
    assert run["run"] == only.id
    assert len(tasks) == len(set(tasks)) == 160
    assert json.loads((Path(path).parent / "nights-nights" / "state.json").read_text())["nights"][0]["finished"]


def stored_records(db: Path) -> int:
    try:
        with closing(open_store(db)) as store:
            return sum(len(store.records(run.id)) for run in store.runs())
    except StoreError:  # it is not there yet
        return 0
