"""Ctrl-C leaves a readable store, and --resume goes on from there."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from opmark.api.show import show

Command = Callable[..., Any]

COMMAND = [sys.executable, "-m", "opmark.cli.main"]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Ten cases, one that hangs, five more."""
    path = tmp_path / "w.yaml"
    path.write_text(
        "schema: 1\nname: w\ncases:\n"
        f"  - {{op: fault, params: {{kind: none, n: {list(range(1, 11))}}}}}\n"
        "  - {op: fault, params: {kind: hang}}\n"
        f"  - {{op: fault, params: {{kind: none, n: {list(range(20, 25))}}}}}\n"
    )
    return path


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(start_process: Start, db: Path) -> Start:
    return partial(start_process, *COMMAND)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_is_readable_and_can_be_resumed(
    start: Start, opmark: Command, db: Path, workload: Path, number: signal.Signals, code: int
) -> None:
    asked = ["run", "-w", str(workload), "--backend", "numpy-cpu", "--effort", "quick", "--timeout", "8"]
    process = start(*asked, "--json")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(10)]
    workers = psutil.Process(process.pid).children()
    os.killpg(process.pid, number)
    rest, err = process.communicate(timeout=60)

    assert process.returncode == code
    assert rest == ""
    assert "interrupted; the same command with --resume goes on\nstored as run " in err
    assert "Traceback" not in err
    assert len(workers) == 1
    assert psutil.wait_procs(workers, timeout=30)[1] == []
    assert [json.loads(line)["params"]["n"] for line in lines] == list(range(1, 11))

    shown = opmark("show", "--json")
    assert shown.code == 0
    assert [record["case"] for record in shown.objects] == [json.loads(line)["case"] for line in lines]
    assert "6 of 16 tasks not run" in shown.err

    resumed = opmark(*asked, "--resume", "--json")
    assert resumed.code == 1  # the case that hangs
    assert [(r["params"]["kind"], r["status"]) for r in resumed.objects[10:]] == [
        ("hang", "timeout"), *[("none", "ok")] * 5,
    ]  # fmt: skip
    result = show(db=db)
    tasks = [record.task.id for record in result.records]
    assert len(tasks) == len(set(tasks)) == result.run.tasks == 16
    # What was done before is as it was.
    assert [line.rstrip("\n") for line in lines] == resumed.out.splitlines()[:10]


IN_IMPORTS = """
import os, signal, sys
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            {interrupt}
sys.meta_path.insert(0, Interrupter())
sys.argv = ["opmark", "run", "fault", "-p", "kind=none", "--backend", "numpy-cpu"]
from opmark.__main__ import main
main()
"""
"""Interrupts a run where this module is imported."""
CTRL_C = "os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize(
    ("name", "interrupt"),
    [
        ("opmark.cli.help_text", CTRL_C),
        ("opmark.cli.app", CTRL_C),
        ("opmark.cli.run", CTRL_C),
        ("opmark.cli.progress", CTRL_C),
        ("opmark.runner.session", CTRL_C),
        ("opmark.cli.run", "raise RuntimeError from KeyboardInterrupt()"),
    ],
)
def test_a_run_is_interrupted_while_it_is_imported(name: str, interrupt: str, db: Path) -> None:
    command = [sys.executable, "-c", IN_IMPORTS.format(name=name, interrupt=interrupt)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr in ("interrupted\n", "interrupted before the first record: nothing was stored\n")


def _wait_for(db: Path) -> None:
    """The store is made with the environment, as soon as the worker is ready; its file is empty until it has tables."""
    until = time.monotonic() + 60
    while not db.exists() or not db.stat().st_size:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_interruption_before_the_first_record_leaves_no_run(start: Start, opmark: Command, db: Path) -> None:
    process = start("run", "fault", "-p", "kind=hang", "--backend", "numpy-cpu")
    _wait_for(db)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "nothing was stored" in err
    shown = opmark("show")
    assert (shown.code, shown.out) == (2, "")
    assert "no run yet" in shown.err or "no store yet" in shown.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_another_systems_command_says_that_it_was_interrupted(
    start: Start, db: Path, number: signal.Signals, code: int
) -> None:
    process = start("param", "driver", "--device", "cpu", "gemm", "--dataset", "A")
    _wait_for(db)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    stored = bool(_count(db))
    assert ("interrupted\nstored as run " in err) == stored
    assert ("nothing was stored" in err) != stored
    assert "Traceback" not in err


def test_the_table_of_what_was_done_is_printed(start: Start, db: Path, workload: Path) -> None:
    """Without --json nothing is printed before the end: the store tells how far it is."""
    process = start("run", "-w", str(workload), "--backend", "numpy-cpu", "--effort", "quick", "--label", "x")
    until = time.monotonic() + 60
    while not db.exists() or _count(db) < 10:
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert sum(line.startswith("fault") for line in out.splitlines()) >= 10
    assert "--resume" in err


def _count(db: Path) -> int:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as raw:
        try:
            return int(raw.execute("SELECT count(*) FROM record").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # its tables are just being made
