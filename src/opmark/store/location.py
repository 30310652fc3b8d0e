"""Where the store is: as told, or as OPMARK_DB says, or in the user's data directory. A file, or a server's address."""

from __future__ import annotations

import os
from pathlib import Path

from opmark.errors import StoreError

VARIABLE = "OPMARK_DB"
SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://")

Told = str | os.PathLike[str] | None


def address(told: Told = None) -> str | Path:
    """A server's address as it was given, or the path of a file."""
    chosen = os.fspath(told or os.environ.get(VARIABLE) or "")
    return chosen if is_server(chosen) else store_path(chosen)


def is_server(text: str) -> bool:
    return text.startswith(SCHEMES)


def store_path(told: Told = None) -> Path:
    chosen = told or os.environ.get(VARIABLE)
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            raise StoreError(f"{chosen}: {error}", "name a path without ~") from None
    import platformdirs

    return platformdirs.user_data_path("opmark") / "opmark.db"


def there(told: Told = None) -> bool:
    """Whether something can be looked at; of a server, only asking tells."""
    where = address(told)
    return isinstance(where, str) or where.exists()


def shown(told: Told = None) -> str | Path:
    """For messages: without the password, and as it could be given again."""
    where = address(told)
    if isinstance(where, Path):
        return where
    scheme, _, rest = where.partition("://")
    who, at, place = rest.rpartition("@")
    return f"{scheme}://{who.partition(':')[0]}{at}{place.partition('?')[0]}"
