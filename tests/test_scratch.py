"""Temporary folders: removed at the end, and by a later process where that end did not come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from opmark import scratch
from opmark.scratch import ScratchFolder

PROGRAM = """
import sys, time
from opmark.scratch import ScratchFolder
folder = ScratchFolder("test")
print(folder.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch.remove_abandoned.cache_clear()
    return tmp_path


def old(folder: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))


def test_it_is_removed_at_its_end(place: Path) -> None:
    with ScratchFolder("test") as name:
        assert Path(name).parent == place
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_stays(place: Path) -> None:
    killed, living = (subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) for _ in range(2))
    try:
        folders = []
        for process in (killed, living):
            assert process.stdout is not None
            folders.append(Path(process.stdout.readline().decode().strip()))
            (folders[-1] / "content").mkdir()
            old(folders[-1])
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with ScratchFolder("test") as mine:
            assert sorted(place.iterdir()) == sorted([folders[1], Path(mine)])
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()


def test_nothing_else_is_touched(place: Path) -> None:
    """A folder that is being made, one of another name, a link and a file."""
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (place / "opmark-scratch-young").mkdir()
    (place / "opmark-scratch-link").symlink_to(elsewhere)
    (place / "opmark-scratch-file").touch()
    old(elsewhere)
    before = sorted(place.iterdir())
    scratch.remove_abandoned(str(place))
    assert sorted(place.iterdir()) == before
