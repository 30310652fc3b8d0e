"""New folders for the caches of compilers. They belong to one process, and are removed with it.

A worker is ended by a signal that leaves it no time to clean up, so its folders are inside of one that its parent
makes, names in the environment and removes. A process without such a parent removes its own at its end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


def fresh() -> Path:
    """A new folder, so that a first compilation finds no cache."""
    return Path(tempfile.mkdtemp(dir=os.environ.get("OPMARK_SCRATCH") or _own()))


@cache
def _own() -> Path:
    made = Path(tempfile.mkdtemp(prefix="opmark-caches-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
