"""Switch off Python's cyclic garbage collector for a while."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Disable the garbage collector: it would run inside samples, and code that makes many objects and drops none
    would pay for scanning them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
