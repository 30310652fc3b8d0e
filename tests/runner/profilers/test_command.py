"""A command line of the user's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opmark.plugin import Watched
from opmark.runner.profilers.command import COMMAND

PROGRAM = [sys.executable, "-c", "print('a b')"]


def command(template: str, *args: str) -> list[str]:
    return list(COMMAND.command(Watched(PROGRAM, ["opmark_0"], Path("/tmp/x y"), "", args, template)))


def test_the_program_becomes_its_words_and_the_output_its_place() -> None:
    found = command("env VERBOSE=1 --out={output}.csv {program}")
    assert found[0].endswith("/env")
    assert found[1:] == ["VERBOSE=1", "--out=/tmp/x y.csv", *PROGRAM]


def test_more_arguments_go_to_the_profiler_and_not_to_the_program() -> None:
    assert command("env {program}", "-u", "HOME")[1:] == ["-u", "HOME", *PROGRAM]


def test_for_a_shell_the_program_is_one_quoted_text() -> None:
    found = command("sh -c 'exec {program}'")
    assert found[1:] == ["-c", f"exec {sys.executable} -c 'print('\"'\"'a b'\"'\"')'"]


def test_a_program_that_is_not_there_is_said() -> None:
    with pytest.raises(FileNotFoundError, match="no program vendorprof can be run here"):
        command("vendorprof {program}")


def test_a_csv_gives_metrics_by_range_and_kernel(tmp_path: Path) -> None:
    text = "range,kernel,duration [ns],unit\nopmark_0,first,12.5,matrix\nopmark_0,second,,\nother,third,1,vector\n"
    (tmp_path / "x.csv").write_text(text)
    found = COMMAND.read(tmp_path / "x", ["opmark_0"])
    assert found is not None
    assert [(kernel.name, kernel.metrics) for kernel in found["opmark_0"]] == [
        ("first", {"duration [ns]": 12.5, "unit": "matrix"}),
        ("second", {}),
    ]
    assert list(found) == ["opmark_0"]


def test_json_gives_the_same(tmp_path: Path) -> None:
    kernels = [{"name": "first", "metrics": {"duration [ns]": 12.5, "unit": "matrix"}}]
    (tmp_path / "x.json").write_text(json.dumps({"opmark_0": kernels, "other": []}))
    found = COMMAND.read(tmp_path / "x", ["opmark_0"])
    assert found is not None
    assert [(kernel.name, kernel.metrics) for kernel in found["opmark_0"]] == [
        ("first", {"duration [ns]": 12.5, "unit": "matrix"})
    ]


def test_a_file_of_another_kind_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "x.vendor").write_bytes(b"\x00")
    assert COMMAND.read(tmp_path / "x", ["opmark_0"]) is None
    assert COMMAND.file(tmp_path / "x") == tmp_path / "x.vendor"


def test_of_several_files_the_one_that_can_be_read_is_taken(tmp_path: Path) -> None:
    for name in ("x.bin", "x.csv", "x.zip"):
        (tmp_path / name).write_text("range,kernel\n")
    assert COMMAND.file(tmp_path / "x") == tmp_path / "x.csv"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "task,kernel\n", "line 1: expected the columns range and kernel"),
        ("x.csv", "", "line 1: expected the columns range and kernel"),
        ("x.csv", "range,kernel\nopmark_0,a,b\n", "line 2: expected as many values as columns"),
        ("x.csv", "range,kernel\nopmark_0\n", "line 2: expected as many values as columns"),
        ("x.json", "{", r"expected lists of \{name, metrics\} by range"),
        ("x.json", '{"opmark_0": 3}', r"expected lists of \{name, metrics\} by range"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        COMMAND.read(tmp_path / "x", ["opmark_0"])
