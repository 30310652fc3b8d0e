"""Tells from the kernel's counters whether it has killed processes for want of memory."""

from __future__ import annotations

from pathlib import Path

_COUNTER = "oom_kill"


class MemoryKills:
    """Reads the counter of the control group of this process, which its children share; where that has none, it reads
    the counter of the whole machine. The object remembers the count at the moment when it is made."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._found = next(
            ((path, count) for path in _counter_files(root) if (count := _read_count(path)) is not None), None
        )

    def since(self) -> str:
        """Return the evidence that the kernel has killed a process for want of memory since that moment, or an empty
        text."""
        if self._found is None:
            return ""
        path, before = self._found
        now = _read_count(path)
        if now is None or now <= before:
            return ""
        return f"the kernel ended it for want of memory ({_COUNTER} in {path} went from {before} to {now})"


def _counter_files(root: Path) -> list[Path]:
    """Return the files that may have the counter, the closest one first. Inside of a container the path of a group may
    be that of the host, and the group itself is mounted at the top."""
    groups = root / "sys/fs/cgroup"
    found: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    for line in lines:
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        if "memory" in controllers.split(","):  # version 1 of control groups
            folder, name = groups / "memory", "memory.oom_control"
        elif not controllers:
            folder, name = groups, "memory.events"
        else:
            continue
        found += [folder / path.lstrip("/") / name, folder / name]
    return [*found, root / "proc/vmstat"]


def _read_count(path: Path) -> int | None:
    try:
        words = (line.split() for line in path.read_text().splitlines())
        return next((int(line[1]) for line in words if line[:1] == [_COUNTER]), None)
    except OSError:
        return None
