"""The server as a process: its socket, its limits, what it says when it starts, how it ends."""

from __future__ import annotations

import gc
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from opmark.api.requests import talk
from opmark.api.tokens import is_loopback
from opmark.dashboard.app import application
from opmark.dashboard.pages import prepare
from opmark.dashboard.receiving import DEFAULT_LIMIT
from opmark.dashboard.security import Door, checked_token, hosts_for
from opmark.dashboard.views.coverage import known_operators
from opmark.errors import InvalidParameter, UserError
from opmark.schema.options import PathLike

PORT = 8431
KEEP_ALIVE = 15
"""Seconds that a connection may be idle between two requests; `slow` has how long the headers of one may take."""
MOST_AT_ONCE = 500
"""Connections; more are told to come again."""
BACKLOG = 256
_SWITCH = 0.0002
"""Seconds until a thread that computes gives way to one that waits: who sends what is made already waits often."""


@dataclass(frozen=True)
class How:
    """What `opmark serve` was told. The token never appears where this is printed."""

    db: PathLike | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = field(default=None, repr=False)
    allow_hosts: tuple[str, ...] = ()
    max_upload: int = DEFAULT_LIMIT
    log: bool = False


def run_server(how: How, say: Callable[[str], None] = talk) -> None:
    """Until it is interrupted."""
    import uvicorn

    from opmark.dashboard.slow import Bounded

    token = checked_token(how.token)
    _check(how, token)
    listening = _listening(how)
    try:
        app = application(
            how.db, door=Door(token, hosts_for(how.host, how.allow_hosts)), max_upload=how.max_upload, read_ahead=True
        )
        _set_up_log(how.log)
        server = uvicorn.Server(
            uvicorn.Config(
                app, access_log=False, log_config=None, server_header=False, date_header=True, lifespan="on",
                proxy_headers=False, http=Bounded, ws="none", timeout_keep_alive=KEEP_ALIVE,
                limit_concurrency=MOST_AT_ONCE, timeout_graceful_shutdown=3, backlog=BACKLOG,
            )
        )  # fmt: skip
        prepare()
        known_operators()
        say(f"opmark serves {app.store_name} at {_address(how.host, listening)}; ctrl-c ends it")
        _calm_collector()
        sys.setswitchinterval(_SWITCH)
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        say("ended")  # uvicorn passes it on when all is closed
    finally:
        listening.close()


def _check(how: How, token: str | None) -> None:
    if not 0 <= how.port <= 65535:
        raise InvalidParameter(f"port: expected 0 to 65535, got {how.port}", "0 picks a free one")
    if how.max_upload < 1:
        raise InvalidParameter(f"max-upload: expected at least 1 byte, got {how.max_upload}")
    if token is None and not is_loopback(how.host):
        raise UserError(
            f"{how.host}: others could read the store there, and no token guards it",
            "give one with --token-file FILE or $OPMARK_TOKEN, or stay on 127.0.0.1",
        )


def _listening(how: How) -> socket.socket:
    """Bound before anything is said, so that the port is known and is ours."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            how.host, how.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"{how.host}: no address of this machine: {error}", "as in --host 127.0.0.1") from None
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(where)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise UserError(
            f"{how.host}:{how.port}: cannot be listened at: {error.strerror}",
            "--port names another one; --port 0 picks one that is free",
        ) from None
    return made


def _calm_collector() -> None:
    """What was loaded stays, and a run is tens of thousands of objects that live on: looking for garbage after every
    700 new ones would take a third of the time of reading it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def _address(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def _set_up_log(requests: bool) -> None:
    """To stderr: what goes wrong, and with `requests` who asked for which page; queries are left out of it."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    for name in ("uvicorn.error", "opmark.dashboard"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if requests and name == "opmark.dashboard" else logging.WARNING)
