"""Calls a launch again and again, as it was timed, and compares what it returns: a race is wrong only now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opmark.errors import WrongResult
from opmark.plugin import Launch

MAX_LOOKS = 64
"""Outputs that are compared: a race in 3 % of calls shows with a probability of 86 %, one in 10 % nearly always."""
LOOKED_AT_ELEMENTS = 1 << 14
"""Elements of each output that are compared."""
_MIN_LOOKS = 2
_BURST = 4

Look = Callable[[Any], tuple[Any, ...]]
Compare = Callable[[Sequence[Any], Sequence[Any]], object]


def refuse_unsteady(
    launch: Launch, look: Look, compare: Compare, seconds: float, *, keep: bool, reset: Callable[[], None] | None
) -> None:
    """Raise WrongResult where calls on the same data return different things.

    Calls come in bursts, one after the other without waiting, as they do when they are timed. `look` returns arrays to
    compare, `compare` raises WrongResult where they are too far apart, and `seconds` limits the time. With `keep`,
    there is memory for the outputs of a whole burst; else the last one is looked at. `reset` restores inputs that a
    call changes, and is called before each.
    """
    end, looks = time.perf_counter() + seconds, 0
    first: tuple[Any, ...] | None = None
    while looks < MAX_LOOKS and (looks < _MIN_LOOKS or time.perf_counter() < end):
        held: list[Any] = []
        for _ in range(1 if reset else _BURST):
            if reset:
                reset()
            elif not keep:
                held.clear()
            held.append(launch())
        # A launch that fills the same buffer at every call shows its last result in all of them.
        for outputs in {id(outputs): outputs for outputs in held}.values():
            found = look(outputs)
            looks += 1
            if first is None:
                first = found
            elif not _same(found, first):
                try:
                    compare(found, first)
                except WrongResult as error:
                    raise WrongResult(f"two calls on the same data differ (call {looks}): {error.message}") from None


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(some, others, strict=True))
