"""Folders for the caches of compilers: of this process alone, each new, all of them gone at its end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import psutil

_PREFIX = "opmark-caches-"
_numbers = count()


def fresh() -> Path:
    """A folder that nobody has used before, so that cold is cold."""
    folder = _root() / str(next(_numbers))
    folder.mkdir()
    return folder


@cache
def _root() -> Path:
    """A process that was killed could not clean up: what it has left is removed here."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root
