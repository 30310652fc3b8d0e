"""A side, one of two things that are compared: what its workers are started with, and what a worker makes of that."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

VARIABLE = "OPMARK_SIDE"
"""The variable that tells a worker which side it works for."""


class Checkout(Struct, frozen=True):
    """Files of a git repository: what is measured has to come from there."""

    root: str
    commit: str
    """The hash of the commit, with a `+` where files had been changed since."""
    folder: str
    """The folder in which workers start: it matches the user's current folder."""
    instead_of: str = ""
    """The repository that these files are an older state of: nothing may come from there."""


class Side(Struct, frozen=True):
    name: str
    """The name that people read."""
    backend: str
    """The name of the backend, with its variant and its interpreter."""
    threads: int
    environ: dict[str, str | None] = {}
    """Variables that replace those of this process; None removes one."""
    folders: tuple[str, ...] = ()
    """Folders that are put first on the import path."""
    checkout: Checkout | None = None

    @property
    def plain(self) -> bool:
        """Whether the workers of this side are started like any other."""
        return not (self.environ or self.folders or self.checkout)

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a worker of this side, where other workers have `environ`."""
        if self.plain:
            return dict(environ)
        kept = {name: value for name, value in environ.items() if name not in self.environ}
        told = {VARIABLE: json.dumps(to_builtins(asdict(self)))}
        if self.checkout:
            # Git may write two states of a file within the same second and of the same length: compiled modules that
            # were left behind would be taken for those of the other state.
            told["PYTHONDONTWRITEBYTECODE"] = "1"
        return {**kept, **{name: value for name, value in self.environ.items() if value is not None}, **told}


def take_side(environ: Mapping[str, str] = os.environ) -> None:
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


def mapped(folders: Iterable[str], root: str, onto: str) -> tuple[str, ...]:
    """The same folders in another checkout, as far as they exist there, each once."""
    places = (Path(onto) / Path(folder).resolve().relative_to(Path(root).resolve()) for folder in folders)
    return tuple(dict.fromkeys(str(place) for place in places if place.is_dir()))
