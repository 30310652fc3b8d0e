"""Several processes that compute together: how a backend joins them, and what an implementation is given and builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opmark.plugin.operator import Launch


@dataclass(frozen=True)
class World:
    """The place of a process among those that compute together."""

    rank: int
    size: int
    host: str
    """The host of rank 0."""
    port: int
    """The port that rank 0 listens on; 0 for rank 0 itself, which takes a free one and announces it."""
    timeout: float
    """Seconds after which a call that nobody answers is given up."""


@dataclass(frozen=True)
class Peers:
    """The ranks that take part in one operation: all of the world, or one of the groups that it is divided into."""

    rank: int
    """The rank of this process in the group."""
    size: int
    first: int = 0
    """The world's rank of the group's first; the others follow it."""
    group: Any = None
    """The framework's handle of the group."""

    def world_rank(self, rank: int) -> int:
        """The rank in the world of a rank of the group: frameworks name the root of a collective by it."""
        return self.first + rank


class ProcessGroup(Protocol):
    """A world that this process has joined."""

    engine: str
    """The library that moves the data: `gloo`, `nccl`."""

    def peers(self, size: int) -> Peers:
        """This process's group of that size; every rank asks for the same ones in the same order."""

    def barrier(self) -> None:
        """Returns when every rank of the world has called it."""

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        """The values of every rank of the world, by rank; each gives the same number of them."""

    def leave(self) -> None: ...


Announce = Callable[[int], None]
"""A function that is told the port that rank 0 listens on."""


@dataclass(frozen=True)
class Exchange:
    """What an implementation of a communication operator builds: build(params, peers, **inputs) -> Exchange."""

    start: Launch
    """Does it; of an asynchronous one, only begins it."""
    outputs: Callable[[], Sequence[Any]] = tuple
    """The tensors that hold this rank's result, once it is there; none where it gets none (gather, away from root)."""
    finish: Launch | None = None
    """Waits for everything that was begun; None where `start` returns only when all is done (a device's queue is
    waited for by the backend)."""
    restore: Launch | None = None
    """Puts back what calls change in place: never timed, before every sample, so that numbers stay finite."""
    most_calls: int | None = None
    """Calls after which something has to be put back."""
    parts: Mapping[str, Launch] = field(default_factory=dict)
    """For an operator that does two things at once: each of them alone, waited for, the communication first."""

    def __call__(self) -> Any:
        self.start()
        if self.finish:
            self.finish()
        return self.outputs()
