"""Send stored runs to a dashboard: `opmark push`. The store is not changed.

The token goes to the address of the dashboard and nowhere else: redirects are reported and not followed, and no message
contains it. Requests are repeated while the server is busy, until one limit for all of them is over.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from opmark.api.keywords import typed
from opmark.api.requests import talk
from opmark.api.result import open_store
from opmark.errors import InvalidFile, InvalidParameter, StoreError, UserError
from opmark.schema import Run
from opmark.schema.options import MeasureOptions, PathLike, options_of
from opmark.schema.upload import MEDIA_TYPE, PATH, PushReply
from opmark.store.runs import find_run
from opmark.store.sql import SqlStore
from opmark.store.transfer import UploadPart, gzipped, parts, payload
from opmark.units import count_bytes, count_noun
from opmark.version import VERSION

MAX_RECORDS, MAX_BYTES = 5_000, 32 << 20
"""Limits of one upload before compression: far below those of a server, and quickly repeated if a connection breaks."""


TIMEOUT = 180.0
"""Seconds without a delivery after which a push is given up: long enough for one answer at its slowest."""


class Pushed(Struct, frozen=True):
    run: Run
    records: int = 0
    """Number of records that were sent and stored."""
    new: int = 0
    """Number of these that the dashboard did not have before."""
    problem: str = ""
    """Why the other records could not be delivered."""


@typed
def push(
    url: str,
    *runs: str,
    label: str = "",
    everything: bool = False,
    token: str | None = None,
    insecure_http: bool = False,
    timeout: float = TIMEOUT,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> list[Pushed]:
    """Send runs to the dashboard at `url`: the last one, those named, those with a label (`*` and `?` are allowed), or
    all, the oldest first. The dashboard ignores records that it has already. `timeout` is the number of seconds without
    a delivery, whatever is tried, after which all is given up. Returns one result per run."""
    options_of(MeasureOptions)["timeout"].check(timeout)
    dashboard = DashboardClient(url, token, insecure_http=insecure_http, timeout=timeout, say=say)
    with closing(open_store(db)) as store:
        if not isinstance(store, SqlStore):
            raise InvalidParameter("push: a store in memory holds no run", "name a file or a server with --db")
        chosen = _select_runs(store, runs, label, everything=everything)
        return [_push_run(store, run, dashboard, say) for run in chosen]


def _select_runs(store: SqlStore, names: tuple[str, ...], label: str, *, everything: bool) -> list[Run]:
    if bool(names) + bool(label) + everything > 1:
        raise InvalidParameter("push: expected runs, or --label, or --all, got several of these", "say which once")
    if not (label or everything):
        found = [find_run(store, name) for name in names or (None,)]
        return list({run.id: run for run in found}.values())
    chosen = [run for run in reversed(store.runs()) if everything or fnmatchcase(run.label, label)]
    if not chosen:
        what = f"no run has a label like `{label}`" if label else "the store holds no run yet"
        raise UserError(f"push: {what}", "`opmark runs` lists them")
    return chosen


def _push_run(store: SqlStore, run: Run, dashboard: DashboardClient, say: Callable[[str], None]) -> Pushed:
    """Send the parts of a run. A failure is returned, not raised, so that other runs are still sent."""
    name = f"{run.id} ({run.label})" if run.label else run.id
    sent = new = 0
    try:
        for part in parts(store, run.id, MAX_RECORDS, MAX_BYTES):
            received = _deliver(store, part, dashboard, name, say)
            _check(part, received)
            sent, new = sent + received.records, new + received.new
    except (DeliveryError, StoreError) as error:
        say(f"{name}: not delivered: {error}")
        return Pushed(run, sent, new, error.message)
    say(f"{name}: {count_noun(new, 'new record')}" + (f", {sent - new} there already" if sent > new else ""))
    return Pushed(run, sent, new)


def _deliver(
    store: SqlStore, part: UploadPart, dashboard: DashboardClient, name: str, say: Callable[[str], None]
) -> PushReply:
    dashboard.check_time()
    body = gzipped(payload(store, part))
    say(f"{name}: sending {count_noun(part.records, 'record')}, {count_bytes(len(body))}")
    return dashboard.deliver(body)


def _check(part: UploadPart, received: PushReply) -> None:
    """Raise DeliveryError if the reply does not fit what was sent."""
    run, records, new = received.run, received.records, received.new
    if (run, records) != (part.run.id, part.records) or not 0 <= new <= records:
        raise DeliveryError(
            f"the dashboard says that it has {count_noun(records, 'record')} of `{run}`, {new} of them new; "
            f"sent were {part.records} of `{part.run.id}`",
            "is something between here and there that changes answers?",
        )


VARIABLE = "OPMARK_TOKEN"
MAX_TOKEN = 4096
"""Characters of a token; a longer file is something else."""


def token_of(given: str | None, file: str | os.PathLike[str] | None) -> str | None:
    """Return the token: the given one, that of the file, or that of the environment."""
    if given is not None and file is not None:
        raise UserError("--token and --token-file are two ways to say the same", "give one of them")
    if file is None:
        return given if given is not None else os.environ.get(VARIABLE) or None
    try:
        with Path(file).expanduser().open("rb") as opened:
            text = opened.read(MAX_TOKEN + 2).decode().strip()  # one character too many, and the end of the line
    except OSError as error:
        raise InvalidFile(f"{file}: cannot be read: {error.strerror}", "--token-file names a file") from None
    except (UnicodeDecodeError, RuntimeError):  # RuntimeError: the home of `~user` does not exist
        raise InvalidFile(f"{file}: is not text", "--token-file names a file with the token") from None
    if not text or len(text) > MAX_TOKEN:
        raise InvalidFile(f"{file}: expected a token, got {'more' if text else 'nothing'}", "it holds nothing else")
    return text


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


PAUSES = (1.0, 3.0, 9.0, 27.0)
"""Seconds before each further attempt: a server may restart, or wait for another writer of its store."""
ANSWER_TIMEOUT = 120.0
"""Seconds for an upload and its answer: the server itself waits for other writers of its store."""
_SHORTEST_WAIT = 0.1
"""Seconds for an upload and its answer even where less is left: a socket takes no time-out of 0."""
_MAX_PAUSE = 120.0
"""Longest pause in seconds, whatever a server asks for."""
_MAX_ANSWER = 1 << 20
"""Bytes of an answer that are read at most."""
_RETRY = frozenset({429, 502, 503, 504})
_EXAMPLE = "as in https://bench.example.org or http://127.0.0.1:8000"


class DeliveryError(UserError):
    """A run could not be delivered; it is still in the local store."""


class _Problem(Struct):
    error: str = ""
    hint: str = ""


class _HttpResponse(NamedTuple):
    status: int
    body: bytes
    location: str
    wait: float
    """Seconds after which the server asks to be tried again."""


class DashboardClient:
    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        insecure_http: bool = False,
        timeout: float = TIMEOUT,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        where = _check_url(url)
        self._host, self._port, self._https = where.hostname or "", where.port, where.scheme == "https"
        self._path = where.path.rstrip("/") + PATH
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.name = f"{where.scheme}://{host}{f':{self._port}' if self._port else ''}{where.path.rstrip('/')}"
        self._token, self._say = _check_token(token), say
        self._timeout = timeout
        self._waited = 0.0
        """Seconds that went by since the last delivery while something was tried."""
        if not (self._https or insecure_http or is_loopback(self._host)):
            raise InvalidParameter(
                f"{self.name}: over http everybody on the way could read the token",
                "use https, or an SSH tunnel to 127.0.0.1; --insecure-http does it all the same",
            )

    def deliver(self, body: bytes) -> PushReply:
        """Send one upload. Raises DeliveryError if it fails, and another UserError if any upload would fail like
        this. `check_time` says whether there is time for it."""
        deadline = time.monotonic() - self._waited + self._timeout
        for pause in (*PAUSES, None):
            try:
                answer = self._post(body, deadline)
                if answer.status not in _RETRY:
                    self._waited = 0.0
                    return self._read(answer)
                trouble, asked = f"answers {answer.status}", answer.wait
            except (ConnectionResetError, BrokenPipeError, TimeoutError, HTTPException) as error:
                trouble, asked = str(error) or type(error).__name__, 0.0
            except OSError as error:
                raise self._unreachable(error) from None
            left = deadline - time.monotonic()
            self._waited = self._timeout - left
            if left <= 0:
                raise self._given_up(f"{trouble}; given up: no delivery within {self._timeout:g} s")
            if pause is None:
                break
            wait = max(pause, min(asked, _MAX_PAUSE))
            if wait >= left:
                self._waited = self._timeout
                due = f"asks to wait {asked:g} s" if asked > pause else f"the next try would be in {wait:g} s"
                raise self._given_up(f"{trouble}; {due}, longer than --timeout {self._timeout:g} leaves")
            self._say(f"{self.name}: {trouble}; trying again in {wait:g} s, for {self._timeout:g} s in all")
            time.sleep(wait)
        raise DeliveryError(f"{self.name}: {trouble}", "nothing is lost here: push again later")

    def check_time(self) -> None:
        """Raise DeliveryError if an upload was given up for want of time: later ones are not tried."""
        if self._waited >= self._timeout:
            raise self._given_up("is not tried again")

    def _given_up(self, why: str) -> DeliveryError:
        hint = "nothing is lost here: push again later, or with a longer --timeout"
        return DeliveryError(f"{self.name}: {why}", hint)

    def _post(self, body: bytes, deadline: float) -> _HttpResponse:
        connection = self._connection(_answer_time(deadline))
        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": MEDIA_TYPE,
            "content-encoding": "gzip",
            "accept": "application/json",
            "user-agent": f"opmark/{VERSION}",
        }
        try:
            connection.connect()
            with _time_limit(connection.sock, _answer_time(deadline)):
                # A server may answer and close the connection before it has read the whole body.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.request("POST", self._path, body, headers)
                return _read_response(connection)
        finally:
            connection.close()

    def _connection(self, timeout: float) -> HTTPConnection:
        if not self._https:
            return HTTPConnection(self._host, self._port, timeout=timeout)
        return HTTPSConnection(self._host, self._port, timeout=timeout, context=ssl.create_default_context())

    def _read(self, answer: _HttpResponse) -> PushReply:
        status = answer.status
        if status in (200, 201):
            try:
                return msgspec.json.decode(answer.body, type=PushReply)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise self._not_a_dashboard("answers something else than a dashboard does") from None
        if 300 <= status < 400:
            raise self._not_a_dashboard(f"sends on to {_without_secrets(answer.location)}")
        problem = _read_problem(answer.body)
        if status in (401, 403):
            raise UserError(
                f"{self.name}: refuses the token ({status}): {problem.error or 'no reason is given'}",
                problem.hint or "is it the one that `opmark serve --token` was given?",
            )
        if status in (404, 405):
            raise self._not_a_dashboard(f"takes no runs ({status})")
        raise DeliveryError(f"{self.name}: {problem.error or f'answers {status}'}", problem.hint or None)

    def _not_a_dashboard(self, what: str) -> UserError:
        return UserError(f"{self.name}: {what}", "is that the address of `opmark serve`? " + _EXAMPLE)

    def _unreachable(self, error: OSError) -> UserError:
        if isinstance(error, ssl.SSLError):
            return UserError(
                f"{self.name}: no secure connection: {error.reason or error}",
                "SSL_CERT_FILE names the certificate of an authority of your own",
            )
        if isinstance(error, socket.gaierror):
            return UserError(f"{self.name}: no host of that name is known: {error.strerror}", _EXAMPLE)
        return DeliveryError(f"{self.name}: cannot be reached: {error.strerror or error}", "is `opmark serve` running?")


def _answer_time(deadline: float) -> float:
    """Return the seconds for an upload and its answer."""
    return min(ANSWER_TIMEOUT, max(deadline - time.monotonic(), _SHORTEST_WAIT))


@contextmanager
def _time_limit(sock: socket.socket, seconds: float) -> Iterator[None]:
    """Shut the connection down when the time is over, and raise TimeoutError. The time-out of a socket begins again
    with every record that TLS sends and every byte that is read, so that a slow server could outlast it."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        with suppress(OSError):  # it may be closed already
            # Not the method of an SSLSocket: that ends the encryption first, and the sender may still be at work.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError(f"not a whole answer within {seconds:.3g} s")


def _read_response(connection: HTTPConnection) -> _HttpResponse:
    response = connection.getresponse()
    body = response.read(_MAX_ANSWER)
    after = response.headers.get("retry-after", "")
    wait = float(after) if after.isascii() and after.isdecimal() else 0.0
    return _HttpResponse(response.status, body, response.headers.get("location", ""), wait)


def _without_secrets(location: str) -> str:
    """Return the address of a redirect without query and password; without a host, it is on the same server."""
    try:
        where = urlsplit(location)
        host = f"{where.scheme}://{where.hostname}" if where.hostname else ""
    except ValueError:
        return "what is no address"
    return f"{host}{where.path}" or "nowhere"


def _read_problem(body: bytes) -> _Problem:
    """Read the error message of a dashboard; a proxy in front of it may answer in another format."""
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Problem()


def _check_url(url: str) -> SplitResult:
    """Return the parts of the address. Errors do not quote it, because it may contain a password."""
    try:
        where = urlsplit(url)
        port = where.port
    except ValueError:
        raise InvalidParameter("URL: this is not an address", _EXAMPLE) from None
    if where.scheme not in ("http", "https") or not where.hostname:
        raise InvalidParameter("URL: expected an address that begins with https:// or http://", _EXAMPLE)
    if "@" in where.netloc:
        raise InvalidParameter(
            "URL: a user or a password in it would be seen by others", "OPMARK_TOKEN or --token-file has the token"
        )
    if where.query or where.fragment:
        raise InvalidParameter("URL: expected nothing behind a ? or #", "OPMARK_TOKEN or --token-file has the token")
    plain = url.isascii() and url.isprintable() and " " not in url
    if not plain or port == 0:
        raise InvalidParameter("URL: this is not an address", _EXAMPLE)
    return where


def _check_token(token: str | None) -> str:
    if not token:
        raise InvalidParameter("push: no token is given", "put the dashboard's into OPMARK_TOKEN, or use --token-file")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidParameter("push: the token has a character that none has", "printable ASCII without spaces")
    return token
