"""Find the store: from the option, from OPMARK_DB, or in the user's data directory. It is a file or a server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from opmark.errors import StoreError

VARIABLE = "OPMARK_DB"
SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")

_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")
"""Start of an address of any kind; a single letter would be a drive of Windows."""
_HOST = r"(?:\[[\da-fA-F:.%]+\]|[^\s:/@?#\[\]]*)(?::\d+)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^\s:@?#]*)?")
"""Hosts with their ports, and the database."""
_USER = re.compile(r"[\w.%+-]*")
_PUBLIC_OPTIONS = ("options", "host", "port", "dbname", "sslmode")
"""Options behind the ? of an address that are no secrets."""
_AS_IN = "as in postgresql://user@host/database"
_VARIABLES = "--env"
"""Option whose values are environment variables, which may be secret."""

StoreLocation = str | os.PathLike[str] | None


def address(location: StoreLocation = None) -> str | Path:
    """Return the address of a server as it was given, or the path of a file."""
    chosen = os.fspath(location or os.environ.get(VARIABLE) or "")
    return chosen if is_server(chosen) else store_path(chosen)


def is_server(text: str) -> bool:
    """Return whether a text is an address of any kind, even an unsupported one. It is never a file, and may contain a
    password."""
    return _ADDRESS.match(text) is not None


def server(where: str) -> str:
    """Return the address of a PostgreSQL server; errors do not quote the address."""
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


def store_path(location: StoreLocation = None) -> Path:
    chosen = location or os.environ.get(VARIABLE)
    if chosen:
        try:
            path = Path(chosen).expanduser()
            with suppress(FileNotFoundError, NotADirectoryError):
                path.stat()
        except RuntimeError as error:
            raise StoreError(f"{chosen}: {error}", "name a path without ~") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise StoreError(f"{chosen}: cannot be reached: {why}", "--db or OPMARK_DB names another place") from None
        return path
    import platformdirs

    return platformdirs.user_data_path("opmark") / "opmark.db"


def store_exists(location: StoreLocation = None) -> bool:
    """Return whether the store may exist; for a server that is only known after connecting."""
    where = address(location)
    return isinstance(where, str) or where.exists()


def display_address(location: StoreLocation = None) -> str | Path:
    """Return the location for messages: without the password, and in a form that --db takes."""
    where = address(location)
    return where if isinstance(where, Path) else mask_password(where)


def mask_password(where: str) -> str:
    """Return an address without its password. In a malformed address the password may be anywhere: then only the part
    after the last @ is shown, and only if it looks like a host and a database."""
    scheme, _, rest = where.partition(":/")
    who, at, place = rest.removeprefix("/").rpartition("@")
    place, _, options = place.partition("?")
    if not _PLACE.fullmatch(place) or "?" in who or "password" in place:
        return f"{scheme}://..."
    user = who.partition(":")[0]
    known = user if "@" not in who and _USER.fullmatch(user) else "..."
    public = "&".join(part for part in options.split("&") if part.partition("=")[0] in _PUBLIC_OPTIONS)
    return f"{scheme}://{known}{at}{place}{'?' * bool(public)}{public}"


def without_secrets(arguments: Iterable[str]) -> list[str]:
    """Return the arguments of a command without passwords of addresses and values of variables."""
    shown: list[str] = []
    is_variable = False
    for argument in arguments:
        option, given, value = argument.partition("=")
        if is_variable:
            shown.append(_named(argument))
        elif option == _VARIABLES and given:
            shown.append(f"{option}={_named(value)}")
        elif found := _ADDRESS.search(argument):
            shown.append(argument[: found.start()] + mask_password(argument[found.start() :]))
        else:
            shown.append(argument)
        is_variable = argument == _VARIABLES
    return shown


def _named(variable: str) -> str:
    name, given, _ = variable.partition("=")
    return f"{name}{given}{'...' * bool(given)}"
