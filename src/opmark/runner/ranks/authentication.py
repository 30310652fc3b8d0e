"""Proves to each other that the opmark of rank 0 and those of the other ranks belong to the same user.

Rank 0 can make another rank start programs, so neither trusts whoever comes first to a port. Both know a secret, which
never travels: each proves it by an HMAC over a number that the other has drawn, and every later line has an HMAC of its
own. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

from opmark.errors import UserError
from opmark.runner.ranks.connection import (
    MAX_FIRST_LINE,
    Challenge,
    ConnectionLost,
    Greeting,
    LineSeal,
    Proof,
    RankConnection,
    Refusal,
    challenge,
    encode_message,
    greeting,
    proof,
)
from opmark.version import VERSION

SECRET = "OPMARK_SECRET"
SECRET_FILE = "OPMARK_SECRET_FILE"
SAME_FOR_ALL = f"all ranks need the same secret: {SECRET}, or a file that all can read, which {SECRET_FILE} names"
_MIN_LENGTH = 16
"""Characters of a secret: fewer can be guessed from one proof."""
_RANK_ZERO, _AGENT = b"rank 0", b"agent"


class NotAuthenticated(Exception):
    """The other end has not proved that it knows the secret. The message reads well after its name."""


def read_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret of the user. It stands in a variable, in the file that a variable names, or in a file in the
    user's data directory, which is made when it is first needed. Raise UserError where none of these serves."""
    if environ.get(SECRET):
        found, source = environ[SECRET], SECRET
    else:
        named = environ.get(SECRET_FILE)
        path = Path(named) if named else _make_secret_file()
        try:
            if path.stat().st_mode & stat.S_IRWXO:
                raise UserError(f"{path}: this secret is open to every user of this host", f"chmod o= {path}")
            found, source = path.read_text().strip(), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: the secret of the ranks cannot be read: {error}", SAME_FOR_ALL) from None
    if len(found) < _MIN_LENGTH:
        raise UserError(
            f"{source}: expected a secret of at least {_MIN_LENGTH} characters, got {len(found)}",
            "`openssl rand -hex 32` draws one",
        )
    return found.encode()


def _make_secret_file() -> Path:
    """Return the file in the user's data directory. Several processes, also on several hosts, may make it at the same
    time: all of them then have the one that came first."""
    path = platformdirs.user_data_path("opmark") / "rank-secret"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name) as made:  # only its owner may read
                made.write(secrets.token_hex(32) + "\n")
                made.flush()
                with suppress(FileExistsError):
                    os.link(made.name, path)
    except OSError as error:
        raise UserError(f"{path}: no secret for the ranks can be kept there: {error}", SAME_FOR_ALL) from None
    return path


def prove_to_rank_zero(connection: RankConnection, who: Greeting, secret: bytes) -> None:
    """Greet rank 0, and go on with signed lines. Raise NotAuthenticated where the other end is not rank 0, UserError
    where it refuses, ConnectionLost where it does not answer."""
    connection.send(who)
    answer = connection.receive(challenge, MAX_FIRST_LINE)
    if isinstance(answer, Refusal):
        raise UserError(answer.reason, "every rank is started with the same command of the same opmark")
    said = encode_message(who) + answer.nonce.encode()
    if not _equal(answer.proof, _sign(secret, _RANK_ZERO, said)):
        raise NotAuthenticated("has another secret than this rank, or none")
    connection.send(Proof(_sign(secret, _AGENT, said)))
    _seal(connection, secret, said, _AGENT, _RANK_ZERO)


def admit_agent(connection: RankConnection, secret: bytes) -> Greeting:
    """Return the greeting of an agent that has proved who it is, and go on with signed lines. Raise NotAuthenticated if
    it has not."""
    try:
        who, line = connection.receive_line(greeting, MAX_FIRST_LINE)
        if not who.nonce:
            connection.send(
                Refusal(f"rank 0 has opmark {VERSION}, which wants a proof that opmark {who.version} lacks")
            )
            raise NotAuthenticated(f"has opmark {who.version}, which cannot prove who it is")
        nonce = secrets.token_hex(32)
        said = line + nonce.encode()
        connection.send(Challenge(nonce, _sign(secret, _RANK_ZERO, said)))
        answer: Proof = connection.receive(proof, MAX_FIRST_LINE)
    except ConnectionLost as loss:
        raise NotAuthenticated(f"{loss.reason} before it had proved that it knows the secret") from None
    if not _equal(answer.proof, _sign(secret, _AGENT, said)):
        raise NotAuthenticated("does not know the secret")
    _seal(connection, secret, said, _RANK_ZERO, _AGENT)
    found: Greeting = who
    return found


def _seal(connection: RankConnection, secret: bytes, said: bytes, own: bytes, other: bytes) -> None:
    """Sign every line from now on, with keys that only this connection has."""
    keys = {role: hmac.digest(secret, b"lines of " + role + said, "sha256") for role in (own, other)}
    connection.seal(LineSeal(keys[own]), LineSeal(keys[other]))


def _sign(secret: bytes, role: bytes, said: bytes) -> str:
    return hmac.digest(secret, b"proof of " + role + said, "sha256").hex()


def _equal(given: str, due: str) -> bool:
    return hmac.compare_digest(given.encode(), due.encode())
