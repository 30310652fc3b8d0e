"""The connection between the opmark of rank 0 and those of the other ranks: messages over TCP, one JSON line each.

After a greeting and the proofs of `authentication`, a signature stands before each line.
The lines between a parent and its worker (`schema/messages.py`) travel inside these messages unopened.
"""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import msgspec
import psutil

from opmark.schema import Status
from opmark.units import seconds

SILENCE = 15.0
"""Seconds after which a silent process counts as gone: it was stopped, or its host was."""
_ALIVE_EVERY = 3.0
_MAX_LINE = 64 << 20
"""Bytes of a line: a record with every sample of many ranks has some megabytes."""
MAX_FIRST_LINE = 64 << 10
"""Bytes of the first line, while it is not known who speaks."""
_CHUNK = 64 << 10
DOING = "{doing}"
"""Stands in the reason of a death for what the process was doing, which only the other side knows."""
INTERFACE = "GLOO_SOCKET_IFNAME"
"""The variable that names the network interface an engine uses."""


class Greeting(msgspec.Struct, frozen=True, tag=True):
    """The first message of an agent, which other versions must understand: fields are only added, with defaults."""

    version: str
    rank: int = -1
    size: int = -1
    local_rank: int | None = None
    local_size: int | None = None
    host: str = ""
    command: str = ""
    """Equal for all ranks that were started with the same command."""
    nonce: str = ""
    """A random number that rank 0 has to sign."""


class Challenge(msgspec.Struct, frozen=True, tag=True):
    """Rank 0's answer to a greeting."""

    nonce: str
    """A random number that the agent has to sign."""
    proof: str
    """Rank 0's own signature."""


class Proof(msgspec.Struct, frozen=True, tag=True):
    proof: str


class Welcome(msgspec.Struct, frozen=True, tag=True):
    host: str


class Refusal(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Start(msgspec.Struct, frozen=True, tag=True):
    """Start a new worker, in place of the one that there may be."""

    process: int
    """The number of the worker process: what an earlier one said may come late."""
    backend: str
    threads: int
    environ: dict[str, str]


class ForwardLine(msgspec.Struct, frozen=True, tag=True):
    """Send this line to the worker."""

    process: int
    line: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    process: int


class StateRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks in which state a worker is."""

    process: int


class End(msgspec.Struct, frozen=True, tag=True):
    """The run is over, and this is how it went."""

    code: int
    message: str


class WorkerLine(msgspec.Struct, frozen=True, tag=True):
    """A line of a worker; None when there will be no more."""

    process: int
    line: str | None


class Death(msgspec.Struct, frozen=True, tag=True):
    process: int
    status: Status
    reason: str
    illegal: bool = False


class State(msgspec.Struct, frozen=True, tag=True):
    process: int
    state: str


class Alive(msgspec.Struct, frozen=True, tag=True):
    pass


FromRankZero = Start | ForwardLine | Stop | StateRequest | End
FromAgent = WorkerLine | Death | State

greeting = msgspec.json.Decoder(Greeting)
challenge = msgspec.json.Decoder(Challenge | Refusal)
proof = msgspec.json.Decoder(Proof)
reception = msgspec.json.Decoder(Welcome | Refusal | Alive)
from_rank_zero = msgspec.json.Decoder(FromRankZero | Alive)
from_agent = msgspec.json.Decoder(FromAgent | Alive)
encode_message = msgspec.json.Encoder().encode


class ConnectionLost(Exception):
    """The other end is gone, or is not opmark. The reason reads well after `its opmark`."""

    @property
    def reason(self) -> str:
        return str(self.args[0])


class LineSeal:
    """Signs the lines of one direction by their number and content: none can be added, changed, left out or said
    again."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def sign(self, line: bytes) -> bytes:
        return self._next_signature(line) + b" " + line

    def check(self, signed: bytes) -> bytes:
        """Return the line without its signature. Raise ConnectionLost if the signature is wrong."""
        signature, _, line = signed.partition(b" ")
        if not hmac.compare_digest(signature, self._next_signature(line)):
            raise ConnectionLost("said a line that it has not signed")
        return line

    def _next_signature(self, line: bytes) -> bytes:
        self._count += 1
        return hmac.digest(self._key, self._count.to_bytes(8, "big") + line, "sha256").hex().encode()


class RankConnection:
    """One connection. Any thread may send, one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._rest = bytearray()
        self._sending_seal: LineSeal | None = None
        self._receiving_seal: LineSeal | None = None

    @property
    def own_address(self) -> str:
        """Return the address of this host as the other one sees it."""
        return plain_address(self._connection.getsockname()[0])

    def seal(self, sending: LineSeal, receiving: LineSeal) -> None:
        """Sign each line from now on, and take none that is not signed."""
        self._sending_seal, self._receiving_seal = sending, receiving

    def send(self, message: msgspec.Struct) -> None:
        line = encode_message(message)
        with self._sending:
            signed = self._sending_seal.sign(line) if self._sending_seal else line
            try:
                self._connection.sendall(signed + b"\n")
            except TimeoutError:
                self._hang_up()  # half of a line may have been sent
                raise ConnectionLost(f"has taken nothing for {seconds(SILENCE)}") from None
            except OSError as error:
                raise ConnectionLost(_unreachable(error)) from None

    def receive(self, decoder: msgspec.json.Decoder[Any], most: int = _MAX_LINE) -> Any:
        """Return the next message that is more than a sign of life."""
        return self.receive_line(decoder, most)[0]

    def receive_line(self, decoder: msgspec.json.Decoder[Any], most: int = _MAX_LINE) -> tuple[Any, bytes]:
        """Return the next message that is more than a sign of life, and the line that it came in."""
        while True:
            line = bytes(self._next_line(most))
            if self._receiving_seal:
                line = self._receiving_seal.check(line)
            try:
                message = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConnectionLost(f"said what opmark does not say ({error}): {line[:80]!r}") from None
            if not isinstance(message, Alive):
                return message, line

    def stay_alive(self) -> None:
        """Send a sign of life every few seconds, until the connection is closed."""
        threading.Thread(target=self._say_alive, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._hang_up()
        self._connection.close()

    def _next_line(self, most: int) -> bytearray:
        searched = 0
        while True:
            end = self._rest.find(b"\n", searched)
            if end >= 0:
                line = self._rest[:end]
                del self._rest[: end + 1]
                return line
            searched = len(self._rest)
            if searched > most:
                raise ConnectionLost(f"said a line of more than {most} bytes")
            self._rest += self._receive_bytes()

    def _receive_bytes(self) -> bytes:
        try:
            data = self._connection.recv(_CHUNK)
        except TimeoutError:
            raise ConnectionLost(
                f"has not been heard of for {seconds(SILENCE)}: it was stopped, or its host is"
            ) from None
        except OSError as error:
            raise ConnectionLost(_unreachable(error)) from None
        if not data:
            raise ConnectionLost("closed the connection")
        return data

    def _say_alive(self) -> None:
        with suppress(ConnectionLost):  # the receiving thread reports it
            while not self._closed.wait(_ALIVE_EVERY):
                self.send(Alive())

    def _hang_up(self) -> None:
        with suppress(OSError):  # the other end was faster
            self._connection.shutdown(socket.SHUT_RDWR)


def connect(host: str, port: int, deadline: float) -> RankConnection:
    """Connect to a host and port, trying until the deadline. Raise TimeoutError with the last reason."""
    reason = "no time was left"
    while (left := deadline - time.monotonic()) > 0:
        try:
            connection = socket.create_connection((host, port), timeout=min(5.0, left))
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            if connection.getsockname() != connection.getpeername():
                return RankConnection(connection)
            connection.close()  # a port that nobody listens on may be given to the very socket that looks for it
            reason = "nobody listens"
        time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
    raise TimeoutError(reason)


def _unreachable(error: OSError) -> str:
    return f"cannot be reached any more ({error.strerror or error})"


def plain_address(address: str) -> str:
    """Return the plain address: IPv4 where an IPv6 socket wraps it, and without the zone of a link-local address."""
    return address.removeprefix("::ffff:").partition("%")[0]


def is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has this address; None where none has it, as behind a router."""
    sought = ip_address(address)
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            try:
                there = ip_address(one.address.partition("%")[0])
            except ValueError:  # an address of the hardware
                continue
            # Every address that begins with 127 is on the loopback interface, which lists only the first.
            if there == sought or (there.is_loopback and sought.is_loopback):
                return name
    return None


def with_interface(environ: Mapping[str, str], address: str) -> dict[str, str]:
    """Return the variables of a worker, with the interface of this address where they name none.

    Left alone, gloo takes the interface of the host's name, which may lead to an address that no other host can reach.
    What the user of this host has chosen comes first.
    """
    others = {name: value for name, value in environ.items() if name != INTERFACE}
    if INTERFACE in os.environ:
        return others
    found = environ.get(INTERFACE) or interface_of(address)
    return {**others, INTERFACE: found} if found else others
