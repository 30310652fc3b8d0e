"""Where the ranks of a group come from: processes that are started here, or those that a launcher has started.

Under a launcher, rank 0 waits for the processes of all other ranks. Whoever cannot prove to be one is not let in; one
that does not fit (another version, another command) ends the run.
"""

from __future__ import annotations

import errno
import platform
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import psutil

from opmark.errors import UserError
from opmark.plugin import BackendInfo
from opmark.runner.plan import rank_count
from opmark.runner.ranks.authentication import SAME_FOR_ALL, NotAuthenticated, admit_agent, read_secret
from opmark.runner.ranks.connection import (
    SILENCE,
    ConnectionLost,
    Greeting,
    RankConnection,
    Refusal,
    Welcome,
    interface_of,
    is_loopback,
    plain_address,
)
from opmark.runner.ranks.group import RankGroup
from opmark.runner.ranks.job import LOOPBACK, PORT, JobRank
from opmark.runner.ranks.rank_process import AgentConnection, Inbox, LocalRank, RankZero, RemoteRank
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Environment, Record, Task
from opmark.schema.case import content_id
from opmark.schema.messages import Hello
from opmark.units import count_bytes, count_noun, seconds
from opmark.version import VERSION

ARRIVAL_TIMEOUT = 60.0
_POLL_INTERVAL = 0.1
_MAX_STRANGERS = 64
"""Connections that may wait to be let in, beside those of all ranks."""
RANK_MEMORY = 256 << 20
"""Bytes that the process of a rank takes with its framework imported."""


class RankLauncher:
    """Starts all ranks on this host, each as a child of this process."""

    def group(self, info: BackendInfo, threads: int, ranks: int, options: WorkerOptions) -> RankGroup:
        need, free = ranks * RANK_MEMORY, psutil.virtual_memory().available
        if need > free:
            return UnavailableGroup(
                f"{count_noun(ranks, 'process', 'processes')} need {count_bytes(need)} before they do anything, "
                f"{count_bytes(free)} are free"
            )
        inbox = Inbox()
        return RankGroup(info, threads, [LocalRank(rank, inbox) for rank in range(ranks)], inbox, options)

    def set_outcome(self, code: int, message: str) -> None:
        """Say what all other ranks print and exit with when the run is over. Children of this process need not know."""


class UnavailableGroup(RankGroup):
    """Stands for a group that cannot be started, and says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> Hello:
        return Hello(self._reason, Environment.of({}))

    def run(self, task: Task) -> Record:
        return Record(task, "skipped", self._reason)

    def close(self) -> None:
        """Nothing was started."""


class RemoteRankLauncher(RankLauncher):
    """Starts rank 0 as a child of this process, and each other rank through its agent, the opmark that a launcher has
    started for it."""

    def __init__(self, place: JobRank, agents: Mapping[int, AgentConnection]) -> None:
        self._place = place
        self._agents = agents
        self._outcome = 0, "rank 0 is done"
        addresses = [agent.connection.own_address for agent in agents.values()]
        self._address = next((address for address in addresses if not is_loopback(address)), LOOPBACK)

    def group(self, info: BackendInfo, threads: int, ranks: int, options: WorkerOptions) -> RankGroup:
        place, inbox = self._place, Inbox()
        if ranks != place.size:
            return UnavailableGroup(_explain_size(place, ranks))
        first = RankZero(platform.node(), self._address, inbox)
        others = [RemoteRank(agent, inbox, self._interface(agent)) for _, agent in sorted(self._agents.items())]
        return RankGroup(
            info, threads, [first, *others], inbox, options,
            host=LOOPBACK if is_loopback(self._address) else place.host, local_ranks=local_ranks(place, self._agents),
        )  # fmt: skip

    def set_outcome(self, code: int, message: str) -> None:
        self._outcome = code, message

    def end(self) -> None:
        dismiss(self._agents.values(), *self._outcome)

    def _interface(self, agent: AgentConnection) -> str | None:
        """The interface for a rank on this host that came by the loopback: it does not know how ranks on other hosts
        reach this one."""
        own = agent.connection.own_address
        return interface_of(self._address) if is_loopback(own) and not is_loopback(self._address) else None


def _explain_size(place: JobRank, ranks: int) -> str:
    started = f"{count_noun(place.size, 'rank')} were started ({place.launcher}), this case takes {ranks}"
    if place.size % ranks == 0:
        return f"{started}: --ranks {place.size} --group-size {ranks} measures {ranks} at a time, in groups"
    return f"{started}: start {ranks} of them"


def start_ranks(place: JobRank | None, cases: Sequence[Case]) -> AbstractContextManager[RankLauncher]:
    """The launcher for these cases, seen from rank 0, or from a process that no launcher started (`place` is None)."""
    if place is None or not takes_ranks(cases):
        return nullcontext(RankLauncher())
    return adopt_ranks(place, command_id(cases))


@contextmanager
def adopt_ranks(place: JobRank, command: str) -> Iterator[RemoteRankLauncher]:
    """Take over all ranks that a launcher has started, and tell them in the end how it went. This process is rank 0."""
    launcher = RemoteRankLauncher(place, await_agents(place, command))
    try:
        yield launcher
    except UserError as error:
        launcher.set_outcome(2, f"rank 0: {error.message}")
        raise
    except KeyboardInterrupt:
        launcher.set_outcome(130, "rank 0 was interrupted")
        raise
    except BaseException as error:
        launcher.set_outcome(1, f"rank 0 failed: {type(error).__name__}")
        raise
    finally:
        launcher.end()


def takes_ranks(cases: Iterable[Case]) -> bool:
    """Whether any of these cases needs more than one worker."""
    return any(rank_count(case) for case in cases)


def command_id(cases: Iterable[Case]) -> str:
    """An id that is equal on every host for the same command, whatever is installed there."""
    return content_id(sorted({case.id for case in cases}))


_open: list[RankConnection] = []
"""Connections of a run that failed, which stay open until this process ends: other ranks wait for that, or their
launcher would end it early."""


def dismiss(agents: Iterable[AgentConnection], code: int, message: str) -> None:
    """Tell all agents how the run ended; they exit with this code."""
    for agent in agents:
        agent.end(code, message)
        if code:
            _open.append(agent.connection)
        else:
            agent.connection.close()


def await_agents(place: JobRank, command: str) -> dict[int, AgentConnection]:
    """The agents of all ranks but this one, by rank. Raise UserError where one is missing or does not fit."""
    while _open:
        _open.pop().close()
    reception = _Reception(place, command)
    with _listen(place) as listener:
        try:
            reception.run(listener)
        except UserError as error:
            dismiss(reception.agents.values(), 2, error.message)
            raise
        except BaseException:
            dismiss(reception.agents.values(), 2, "rank 0 was interrupted while it waited for all ranks")
            raise
        finally:
            reception.close_strangers()
        return reception.agents


def _listen(place: JobRank) -> socket.socket:
    """Listen on all addresses, since it is not known here by which one the others know this host. On one host, listen
    on the loopback alone."""
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
        at = f"({place.port_of})"
        if error.errno == errno.EADDRINUSE:
            what = f"port {place.port} on {platform.node()} is in use, and rank 0 is to listen there {at}"
        else:
            what = f"rank 0 cannot listen on {place.host}, port {place.port} {at}: {error.strerror or error}"
        raise UserError(what, f"set {PORT} to a free port of that host, the same for all ranks") from None


class _Arrival(NamedTuple):
    connection: RankConnection
    who: Greeting


class _Reception:
    """Lets agents in until all are there."""

    def __init__(self, place: JobRank, command: str) -> None:
        self.agents: dict[int, AgentConnection] = {}
        self._place = place
        self._command = command
        self._secret = read_secret()
        self._arrivals: queue.Queue[_Arrival] = queue.Queue()
        self._waiting: dict[RankConnection, float] = {}
        """Connections that have proved nothing yet, with the time until which they may."""
        self._refused = ""
        """Who was not let in last, and why."""

    def run(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + ARRIVAL_TIMEOUT
        listener.settimeout(_POLL_INTERVAL)
        while len(self.agents) < self._place.size - 1:
            for connection, until in list(self._waiting.items()):
                if time.monotonic() > until:
                    connection.close()
            self._accept(listener)
            while not self._arrivals.empty():
                self._let_in(self._arrivals.get())
            if time.monotonic() > deadline:
                raise self._missing()
        for agent in self.agents.values():
            agent.listen()

    def close_strangers(self) -> None:
        for connection in list(self._waiting):
            connection.close()
        while not self._arrivals.empty():
            self._arrivals.get().connection.close()

    def _accept(self, listener: socket.socket) -> None:
        if len(self._waiting) >= self._place.size + _MAX_STRANGERS:
            time.sleep(_POLL_INTERVAL)
            return
        try:
            accepted, (address, *_) = listener.accept()
            connection = RankConnection(accepted)
        except TimeoutError:
            return
        except OSError:  # the other end was gone again, or this process may open no more: the next one may be let in
            time.sleep(_POLL_INTERVAL)
            return
        self._waiting[connection] = time.monotonic() + SILENCE
        threading.Thread(target=self._admit, args=(connection, plain_address(address)), daemon=True).start()

    def _admit(self, connection: RankConnection, address: str) -> None:
        """Find out who it is, in a thread of its own: other programs may connect, and say nothing."""
        try:
            try:
                who = admit_agent(connection, self._secret)
            finally:  # before it counts as arrived: those that wait are closed in the end
                del self._waiting[connection]
        except NotAuthenticated as error:
            self._refused = f"{address} {error}"
            connection.close()
        else:
            self._arrivals.put(_Arrival(connection, who))

    def _let_in(self, arrival: _Arrival) -> None:
        connection, who = arrival
        reason = self._why_not(who)
        try:
            connection.send(Refusal(reason) if reason else Welcome(platform.node()))
        except ConnectionLost:
            return  # the rank counts as missing when the time is over
        if reason:
            _open.append(connection)
            raise UserError(reason, "every rank is started with the same command of the same opmark")
        connection.stay_alive()
        self.agents[who.rank] = AgentConnection(connection, who)

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
        if who.rank in self.agents:
            return f"{name} is there already: {self.agents[who.rank].where} came first"
        return None

    def _missing(self) -> UserError:
        place = self._place
        missing = [str(rank) for rank in range(1, place.size) if rank not in self.agents]
        ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        hint = f"each runs the same command and needs a way to {place.host}, port {place.port} ({place.port_of})"
        return UserError(
            f"{ranks} of {place.size} did not come within {seconds(ARRIVAL_TIMEOUT)} ({place.launcher})"
            + (f"; not let in: {self._refused}" if self._refused else ""),
            f"{hint}; {SAME_FOR_ALL}" if self._refused else hint,
        )


def local_ranks(place: JobRank, agents: Mapping[int, AgentConnection]) -> dict[int, tuple[int, int]]:
    """For each rank, which one it is of how many on its host: as its launcher says, else counted by host names."""
    hosts = {0: platform.node()} | {rank: agent.who.host for rank, agent in agents.items()}
    positions = {0: (place.local_rank, place.local_size)}
    positions |= {rank: (agent.who.local_rank, agent.who.local_size) for rank, agent in agents.items()}
    found: dict[int, tuple[int, int]] = {}
    for rank, (local, size) in sorted(positions.items()):
        neighbours = [other for other, host in sorted(hosts.items()) if host == hosts[rank]]
        if local is None:
            found[rank] = neighbours.index(rank), len(neighbours)
        else:
            found[rank] = local, size if size is not None else max(local + 1, len(neighbours))
    return found
