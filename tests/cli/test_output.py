"""Data to stdout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.api.requests import talk
from opmark.api.requests import talk as api_talk
from opmark.cli.output import console, print_json_lines, split, write_files, write_out
from opmark.errors import UserError
from opmark.files import whole_file

Command = Callable[..., Any]


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ([], []),
        (["a,b"], ["a", "b"]),
        (["a", "b,c"], ["a", "b", "c"]),
        ([" a , b "], ["a", "b"]),
        (["a,,b,"], ["a", "b"]),
    ],
)
def test_several_values_come_by_comma_or_by_repetition(values: list[str], parts: list[str]) -> None:
    assert split(values) == parts


def test_an_object_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json_lines([{"a": 1.5, "b": "é\n"}, {"c": None}])
    assert capsys.readouterr().out == '{"a":1.5,"b":"é\\n"}\n{"c":null}\n'


def test_where_nobody_looks_lines_are_as_long_as_they_need_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("word " * 150)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_row_in_a_file_is_never_cut_off(main: Command) -> None:
    """However long: whoever reads the file may look for any part of it."""
    shape = "x".join("1" * 700)
    done = main("run", "exp", "-p", f"shape={shape}", "--backend", "null", "--effort", "quick")
    head, row, said = done.out.splitlines()
    assert said == "1 case of 1 not verified: null computes nothing"
    assert head.split()[-1] == "status"
    assert row.split()[:2] == ["exp", shape]
    assert row.split()[-1] == "ok"


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    """As in `opmark list ops | head -1`."""
    command = [sys.executable, "-m", "opmark.cli.main", "list", "ops"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_drop_in_whose_reader_goes_away_ends_quietly() -> None:
    command = [sys.executable, "-m", "opmark.cli.main", "opperf", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


@pytest.mark.parametrize(
    "name", ["/tmp/evil.csv", "../x.csv", "a/../../x.csv", "..\\x.csv", "C:\\x.csv", "\\\\h\\x", "", "\x1b"]
)
def test_no_file_is_written_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the name of a file"):
        write_files({"good.csv": "1", name: "2"}, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_files_below_a_folder_are_written(tmp_path: Path) -> None:
    write_files({"a.csv": "1", "below/b.csv": b"2"}, tmp_path / "folder")
    assert (tmp_path / "folder" / "below" / "b.csv").read_bytes() == b"2"


@pytest.mark.parametrize("say", [talk, api_talk])
def test_what_is_said_is_never_obeyed(say: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    say("run \x1b[31m\u202ex\nhint: y")
    assert capsys.readouterr().err == "run \\x1b[31m\\u202ex\nhint: y\n"


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")
    path.chmod(0o640)

    def half() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "before"
    write_out("after", path)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("after", 0o640)
    (tmp_path / "link.csv").symlink_to(path)
    write_out("through a link", tmp_path / "link.csv")
    assert path.read_text() == "through a link"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.csv", "link.csv"]


def test_what_is_no_file_is_written_to_all_the_same() -> None:
    write_out("x", Path("/dev/null"))


@pytest.mark.parametrize(
    "command",
    [
        "predict train --from nowhere.csv -o PLACE",
        "predict probe --on T4 --from nowhere.csv -o PLACE",
        "replay nowhere.json --trace-out PLACE",
        "judge nowhere.py:f --like add --trace PLACE",
        "extract model:nowhere -o PLACE",
        "check nowhere --baseline nowhere --junit PLACE",
        f"capture -o PLACE {__file__}",
        "model export mlp -o PLACE",
        "opperf -o PLACE",
    ],
)
def test_what_takes_long_first_looks_whether_its_file_can_be_written(command: str, main: Command) -> None:
    name = "/proc/x.mlir" if "export" in command else "/proc/x.json"
    done = main(*command.replace("PLACE", name).split())
    assert done.code == 2
    assert f"error: {name}: cannot be written: No such file or directory" in done.err
