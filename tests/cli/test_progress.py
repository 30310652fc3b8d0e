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
    assert max(map(len, table.splitlines())) <= width
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
