"""Runs the dashboard as a process: options, socket, log, limits of connections."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from opmark.api.keywords import typed
from opmark.api.push import is_loopback
from opmark.api.requests import talk
from opmark.dashboard.app import application
from opmark.dashboard.auth import AccessPolicy, check_token, hosts_for
from opmark.dashboard.pages.coverage import known_operators
from opmark.dashboard.pages.template import prepare
from opmark.dashboard.uploads.store import DEFAULT_LIMIT
from opmark.errors import InvalidParameter, UserError
from opmark.schema.options import PathLike

PORT = 8431
KEEP_ALIVE = 15
"""Seconds that a connection may be idle between two requests; `HEADERS_WITHIN` limits the time for headers."""
MOST_AT_ONCE = 500
"""Connections at once; further ones are refused."""
BACKLOG = 256
_SWITCH = 0.0002
"""Seconds until a computing thread yields to a waiting one; threads that send finished answers wait often."""


@dataclass(frozen=True)
class ServeOptions:
    """The options of `opmark serve`. The token is left out of the representation."""

    db: PathLike | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = field(default=None, repr=False)
    allow_hosts: tuple[str, ...] = ()
    max_upload: int = DEFAULT_LIMIT
    log: bool = False


def run_server(options: ServeOptions, say: Callable[[str], None] = talk) -> None:
    """Serve until the process is interrupted."""
    import uvicorn

    token = check_token(options.token)
    _check_options(options, token)
    listening = _bind(options)
    try:
        app = application(
            options.db,
            access=AccessPolicy(token, hosts_for(options.host, options.allow_hosts)),
            max_upload=options.max_upload,
            read_ahead=True,
        )
        _set_up_log(options.log)
        server = uvicorn.Server(
            uvicorn.Config(
                app, access_log=False, log_config=None, server_header=False, date_header=True, lifespan="on",
                proxy_headers=False, http=TimeLimitedProtocol, ws="none", timeout_keep_alive=KEEP_ALIVE,
                limit_concurrency=MOST_AT_ONCE, timeout_graceful_shutdown=3, backlog=BACKLOG,
            )
        )  # fmt: skip
        prepare()
        known_operators()
        host = f"[{options.host}]" if ":" in options.host else options.host
        say(f"opmark serves {app.store_name} at http://{host}:{listening.getsockname()[1]}/; ctrl-c ends it")
        _calm_collector()
        sys.setswitchinterval(_SWITCH)
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        say("ended")  # uvicorn raises it again after everything is closed
    finally:
        listening.close()


def _check_options(options: ServeOptions, token: str | None) -> None:
    if not 0 <= options.port <= 65535:
        raise InvalidParameter(f"port: expected 0 to 65535, got {options.port}", "0 picks a free one")
    if options.max_upload < 1:
        raise InvalidParameter(f"max-upload: expected at least 1 byte, got {options.max_upload}")
    if token is None and not is_loopback(options.host):
        raise UserError(
            f"{options.host}: others could read the store there, and no token guards it",
            "give one with --token-file FILE or $OPMARK_TOKEN, or stay on 127.0.0.1",
        )


def _bind(options: ServeOptions) -> socket.socket:
    """Bind the socket before the address is printed, so that the port is known."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"{options.host}: no address of this machine: {error}", "as in --host 127.0.0.1") from None
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(where)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise UserError(
            f"{options.host}:{options.port}: cannot be listened at: {error.strerror}",
            "--port names another one; --port 0 picks one that is free",
        ) from None
    return made


def _calm_collector() -> None:
    """Run the garbage collector less often: runs are tens of thousands of lasting objects, and a collection after
    every 700 new ones would take a third of the time of reading them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def _set_up_log(requests: bool) -> None:
    """Log errors to stderr, and with `requests` also requests, without their queries."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    for name in ("uvicorn.error", "opmark.dashboard"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if requests and name == "opmark.dashboard" else logging.WARNING)


@typed
def serve(
    *,
    db: PathLike | None = None,
    host: str = "127.0.0.1",
    port: int = 8431,
    token: str | None = None,
    allow_hosts: Sequence[str] = (),
    max_upload: int = 32 << 20,
    log: bool = False,
    say: Callable[[str], None] = talk,
) -> None:
    """Serve pages and a JSON API over a store until interrupted. Port 0 picks a free one; `say` gets the address.

    Clients on other machines need the `token`, and so does every client that sends runs."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UserError(f"the dashboard needs {' and '.join(missing)}", "`pip install opmark[serve]` installs it")

    run_server(ServeOptions(db, host, port, token, tuple(allow_hosts), max_upload, log), say)


HEADERS_WITHIN = 15.0
"""Seconds from the first byte, or from the connection, to the last header; and from an answer to the end of its
request."""


class TimeLimitedProtocol(H11Protocol):
    """Closes connections of slow clients, whose request is not complete in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._goes_on_after_its_answer():
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._wait()  # the next request of a connection that is kept

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is None and self._goes_on_after_its_answer():
            self._wait()

    def _goes_on_after_its_answer(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
