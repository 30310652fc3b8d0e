"""Nsight Systems: its command line, and what its SQLite export says."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from opmark.plugin import Watched
from opmark.runner.profilers.nsys import NSYS

FAKE = Path(__file__).parent / "fakes" / "nsys.py"
RANGES = ["opmark_0", "opmark_1", "opmark_2"]


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Path]:
    """The stem of an export with these ranges, without the tables that are named."""
    spec = spec_from_file_location("fake_nsys", FAKE)
    assert spec
    assert spec.loader
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(*dropped: str, ranges: list[str] = RANGES) -> Path:
        stem = tmp_path / "x.nsys"
        path = stem.with_name("x.nsys.sqlite")
        module.export(path, ranges)
        with closing(sqlite3.connect(path)) as base:
            for table in dropped:
                base.execute(f"DROP TABLE {table}")
        return stem

    return make


def test_kernels_belong_to_the_range_during_which_they_were_launched(export: Callable[..., Path]) -> None:
    found = NSYS.read(export(), RANGES)
    assert list(found) == RANGES
    for kernels in found.values():
        work, copy = kernels
        assert work.name == "void work<float>(int)"
        assert work.metrics == {
            "start [ns]": 1100.0,
            "duration [ns]": 700.0,
            "grid size": "64 x 1 x 1",
            "block size": "128 x 1 x 1",
            "registers per thread": 32.0,
        }
        assert (copy.name, copy.metrics) == (
            "copy",
            {"start [ns]": 6000.0, "duration [ns]": 400.0, "bytes [byte]": 4096.0},
        )


def test_ranges_that_nobody_asked_for_are_left_out(export: Callable[..., Path]) -> None:
    assert list(NSYS.read(export(), ["opmark_1"])) == ["opmark_1"]


def test_where_no_kernel_ran_there_is_no_table_of_them(export: Callable[..., Path]) -> None:
    found = NSYS.read(export("CUPTI_ACTIVITY_KIND_KERNEL"), RANGES)
    assert {kernel.name for kernels in found.values() for kernel in kernels} == {"copy"}


@pytest.mark.parametrize(
    ("dropped", "said"),
    [
        ("NVTX_EVENTS", "no NVTX range"),
        ("StringIds", "no such table: StringIds"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "no such table: CUPTI_ACTIVITY_KIND_RUNTIME"),
    ],
)
def test_what_cannot_be_read_is_said(export: Callable[..., Path], dropped: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        NSYS.read(export(dropped), RANGES)


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("nothing that anybody could read, but long enough to be looked at " * 20)
    with pytest.raises(ValueError, match="not a database"):
        NSYS.read(tmp_path / "x", RANGES)


def test_a_report_that_was_not_exported_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.qdstrm").write_bytes(b"raw")
    with pytest.raises(ValueError, match=r"x\.sqlite, found x\.qdstrm"):
        NSYS.read(tmp_path / "x", RANGES)


def test_its_command_line(fake: Callable[[str], str]) -> None:
    binary = fake("nsys")
    command = NSYS.command(Watched([sys.executable, "program"], RANGES, Path("/tmp/x"), binary))
    assert command == [
        binary, "profile", "--trace", "cuda,nvtx", "--export", "sqlite", "--force-overwrite", "true",
        "--output", "/tmp/x", sys.executable, "program",
    ]  # fmt: skip


@pytest.mark.parametrize("args", [("-t", "cuda,nvtx,cudnn"), ("--trace=cuda",), ("--trace", "none")])
def test_what_the_user_says_takes_the_place_of_ours(fake: Callable[[str], str], args: tuple[str, ...]) -> None:
    command = NSYS.command(Watched(["program"], RANGES, Path("/tmp/x"), fake("nsys"), args))
    assert "cuda,nvtx" not in command
    assert command[-1 - len(args) : -1] == list(args)
