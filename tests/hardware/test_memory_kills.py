"""Counters of the kernel that say whether a process was killed for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.hardware.memory_kills import MemoryKills

CGROUP = "proc/self/cgroup"
PLACES = {
    "version 2": ("0::/user.slice/job\n", "sys/fs/cgroup/user.slice/job/memory.events"),
    "version 2, container": ("0::/\n", "sys/fs/cgroup/memory.events"),
    "version 2, path of the host": ("0::/../host\n", "sys/fs/cgroup/memory.events"),
    "version 1": ("9:cpu:/a\n4:memory:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.oom_control"),
    "version 1, container": ("4:cpu,memory:/docker/ab:cd\n", "sys/fs/cgroup/memory/memory.oom_control"),
    "no control group": ("", "proc/vmstat"),
}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("place", PLACES)
def test_a_counter_that_has_risen_is_evidence(tmp_path: Path, place: str) -> None:
    groups, counter = PLACES[place]
    write(tmp_path / CGROUP, groups)
    file = write(tmp_path / counter, "oom 7\noom_kill 2\noom_kill_disable 0\n")
    kills = MemoryKills(tmp_path)
    assert kills.since() == ""
    file.write_text("oom 9\noom_kill 2\n")
    assert kills.since() == ""
    file.write_text("oom 9\noom_kill 3\n")
    assert kills.since().endswith(f"(oom_kill in {file} went from 2 to 3)")
    assert MemoryKills(tmp_path).since() == ""


def test_the_counter_of_the_own_group_goes_before_that_of_the_machine(tmp_path: Path) -> None:
    write(tmp_path / CGROUP, "0::/job\n")
    write(tmp_path / "sys/fs/cgroup/job/memory.events", "oom_kill 0\n")
    machine = write(tmp_path / "proc/vmstat", "oom_kill 0\n")
    kills = MemoryKills(tmp_path)
    machine.write_text("oom_kill 1\n")
    assert kills.since() == ""


def test_without_a_counter_there_is_no_evidence(tmp_path: Path) -> None:
    kills = MemoryKills(tmp_path)
    assert kills.since() == ""


def test_a_counter_that_goes_away_is_no_evidence(tmp_path: Path) -> None:
    file = write(tmp_path / "proc/vmstat", "oom_kill 1\n")
    kills = MemoryKills(tmp_path)
    file.unlink()
    assert kills.since() == ""
