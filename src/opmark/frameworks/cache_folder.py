"""Folders for the caches of compilers: of this process alone, each new, gone when it is.

A worker is ended by a signal that leaves it no time to clean up. So its folders lie in one that its parent has made for
it, names in the environment, and removes. A process without such a parent removes its own at its end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


def fresh() -> Path:
    """A folder that nobody has used before, so that cold is cold."""
    return Path(tempfile.mkdtemp(dir=os.environ.get("OPMARK_SCRATCH") or _own()))


@cache
def _own() -> Path:
    made = Path(tempfile.mkdtemp(prefix="opmark-caches-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
