from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opmark.schema.messages import VARIABLE


def apply_side(environ: Mapping[str, str] = os.environ) -> None:
    """Set the import path of a worker, before anything of the user's is imported. opmark itself stays the parent's."""
    told = _told(environ)
    instead = (told.get("checkout") or {}).get("instead_of")
    rest = [entry for entry in sys.path if not (instead and belongs(entry, instead))]
    sys.path[:] = [*told.get("folders", ()), *rest]


def facts_of_side(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Facts about the side for a record's environment: the variables that were asked for, the commit."""
    told = _told(environ)
    commit = (told.get("checkout") or {}).get("commit")
    variables = {name: environ[name] for name in told.get("environ", ()) if name in environ}
    return {"revision": commit, "variables": variables} if commit else {"variables": variables}


def _told(environ: Mapping[str, str]) -> dict[str, Any]:
    return json.loads(environ[VARIABLE]) if VARIABLE in environ else {}


def belongs(path: str, repository: str) -> bool:
    """Whether a file or folder is the repository's own: a virtual environment inside of it is not."""
    return _within(path, repository) and not (_within(sys.prefix, repository) and _within(path, sys.prefix))


def _within(path: str, folder: str) -> bool:
    return Path(path or ".").resolve().is_relative_to(Path(folder).resolve())
