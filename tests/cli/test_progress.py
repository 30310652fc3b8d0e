"""How far a run is, on a terminal and without one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.api.calibrate import calibrate
from opmark.api.doctor import noise_floor
from opmark.api.env import create_env
from opmark.api.import_ import read_workload
from opmark.api.show import show

Command = Callable[..., Any]

pty = pytest.importorskip("pty", reason="no terminals to make here")


def on_a_terminal(*arguments: str, width: int) -> tuple[int, str]:
    """Exit code and everything that the terminal was sent."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(width), "LINES": "40", "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "opmark.cli.main", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    )
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not part:
            break
        sent += part
    os.close(ours)
    return process.wait(60), sent.decode()


ASKED = ("run", "matmul", "exp", "--size", "small", "--backend", "null", "--effort", "quick")


def test_a_terminal_shows_how_far_it_is(db: Path) -> None:
    code, sent = on_a_terminal(*ASKED, width=200)
    assert code == 0
    assert "2/2" in sent
    assert "0:00:00" in sent  # the time left
    assert "stored as run" in sent


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_table_of_a_run_fits_the_terminal(db: Path, width: int) -> None:
    code, sent = on_a_terminal(*ASKED, width=width)
    assert code == 0
    table = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent[sent.rindex("null ×") :])
    assert max(len(line) for line in table.splitlines() if str(db) not in line) <= width  # a path is one word
    assert re.search(r"^matmul +M=N=K=128 .* ok", table, re.MULTILINE)
    assert "…" not in table


def test_without_a_terminal_there_is_no_bar(opmark: Command) -> None:
    done = opmark(*ASKED)
    assert done.err.splitlines()[0].startswith("stored as run")
    assert "\x1b" not in done.err + done.out


def test_json_lines_come_as_they_are_measured(db: Path, start_process: Callable[..., Any]) -> None:
    """The first record is there while the second task hangs."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    process = start_process(
        sys.executable, "-m", "opmark.cli.main", "run", "fault", "-p", "kind=none,hang", "--backend", "numpy-cpu",
        "--effort", "quick", "--timeout", "10", "--json", stderr=subprocess.DEVNULL, env=environ,
    )  # fmt: skip
    assert '"status":"ok"' in process.stdout.readline()
    assert len(show(db=db).records) == 1


# Commands with steps.


def test_a_run_without_a_terminal_prints_a_line_a_minute(opmark: Command) -> None:
    script = """
        import opmark.cli.progress as progress
        make = progress.StepProgress
        progress.StepProgress = lambda command: make(command, every=0.2)
        from opmark.cli.main import main
        main()
    """
    done = opmark(*ASKED, script=script)
    assert re.search(r"^run: (starting|\d of 2, null matmul), ", done.err, re.MULTILINE)


def steps_of(call: Callable[..., Any]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    call(lambda *step: found.append(step))
    return found


def test_calibrating_tells_its_steps(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.runner.calibration._PRODUCTS", {"cpu": (16,), "device": (16, 32)})
    found = steps_of(lambda on_step: calibrate("null", threads=1, say=lambda _: None, on_step=on_step))
    assert [done for done, _, _ in found] == list(range(1, len(found) + 1))
    assert {total for _, total, _ in found} == {len(found)}
    assert found[-1][2].startswith("matmul")


def test_the_self_test_tells_its_steps(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.runner.doctor._CASES", (("add", {"shape": [32, 32]}),))
    found = steps_of(
        lambda on_step: noise_floor("null", threads=1, processes=4, say=lambda _: None, on_step=on_step)
    )  # fmt: skip
    assert [step[:2] for step in found] == [(done, 4) for done in (1, 2, 3, 4)]


def test_reading_a_folder_tells_its_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("schema: 1\nname: x\ncases: [{op: exp, sizes: [small]}]\n")
    found = steps_of(lambda on_step: read_workload(tmp_path, on_step=on_step))
    assert found[1:] == [(0, 2, "reading a.yaml"), (1, 2, "reading b.yaml")]


def test_making_an_environment_tells_what_pip_does(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("creating x", "Collecting numpy==2", "  Downloading numpy (16 MB)", "Collecting six",
             "Installing collected packages: six, numpy")  # fmt: skip

    def create(*arguments: Any) -> None:
        for line in lines:
            arguments[-1](line)

    monkeypatch.setattr("opmark.runner.guests.environments.create", create)
    said: list[str] = []
    found = steps_of(lambda on_step: create_env("mine", install=["numpy"], say=said.append, on_step=on_step))
    assert said == list(lines)
    assert found[0] == (0, 0, "creating x")
    assert found[2] == (0, 0, "1 package so far, Downloading numpy (16 MB)")
    assert found[-1] == (0, 0, "installing 2 packages, all of them downloaded")
    assert not any(total for _, total, _ in found), "no number that nobody knows"
