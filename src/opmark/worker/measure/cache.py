"""Sources of launches: the same one again, with its data in the caches, or made cold before each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import ceil
from typing import Any

from opmark.plugin import Launch
from opmark.schema import Cache
from opmark.units import count_bytes, count_noun

# Data is out of a cache when so many times its size has passed through since.
ROTATE = 5
# Overwriting twice the size leaves nothing behind, whatever the cache's policy of replacement.
FLUSH = 2
# More copies than this, and making them costs more than overwriting the cache before each call.
MOST_SETS = 64
# Share of the free memory that copies may take: the rest is for what the operator itself needs.
SHARE = 0.25
# Assumed size of the largest cache where it is not known: larger than most are.
UNKNOWN_CACHE = 64 << 20


@dataclass
class LaunchSource:
    launches: Sequence[Launch]
    before: Launch | None = None
    cache: Cache = "warm"
    control: str = ""
    """How the caches are kept cold, in words."""

    def __post_init__(self) -> None:
        self.rotates = len(self.launches) > 1
        self.next: Callable[[], Launch] = partial(next, cycle(self.launches))
        """Returns the launches in turn."""

    def some(self, count: int) -> list[Launch]:
        return [self.next() for _ in range(count)]


class OutputHolder:
    """A launch that keeps its last output, so that the next set writes to other memory."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._output: Any = None

    def __call__(self) -> Any:
        self._output = self._launch()
        return self._output


def warm(launch: Launch) -> LaunchSource:
    return LaunchSource([launch])


@dataclass(frozen=True)
class CacheRoom:
    """How much memory and cache there is to make a call cold."""

    set_bytes: int
    """Bytes of the inputs and outputs of one call."""
    cache_bytes: int | None
    free_bytes: int | None

    @property
    def cache(self) -> int:
        return self.cache_bytes or UNKNOWN_CACHE

    @property
    def sets(self) -> int:
        """Number of copies of the data that pass through the cache, the one at hand included."""
        return max(2, ceil(ROTATE * self.cache / max(1, self.set_bytes)))

    @property
    def flush_bytes(self) -> int:
        return FLUSH * self.cache

    @property
    def most_sets(self) -> int:
        """Number of copies where fewer than `sets` will do, because there is no memory for all of them."""
        fit = MOST_SETS if self.free_bytes is None else int(SHARE * self.free_bytes / max(1, self.set_bytes))
        return max(1, min(self.sets, MOST_SETS, fit))

    def why_no_rotation(self) -> str | None:
        if self.sets > MOST_SETS:
            return f"rotation would take {self.sets} copies of {count_bytes(self.set_bytes)}"
        need = (self.sets - 1) * self.set_bytes
        if self.free_bytes is not None and need > SHARE * self.free_bytes:
            return f"rotation would take {count_bytes(need)} of the {count_bytes(self.free_bytes)} that are free"
        return None


def rotation(first: Launch, another: Callable[[int], Launch], room: CacheRoom, cache: Cache = "cold") -> LaunchSource:
    """Launches over several sets of inputs and outputs in turn, which are made here."""
    sets = room.sets if cache == "cold" else room.most_sets
    launches = [OutputHolder(first), *(OutputHolder(another(i)) for i in range(1, sets))]
    if cache == "rotated":  # the first outputs of a set are written to memory that the system still has to provide
        for launch in (*launches, *launches):
            launch()
    total = count_bytes(sets * room.set_bytes)
    return LaunchSource(launches, None, cache, f"rotated over {count_noun(sets, 'set')} of data, {total}")


def flush(launch: Launch, overwrite: Callable[[int], Launch], room: CacheRoom, why: str | None = None) -> LaunchSource:
    """A launch before which the caches are overwritten each time. `why`: the reason not to rotate instead."""
    control = f"{count_bytes(room.flush_bytes)} overwritten before each call" + (f" ({why})" if why else "")
    return LaunchSource([launch], overwrite(room.flush_bytes), "cold", control)
