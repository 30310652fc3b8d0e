"""How `opmark show` looks: on a terminal, in a pipe, and as asked for."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
_RUN = ("run", "exp", "add", "--size", "small", "--backend", "null", "--effort", "quick")
_UNASKED = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES")


@pytest.fixture
def stored(main: Command) -> None:
    assert main(*_RUN).code == 0


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody has asked for anything."""
    for name in _UNASKED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return


def on_terminal(*arguments: str, columns: int = 200, **environment: str) -> str:
    """What a terminal of that width is sent."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "opmark.cli.main", *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, **environment})
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so where the other end is closed
            break
        if not part:
            break
        sent += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return sent.decode().replace("\r\n", "\n")


@pytest.mark.usefixtures("stored", "plain")
def test_a_terminal_gets_colours_and_samples() -> None:
    text = on_terminal("show")
    assert "\x1b[32mok" in text
    assert "samples" in text.splitlines()[1]


@pytest.mark.usefixtures("stored", "plain")
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"}), (["--no-color"], {"FORCE_COLOR": "1"})],
    ids=["option", "NO_COLOR", "dumb", "option-wins"],
)
def test_who_wants_no_colour_gets_no_escape_sequence(arguments: list[str], environment: dict[str, str]) -> None:
    text = on_terminal("show", *arguments, **environment)
    assert "\x1b" not in text
    assert "samples" in text or environment.get("TERM") == "dumb"  # a drawing is no colour; Rich takes those for narrow


@pytest.mark.usefixtures("stored", "plain")
def test_a_narrow_terminal_gets_two_lines_a_record_unless_wide_is_asked_for() -> None:
    narrow = on_terminal("show", "--no-color", columns=60)
    assert max(map(len, narrow.splitlines())) <= 60
    wide = on_terminal("show", "--no-color", "--wide", columns=60).splitlines()
    assert len(wide) < len(narrow.splitlines())
    assert {"operator", "samples", "taken", "status"} <= set(wide[0].split())


@pytest.mark.usefixtures("stored", "plain")
def test_a_pipe_gets_neither_colours_nor_samples(main: Command) -> None:
    assert "\x1b" not in main("show").out
    assert "samples" not in main("show").out


@pytest.mark.usefixtures("stored", "plain")
def test_a_pipe_gets_what_it_asks_for(main: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = main("show", "--wide").out
    assert "samples" in wide
    assert "\x1b" not in wide
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32mok" in main("show").out


@pytest.mark.usefixtures("plain")
def test_the_table_at_the_end_of_a_run_takes_the_same_options(main: Command) -> None:
    ran = main(*_RUN, "--wide", "--no-color")
    assert ran.code == 0
    assert main("show", "--wide").out == ran.out


@pytest.mark.usefixtures("stored", "plain")
def test_an_output_that_knows_only_ascii_gets_signs_that_it_can_write(opmark: Command) -> None:
    script = """
        import sys
        from opmark.cli.main import main
        sys.stdout.reconfigure(encoding="ascii", errors="replace")
        main()
    """
    done = opmark("show", "--wide", script=script)
    assert done.code == 0
    assert not any("▁" <= sign <= "█" for sign in done.out)
    assert set("_.-~=+*#") & set(done.out.splitlines()[1])


@pytest.mark.usefixtures("stored", "plain")
def test_wide_is_of_the_screen_alone(main: Command, tmp_path: Path) -> None:
    done = main("show", "--wide", "-f", "csv")
    assert done.code == 2
    assert "--wide does not go with the format csv" in done.err
