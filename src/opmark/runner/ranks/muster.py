"""Where the ranks of a world come from: processes that are started here, or those that a launcher has started."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import psutil

from opmark.errors import UserError
from opmark.interfaces import BackendInfo
from opmark.runner.ranks.crew import Crew
from opmark.runner.ranks.gathering import command_id, dismiss, gather, local_ranks, takes_ranks
from opmark.runner.ranks.interface import interface_of, is_loopback
from opmark.runner.ranks.launcher import LOOPBACK, Place
from opmark.runner.ranks.members import Inbox, LocalMember
from opmark.runner.ranks.remote import HomeMember, Post, RemoteMember
from opmark.runner.supervisor import Keep
from opmark.runner.worker import Hello
from opmark.schema import Case, Environment, Record, Task
from opmark.units import count_bytes, counted

MEMORY_OF_A_RANK = 256 << 20
"""What a process takes with its framework imported."""


class Muster:
    """All ranks on this host, each a child of this process."""

    def crew(self, info: BackendInfo, threads: int, ranks: int, timeout: float, keep: Keep) -> Crew:
        need, free = ranks * MEMORY_OF_A_RANK, psutil.virtual_memory().available
        if need > free:
            return Unmanned(
                f"{counted(ranks, 'process', 'processes')} need {count_bytes(need)} before they do anything, "
                f"{count_bytes(free)} are free"
            )
        inbox = Inbox()
        return Crew(info, threads, [LocalMember(rank, inbox) for rank in range(ranks)], inbox, timeout, keep)

    def tell_outcome(self, code: int, message: str) -> None:
        """What all other ranks print and exit with when this is over. Children of this process need not be told."""


class Unmanned(Crew):
    """Stands for a world that cannot be, and says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> Hello:
        return Hello(self._reason, Environment.of({}))

    def run(self, task: Task) -> Record:
        return Record(task, "skipped", self._reason)

    def close(self) -> None:
        """Nobody is there."""


class Gathered(Muster):
    """Rank 0 is a child of this process, each other rank one of another opmark that has come."""

    def __init__(self, place: Place, posts: Mapping[int, Post]) -> None:
        self._place = place
        self._posts = posts
        self._outcome = 0, "rank 0 is done"
        ways = [post.link.own_address for post in posts.values()]
        self._address = next((way for way in ways if not is_loopback(way)), LOOPBACK)

    def crew(self, info: BackendInfo, threads: int, ranks: int, timeout: float, keep: Keep) -> Crew:
        place, inbox = self._place, Inbox()
        if ranks != place.size:
            return Unmanned(_misfit(place, ranks))
        home = HomeMember(platform.node(), self._address, inbox)
        others = [RemoteMember(post, inbox, self._interface(post)) for _, post in sorted(self._posts.items())]
        return Crew(
            info, threads, [home, *others], inbox, timeout, keep,
            host=place.host, local_ranks=local_ranks(place, self._posts),
        )  # fmt: skip

    def tell_outcome(self, code: int, message: str) -> None:
        self._outcome = code, message

    def end(self) -> None:
        dismiss(self._posts.values(), *self._outcome)

    def _interface(self, post: Post) -> str | None:
        """A rank on this host that came by the loopback does not know how others, from elsewhere, reach this host."""
        own = post.link.own_address
        return interface_of(self._address) if is_loopback(own) and not is_loopback(self._address) else None


def _misfit(place: Place, ranks: int) -> str:
    started = f"{counted(place.size, 'rank')} were started ({place.launcher}), this case takes {ranks}"
    if place.size % ranks == 0:
        return f"{started}: --ranks {place.size} --group-size {ranks} measures {ranks} at a time, in groups"
    return f"{started}: start {ranks} of them"


def mustered(place: Place | None, cases: Sequence[Case]) -> AbstractContextManager[Muster]:
    """Who does these cases, seen from rank 0, or from a process that no launcher started (`place` is None)."""
    if place is None or not takes_ranks(cases):
        return nullcontext(Muster())
    return gathered(place, command_id(cases))


@contextmanager
def gathered(place: Place, command: str) -> Iterator[Gathered]:
    """All ranks that a launcher has started, of which this is rank 0; the others are told how it ended."""
    muster = Gathered(place, gather(place, command))
    try:
        yield muster
    except UserError as error:
        muster.tell_outcome(2, f"rank 0: {error.message}")
        raise
    except KeyboardInterrupt:
        muster.tell_outcome(130, "rank 0 was interrupted")
        raise
    except BaseException as error:
        muster.tell_outcome(1, f"rank 0 failed: {type(error).__name__}")
        raise
    finally:
        muster.end()
