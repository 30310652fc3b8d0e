"""Where the store is: as told, or as OPMARK_DB says, or in the user's data directory."""

from __future__ import annotations

import os
from pathlib import Path

from opmark.errors import StoreError

VARIABLE = "OPMARK_DB"


def store_path(told: str | os.PathLike[str] | None = None) -> Path:
    chosen = told or os.environ.get(VARIABLE)
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            raise StoreError(f"{chosen}: {error}", "name a path without ~") from None
    import platformdirs

    return platformdirs.user_data_path("opmark") / "opmark.db"
