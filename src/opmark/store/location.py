"""Where the store is: as told, or as OPMARK_DB says, or in the user's data directory. A file, or a server's address."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from opmark.errors import StoreError

VARIABLE = "OPMARK_DB"
SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")

_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")
"""How an address begins, of whatever kind: one letter alone is a drive of Windows."""
_HOST = r"(?:\[[\da-fA-F:.%]+\]|[^\s:/@?#\[\]]*)(?::\d+)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^\s:@?#]*)?")
"""Hosts with their ports, and the database."""
_USER = re.compile(r"[\w.%+-]*")
_TOLD_TOO = ("options", "host", "port", "dbname", "sslmode")
"""What may stand behind the ? of an address and is no secret."""
_AS_IN = "as in postgresql://user@host/database"
_VARIABLES = "--env"
"""The option whose values are variables of the environment: tokens are."""

Told = str | os.PathLike[str] | None


def address(told: Told = None) -> str | Path:
    """A server's address as it was given, or the path of a file."""
    chosen = os.fspath(told or os.environ.get(VARIABLE) or "")
    return chosen if is_server(chosen) else store_path(chosen)


def is_server(text: str) -> bool:
    """An address of any kind, also one that no store can be at: it is never a file, and may hold a password."""
    return _ADDRESS.match(text) is not None


def server(where: str) -> str:
    """An address that a store can be at. What is wrong with another is said without quoting it."""
    scheme, behind, rest = where.partition("://")
    if scheme.lower() not in SCHEMES or not behind:
        scheme = where.partition(":/")[0]
        raise StoreError(f"{mask_password(where)}: a store is a file or postgresql://..., not {scheme}:/...", _AS_IN)
    if rest.count("@") > 1 or "@" in rest.partition("?")[2]:
        raise StoreError(f"{mask_password(where)}: this address has an @ too many", "in a password, write it as %40")
    if not _PLACE.fullmatch(rest.rpartition("@")[2].partition("?")[0]):
        raise StoreError(
            f"{mask_password(where)}: this is not the address of a database",
            f"{_AS_IN}; in a password write / as %2F, : as %3A, ? as %3F",
        )
    return f"{scheme.lower()}://{rest}"


def store_path(told: Told = None) -> Path:
    chosen = told or os.environ.get(VARIABLE)
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            raise StoreError(f"{chosen}: {error}", "name a path without ~") from None
    import platformdirs

    return platformdirs.user_data_path("opmark") / "opmark.db"


def store_exists(told: Told = None) -> bool:
    """Whether something can be looked at; of a server, only asking tells."""
    where = address(told)
    return isinstance(where, str) or where.exists()


def display_address(told: Told = None) -> str | Path:
    """For messages: without the password, and as it could be given again."""
    where = address(told)
    return where if isinstance(where, Path) else mask_password(where)


def mask_password(where: str) -> str:
    """An address without its password. Of one that is not quite right nobody knows where that stands: then only what
    is behind the last @ is told, and not even that where it does not look like a host and a database."""
    scheme, _, rest = where.partition(":/")
    who, at, place = rest.removeprefix("/").rpartition("@")
    place, _, asked = place.partition("?")
    if not _PLACE.fullmatch(place) or "?" in who or "password" in place:
        return f"{scheme}://..."
    user = who.partition(":")[0]
    known = user if "@" not in who and _USER.fullmatch(user) else "..."
    told = "&".join(part for part in asked.split("&") if part.partition("=")[0] in _TOLD_TOO)
    return f"{scheme}://{known}{at}{place}{'?' * bool(told)}{told}"


def without_secrets(arguments: Iterable[str]) -> Iterator[str]:
    """A command as others may read it: no password of an address, no value of a variable."""
    is_variable = False
    for argument in arguments:
        option, given, value = argument.partition("=")
        if is_variable:
            yield _named(argument)
        elif option == _VARIABLES and given:
            yield f"{option}={_named(value)}"
        elif found := _ADDRESS.search(argument):
            yield argument[: found.start()] + mask_password(argument[found.start() :])
        else:
            yield argument
        is_variable = argument == _VARIABLES


def _named(variable: str) -> str:
    name, given, _ = variable.partition("=")
    return f"{name}{given}{'...' * bool(given)}"
