"""New folders for the caches of compilers. They belong to one process, and are removed with it.

A worker is ended by a signal that leaves it no time to clean up, so its folders are inside of one that its parent
makes, names in the environment and removes. A process without such a parent has one of its own.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from opmark.scratch import ScratchFolder


def fresh() -> Path:
    """A new folder, so that a first compilation finds no cache. While a space is searched, one that all workers share:
    what some have built side by side, another one loads and times."""
    if shared := os.environ.get("OPMARK_COMPILE_CACHE"):
        return Path(shared)
    return Path(tempfile.mkdtemp(dir=os.environ.get("OPMARK_SCRATCH") or _own().name))


@cache
def _own() -> ScratchFolder:
    return ScratchFolder("caches")
