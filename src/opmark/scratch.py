"""Temporary folders that outlive no run for long: what a killed process left behind, a later one removes."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

_PREFIX = "opmark-scratch-"
_YOUNG = 60.0
"""Seconds within which a folder may not have its lock yet."""


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is locked while this process lives. The lock and not a process id tells whether it is in
    use, because containers may share the disk and not the processes."""

    def __init__(self, purpose: str) -> None:
        remove_abandoned(tempfile.gettempdir())
        super().__init__(prefix=f"{_PREFIX}{purpose}-", ignore_cleanup_errors=True)
        self._unlock = weakref.finalize(self, _close, _lock(Path(self.name)))

    def cleanup(self) -> None:
        super().cleanup()
        self._unlock()


@cache  # once per process and place
def remove_abandoned(place: str) -> None:
    """Remove the folders of this user whose process is gone."""
    if fcntl is None:
        return
    with suppress(OSError):
        for folder in Path(place).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or time.time() - found.st_mtime < _YOUNG:
        return
    lock = _lock(folder)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder; None if somebody else holds it."""
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
