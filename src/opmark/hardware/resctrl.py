"""Shares of the last-level cache through Linux' resctrl (Intel's CAT, AMD's QoS): a group of processes may fill so many
ways of it."""

from __future__ import annotations

import os
from pathlib import Path

from opmark.errors import UserError

ROOT = Path("/sys/fs/resctrl")
_PREFIX = "opmark-ways-"
_MOUNT = "mount -t resctrl resctrl /sys/fs/resctrl (as root, on a processor with CAT)"


def why_not(root: Path = ROOT) -> str:
    """Return why ways of the cache cannot be shared out here; empty if they can."""
    if not root.is_dir():
        return "the kernel has no resctrl: the processor lacks CAT, or a virtual machine hides it"
    if not (root / "schemata").exists():
        return f"resctrl is not mounted: {_MOUNT}"
    if not any(line.startswith("L3:") for line in _schemata(root)):
        return "resctrl does not share out the last-level cache here"
    if not os.access(root, os.W_OK):
        return f"{root} cannot be written: root may"
    return ""


def way_range(root: Path = ROOT) -> tuple[int, int]:
    """Return the smallest and the largest number of ways that a group may have."""
    info = root / "info" / "L3"
    least = int((info / "min_cbm_bits").read_text())
    return least, int((info / "cbm_mask").read_text(), 16).bit_count()


def join(ways: int, root: Path = ROOT, pid: int = 0) -> None:
    """Put this process into the group that may fill so many ways of every last-level cache; what it starts from now on
    is in it too. The group is made if nobody has made it yet."""
    if reason := why_not(root):
        raise UserError(f"{ways} ways of the cache cannot be had: {reason}")
    group = root / f"{_PREFIX}{ways}"
    try:
        group.mkdir(exist_ok=True)
        line = next(line for line in _schemata(root) if line.startswith("L3:"))
        caches = [part.partition("=")[0] for part in line.removeprefix("L3:").split(";")]
        mask = f"{(1 << ways) - 1:x}"
        (group / "schemata").write_text("L3:" + ";".join(f"{cache.strip()}={mask}" for cache in caches) + "\n")
        (group / "tasks").write_text(str(pid or os.getpid()))
    except OSError as error:
        raise UserError(f"{ways} ways of the cache cannot be had: {error.strerror}") from None


def remove_groups(root: Path = ROOT) -> None:
    """Remove the groups that nobody is in any more. Processes that are left in one go back to the whole cache."""
    for group in root.glob(f"{_PREFIX}*"):
        tasks = group / "tasks"
        if not tasks.read_text().strip():
            group.rmdir()


def _schemata(root: Path) -> list[str]:
    return [line.strip() for line in (root / "schemata").read_text().splitlines()]
