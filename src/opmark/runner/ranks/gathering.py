"""Rank 0 waits for the processes of all other ranks, and refuses those that do not belong to it."""

from __future__ import annotations

import errno
import platform
import queue
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opmark.errors import UserError
from opmark.runner.plan import processes
from opmark.runner.ranks.launcher import PORT, Place
from opmark.runner.ranks.remote import Post
from opmark.runner.ranks.wire import FIRST_LINE, Greeting, Link, LinkLost, Refusal, Welcome, greeting
from opmark.schema import Case
from opmark.schema.case import content_id
from opmark.units import seconds
from opmark.version import VERSION

GATHER_WITHIN = 60.0
_LOOK_AGAIN = 0.1


def takes_ranks(cases: Iterable[Case]) -> bool:
    """Whether any of them needs more than one worker."""
    return any(processes(case) for case in cases)


def command_id(cases: Iterable[Case]) -> str:
    """The same on every host for the same command: what is installed there, and how many cores, does not matter."""
    return content_id(sorted({case.id for case in cases}))


_open: list[Link] = []
"""Of a run that failed, until this process ends: other ranks wait for that, or their launcher would end it early."""


def dismiss(posts: Iterable[Post], code: int, message: str) -> None:
    """Tell all how it ended, which is what they exit with."""
    for post in posts:
        post.end(code, message)
        if code:
            _open.append(post.link)
        else:
            post.link.close()


class _Come(NamedTuple):
    link: Link
    who: Greeting


def gather(place: Place, command: str) -> dict[int, Post]:
    """The posts of all ranks but this one, by rank; UserError where one is missing or does not fit."""
    while _open:
        _open.pop().close()
    with _listening(place) as listener:
        gathering = _Gathering(place, command)
        try:
            gathering.run(listener)
        except UserError as error:
            gathering.dissolve(error.message)
            raise
        except BaseException:
            gathering.dissolve("rank 0 was interrupted while it waited for all ranks")
            raise
        finally:
            gathering.close_the_rest()
        return gathering.posts


def _listening(place: Place) -> socket.socket:
    """On all addresses: which one the others know this host by is not known here. On one host, the loopback alone."""
    try:
        family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise UserError(
            f"the host of rank 0, `{place.host}`, is not known on {platform.node()}: {error.strerror or error}",
            "MASTER_ADDR is the name or the address of the host that rank 0 runs on",
        ) from None
    alone = place.local_size == place.size
    try:
        dual = family == socket.AF_INET6 and not alone and socket.has_dualstack_ipv6()
        return socket.create_server((place.host if alone else "", place.port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise _no_port(place, error) from None


def _no_port(place: Place, error: OSError) -> UserError:
    if error.errno == errno.EADDRINUSE:
        what = f"port {place.port} on {platform.node()} is in use, and rank 0 is to listen there ({place.port_of})"
    else:
        what = f"rank 0 cannot listen on {place.host}, port {place.port} ({place.port_of}): {error.strerror or error}"
    return UserError(what, f"set {PORT} to a free port of that host, the same for all ranks")


class _Gathering:
    def __init__(self, place: Place, command: str) -> None:
        self.posts: dict[int, Post] = {}
        self._place = place
        self._command = command
        self._arrivals: queue.Queue[_Come] = queue.Queue()
        self._links: list[Link] = []

    def run(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + GATHER_WITHIN
        listener.settimeout(_LOOK_AGAIN)
        while len(self.posts) < self._place.size - 1:
            self._open(listener)
            while not self._arrivals.empty():
                self._receive(self._arrivals.get())
            if time.monotonic() > deadline:
                raise self._missing()
        for post in self.posts.values():
            post.listen()

    def dissolve(self, message: str) -> None:
        dismiss(self.posts.values(), 2, message)

    def close_the_rest(self) -> None:
        kept = [*_open, *(post.link for post in self.posts.values())]
        for link in self._links:
            if link not in kept:
                link.close()

    def _open(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return
        self._links.append(Link(connection))
        threading.Thread(target=self._greeted, args=(self._links[-1],), daemon=True).start()

    def _greeted(self, link: Link) -> None:
        """Strangers knock on any port: whoever does not greet is not let in, and nobody waits for it."""
        try:
            who: Greeting = link.hear(greeting, FIRST_LINE)
        except LinkLost:
            link.close()
        else:
            self._arrivals.put(_Come(link, who))

    def _receive(self, come: _Come) -> None:
        reason = self._why_not(come.who)
        try:
            come.link.tell(Refusal(reason) if reason else Welcome(platform.node()))
        except LinkLost:
            return  # it is missed when the time is over
        if reason:
            _open.append(come.link)
            raise UserError(reason, "every rank is started with the same command of the same opmark")
        come.link.stay_alive()
        self.posts[come.who.rank] = Post(come.link, come.who)

    def _why_not(self, who: Greeting) -> str | None:
        place, here = self._place, platform.node()
        name = f"rank {who.rank} on {who.host}"
        if who.version != VERSION:
            return f"{name} has opmark {who.version}, rank 0 on {here} has {VERSION}"
        if who.size != place.size:
            return f"{name} is one of {who.size}, rank 0 on {here} one of {place.size}"
        if not 0 < who.rank < place.size:
            return f"{name}: expected ranks from 1 to {place.size - 1} besides rank 0 on {here}"
        if who.command != self._command:
            return f"{name} was started with another command than rank 0 on {here}: its cases are not the same"
        if who.rank in self.posts:
            return f"{name} is there already: {self.posts[who.rank].where} came first"
        return None

    def _missing(self) -> UserError:
        place = self._place
        missing = [str(rank) for rank in range(1, place.size) if rank not in self.posts]
        ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        return UserError(
            f"{ranks} of {place.size} did not come within {seconds(GATHER_WITHIN)} ({place.launcher})",
            f"each runs the same command and needs a way to {place.host}, port {place.port} ({place.port_of})",
        )


def local_ranks(place: Place, posts: Mapping[int, Post]) -> dict[int, tuple[int, int]]:
    """Of each rank, which it is of how many on its host: as its launcher says, else counted by the names of hosts."""
    hosts = {0: platform.node()} | {rank: post.who.host for rank, post in posts.items()}
    told = {0: (place.local_rank, place.local_size)}
    told |= {rank: (post.who.local_rank, post.who.local_size) for rank, post in posts.items()}
    found: dict[int, tuple[int, int]] = {}
    for rank, (local, size) in sorted(told.items()):
        neighbours = [other for other, host in sorted(hosts.items()) if host == hosts[rank]]
        if local is None:
            found[rank] = neighbours.index(rank), len(neighbours)
        else:
            found[rank] = local, size if size is not None else max(local + 1, len(neighbours))
    return found
