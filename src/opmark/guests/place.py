"""The interpreter that a backend's worker runs in: this one, the one that was named, or that of its environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from opmark.errors import UserError, nearest
from opmark.guests import overlay
from opmark.guests.environments import find_environment, list_environments
from opmark.guests.interpreter import inspect_interpreter
from opmark.interfaces import BackendInfo

_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
_NEEDED = ("numpy", *overlay.WORKER_PACKAGES)


class Place(NamedTuple):
    python: str
    own: bool
    """Whether it is the interpreter of this process."""


def place_of(info: BackendInfo) -> Place:
    """Choose the interpreter of a backend; raise UserError if the one that was named does not exist."""
    if info.python:
        return Place(_find_interpreter(info.python), own=False)
    if info.guest and info.why_missing():
        guest = find_environment(info.guest)
        if guest:
            return Place(str(guest.python), own=False)
    return Place(sys.executable, own=True)


def _find_interpreter(name: str) -> str:
    """Find an interpreter by the name of an environment of `opmark env`, or by its path."""
    guest = find_environment(name)
    if guest:
        return str(guest.python)
    path = Path(name).expanduser()
    if path.is_dir() and (path / "bin" / "python").exists():  # the folder of a virtual environment
        path = path / "bin" / "python"
    if not path.exists():
        near = nearest(name, [environment.name for environment in list_environments()])
        raise UserError(
            f"there is no interpreter and no environment `{name}`",
            f"did you mean `{near}`?" if near else "give a path to a Python, or a name as in `opmark env list`",
        )
    return str(path.absolute())


def why_missing(info: BackendInfo) -> str | None:
    """Say why a backend certainly cannot run in its interpreter, as far as this is known without an import."""
    place = place_of(info)
    if place.own:
        return info.why_missing()
    if info.requires is None:
        return None
    module = info.requires.partition(".")[0]  # looking for a submodule would import its package
    try:
        guest = inspect_interpreter(place.python, (module,))
    except UserError as error:
        if info.python:
            raise
        return error.message
    return None if module in guest.has else f"{module} is not installed in {place.python}"


def command(info: BackendInfo, module: str) -> list[str]:
    """Return the command that starts a module of opmark in a backend's interpreter, without the module's arguments."""
    place = place_of(info)
    if place.own:
        return [place.python, "-m", module]
    packages = overlay.provide_packages(inspect_interpreter(place.python, _NEEDED))
    return [place.python, str(_BOOTSTRAP), str(overlay.link_opmark()), str(packages or ""), module]
