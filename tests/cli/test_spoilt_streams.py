"""Standard streams that are closed, or that cannot be written: every command says so, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from showcase import CPU, Maker, fill, run

Command = Callable[..., Any]

COMMANDS = [
    "--version", "list suites", "list ops --json", "describe add", "show", "show --json", "runs", "report --format md",
    "compare nightly nightly", "rank", "history --all", "query SELECT(1)", "export -f csv", "env list", "import w.yaml",
    "check --baseline nightly~1 --run nightly", "run -w w.yaml --dry-run", "merge --help", "opperf --list",
]  # fmt: skip
"""Every way in which commands print: tables, JSON, files, texts, help."""

# Starts each command in a process of its own, which is made from this one, so that nothing is imported twice.
DRILL = """
    import json, os, sys
    from importlib import import_module
    import rich.progress, rich.table, sqlalchemy
    import opmark.api.compare, opmark.api.run, opmark.cli.main, opmark.report.console.records
    from opmark.cli.app import COMMANDS
    from opmark.plugin.registry import catalogue

    catalogue()
    for module, _ in COMMANDS.values():
        import_module(f"opmark.cli.{module}")

    spoilt, how, *commands = sys.argv[1:]
    number = {"stdout": 1, "stderr": 2}[spoilt]
    for command in commands:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writing, 3 - number)
            os.close(number)
            if how == "full":
                assert os.open("/dev/full", os.O_WRONLY) == number
            else:
                setattr(sys, spoilt, None)
                setattr(sys, f"__{spoilt}__", None)
            sys.argv = ["opmark", *command.split()]
            opmark.cli.main.main()
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode()
        print(json.dumps([command, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said]), flush=True)
"""


class Answer(NamedTuple):
    command: str
    code: int
    said: str
    """What came through the other stream."""


@pytest.fixture
def answers(
    opmark: Command, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], list[Answer]]:
    fill(db, [run(n, "nightly", [Maker(n).record("add", {"shape": [4]}, "torch-cpu", CPU)]) for n in (1, 2)])
    (tmp_path / "w.yaml").write_text("schema: 1\nname: mine\ncases: [{op: add, params: {shape: [4]}}]\n")
    monkeypatch.chdir(tmp_path)

    def ask(spoilt: str, how: str) -> list[Answer]:
        asked = COMMANDS if (spoilt, how) == ("stdout", "full") else COMMANDS[:6]
        done = opmark(spoilt, how, *asked, script=DRILL)
        assert done.code == 0, done.err
        return [Answer(*line) for line in done.objects]

    return ask


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(("how", "why"), [("full", "No space left on device"), ("closed", "it is closed")])
def test_a_standard_output_that_cannot_be_written_is_an_error(
    answers: Callable[[str, str], list[Answer]], how: str, why: str
) -> None:
    found = answers("stdout", how)
    assert len(found) >= 6
    for command, code, said in found:
        lines = [line for line in said.splitlines() if line.startswith(("error:", "hint:", "Traceback"))]
        assert (code, lines[:1]) == (2, [f"error: standard output cannot be written: {why}"]), (command, said)
        assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
        assert ("what was measured" in lines[1]) == (command.split()[0] in ("run", "check", "opperf")), command


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("how", ["full", "closed"])
def test_without_standard_error_a_command_does_its_work(answers: Callable[[str, str], list[Answer]], how: str) -> None:
    for command, code, said in answers("stderr", how):
        assert code == 0, (command, said)
        assert said, command


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)], ids=["stderr", "all of them"])
def test_a_run_with_closed_streams_is_measured_and_stored(db: Path, closed: tuple[int, ...]) -> None:
    """No file of the store is opened under the number of a standard stream."""
    command = [sys.executable, "-m", "opmark.cli.main", "run", "add", "--size", "small", "--backend", "null",
               "--effort", "quick", "--threads", "1"]  # fmt: skip
    shut = " ".join(f"{number}>&-" if number else "<&-" for number in closed)
    done = subprocess.run(
        ["sh", "-c", f'"$@" {shut}', "sh", *command], capture_output=True, env=os.environ, check=False
    )
    assert done.returncode == (2 if 1 in closed else 0)
    assert (b"add" in done.stdout) == (1 not in closed)
    stored = subprocess.run(
        [sys.executable, "-m", "opmark.cli.main", "runs", "--json"], capture_output=True, text=True, check=True
    )
    assert len(stored.stdout.splitlines()) == 1
