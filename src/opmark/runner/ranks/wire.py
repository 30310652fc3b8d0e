"""What rank 0's process and those of the other ranks say to each other over TCP, a JSON line each.

Not to be mixed up with `orders`: those lines, between a parent and its worker, travel in here unopened.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any

import msgspec

from opmark.schema import Status
from opmark.units import seconds

# Whoever has said nothing for so long is gone: its host is, or somebody has stopped its process.
SILENCE = 15.0
_ALIVE_EVERY = 3.0
# A record with every sample of many ranks has some megabytes.
_LONGEST_LINE = 64 << 20
# Until it is known who speaks.
FIRST_LINE = 64 << 10
_CHUNK = 64 << 10
DOING = "{doing}"
"""Stands in the reason of a death for what its process was doing: only the other side knows."""


class Greeting(msgspec.Struct, frozen=True, tag=True):
    """An agent's first words. Fields are only ever added, each with a default: other versions have to understand it."""

    version: str
    rank: int = -1
    size: int = -1
    local_rank: int | None = None
    local_size: int | None = None
    host: str = ""
    command: str = ""
    """The same for all that were started with the same command."""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    host: str


class Refusal(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Start(msgspec.Struct, frozen=True, tag=True):
    """A new worker, in place of the one that there may be."""

    process: int
    """Counts them: what an earlier one said may come late."""
    backend: str
    threads: int
    environ: dict[str, str]


class Order(msgspec.Struct, frozen=True, tag=True):
    process: int
    line: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    process: int


class Ask(msgspec.Struct, frozen=True, tag=True):
    """In which state it is."""

    process: int


class End(msgspec.Struct, frozen=True, tag=True):
    """It is over, and so it went."""

    code: int
    message: str


class Said(msgspec.Struct, frozen=True, tag=True):
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


FromConductor = Start | Order | Stop | Ask | End
FromAgent = Said | Death | State

greeting = msgspec.json.Decoder(Greeting)
reception = msgspec.json.Decoder(Welcome | Refusal | Alive)
from_conductor = msgspec.json.Decoder(FromConductor | Alive)
from_agent = msgspec.json.Decoder(FromAgent | Alive)
_encode = msgspec.json.Encoder().encode


class LinkLost(Exception):
    """There is nobody at the other end any more, or nobody who speaks this language. Says which, after `its opmark`."""

    @property
    def reason(self) -> str:
        return str(self.args[0])


class Link:
    """One connection; any thread may tell, one hears."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._rest = bytearray()

    @property
    def own_address(self) -> str:
        """Of this host, as the other one sees it."""
        return _plain(self._connection.getsockname()[0])

    def tell(self, message: msgspec.Struct) -> None:
        line = _encode(message) + b"\n"
        with self._sending:
            try:
                self._connection.sendall(line)
            except TimeoutError:
                self._hang_up()  # half of a line may have been sent
                raise LinkLost(f"has taken nothing for {seconds(SILENCE)}") from None
            except OSError as error:
                raise LinkLost(_broken(error)) from None

    def hear(self, decoder: msgspec.json.Decoder[Any], most: int = _LONGEST_LINE) -> Any:
        """The next message that says more than that somebody is there."""
        while True:
            line = self._line(most)
            try:
                message = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise LinkLost(f"said what opmark does not say ({error}): {bytes(line[:80])!r}") from None
            if not isinstance(message, Alive):
                return message

    def stay_alive(self) -> None:
        """Say so every few seconds, until closed."""
        threading.Thread(target=self._say_alive, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._hang_up()
        self._connection.close()

    def _line(self, most: int) -> bytearray:
        searched = 0
        while True:
            end = self._rest.find(b"\n", searched)
            if end >= 0:
                line = self._rest[:end]
                del self._rest[: end + 1]
                return line
            searched = len(self._rest)
            if searched > most:
                raise LinkLost(f"said a line of more than {most} bytes")
            self._rest += self._received()

    def _received(self) -> bytes:
        try:
            data = self._connection.recv(_CHUNK)
        except TimeoutError:
            raise LinkLost(f"has not been heard of for {seconds(SILENCE)}: it was stopped, or its host is") from None
        except OSError as error:
            raise LinkLost(_broken(error)) from None
        if not data:
            raise LinkLost("closed the connection")
        return data

    def _say_alive(self) -> None:
        with suppress(LinkLost):  # whoever hears finds out
            while not self._closed.wait(_ALIVE_EVERY):
                self.tell(Alive())

    def _hang_up(self) -> None:
        with suppress(OSError):  # the other end was faster
            self._connection.shutdown(socket.SHUT_RDWR)


def connected(host: str, port: int, deadline: float) -> Link:
    """TimeoutError with the last reason where nobody listens until then."""
    reason = "no time was left"
    while (left := deadline - time.monotonic()) > 0:
        try:
            connection = socket.create_connection((host, port), timeout=min(5.0, left))
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            if connection.getsockname() != connection.getpeername():
                return Link(connection)
            connection.close()  # a port that nobody listens on may be given to the very socket that looks for it
            reason = "nobody listens"
        time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
    raise TimeoutError(reason)


def _broken(error: OSError) -> str:
    return f"cannot be reached any more ({error.strerror or error})"


def _plain(address: str) -> str:
    """An IPv4 address that came in on an IPv6 socket, as IPv4; without the zone of a link-local one."""
    return address.removeprefix("::ffff:").partition("%")[0]
