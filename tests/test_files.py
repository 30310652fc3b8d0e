"""Files are written completely or not at all, and it can be asked before whether they can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.files import check_writable, whole_file


def test_what_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a reader
    check_writable(tmp_path / "old", tmp_path / "made" / "new", tmp_path / "pipe", "/dev/null", None)
    assert (tmp_path / "old").read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["made", "old", "pipe"]
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [("file/x", "File exists"), ("folder", "Is a directory"), ("link", "No such file or directory")],
)
def test_what_cannot_be_written_is_refused_as_writing_would(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    with pytest.raises(UserError, match=f"{name}: cannot be written: {why}") as refused:
        check_writable(tmp_path / name)
    assert refused.value.hint == "name a file in a folder that can be written"
    if name != "folder":
        with pytest.raises(UserError, match=f"cannot be written: {why}"), whole_file(tmp_path / name):
            pass
