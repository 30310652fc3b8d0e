"""Process groups: how a backend joins one, and what implementations of communication operators get and build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opmark.plugin.operator import Launch


@dataclass(frozen=True)
class World:
    """The rank of a process in a world of processes that compute together."""

    rank: int
    size: int
    host: str
    """The host of rank 0."""
    port: int
    """Port that rank 0 listens on; 0 for rank 0 itself, which picks a free one and announces it."""
    timeout: float
    """Seconds after which a call without an answer is given up."""

    @property
    def on_one_host(self) -> bool:
        """Whether all ranks are on one host: then rank 0 must listen on the loopback address `host` alone."""
        return self.host.startswith("127.")


@dataclass(frozen=True)
class Peers:
    """The ranks that take part in one operation: the whole world, or one of the groups that it is divided into."""

    rank: int
    """The rank of this process in the group."""
    size: int
    first: int = 0
    """Rank in the world of the first member; the others follow it."""
    group: Any = None
    """The framework's handle of the group."""

    def world_rank(self, rank: int) -> int:
        """Return the rank in the world of a rank of the group. Frameworks name the root of a collective by it."""
        return self.first + rank


class ProcessGroup(Protocol):
    """A world that this process has joined."""

    engine: str
    """The library that moves the data: `gloo`, `nccl`."""

    def peers(self, size: int) -> Peers:
        """Return the group of that size with this process. All ranks have to ask for the same sizes in the same
        order."""

    def barrier(self) -> None:
        """Wait until every rank of the world has called this."""

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        """Return the values of every rank of the world, by rank. All ranks pass the same number of values."""

    def leave(self) -> None: ...


Announce = Callable[[int], None]
"""A function that is called with the port that rank 0 listens on."""


@dataclass(frozen=True)
class Exchange:
    """The result of an implementation of a communication operator: build(params, peers, **inputs) -> Exchange."""

    start: Launch
    """Runs the operation; an asynchronous one is only started."""
    outputs: Callable[[], Sequence[Any]] = tuple
    """Tensors that will hold the result of this rank; empty if it gets none, as in a gather except at the root."""
    finish: Launch | None = None
    """Waits for everything that was started; None if `start` is synchronous. The backend waits for the queue of a
    device."""
    restore: Launch | None = None
    """Restores data that calls change in place. It runs before every sample, untimed, so that numbers stay finite."""
    most_calls: int | None = None
    """Number of calls after which data has to be restored."""
    parts: Mapping[str, Launch] = field(default_factory=dict)
    """For an operator that does two things at once: each of them alone and synchronous, the communication first."""

    def __call__(self) -> Any:
        self.start()
        if self.finish:
            self.finish()
        return self.outputs()
