"""Where a backend's worker runs: in this interpreter, in the one that was named, or in that of its guest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from opmark.errors import UserError, nearest
from opmark.guests import overlay
from opmark.guests.environments import find, found
from opmark.guests.interpreter import ask
from opmark.interfaces import BackendInfo

_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
_NEEDED = ("numpy", *overlay.SUPPORT)


class Place(NamedTuple):
    python: str
    own: bool
    """This interpreter."""


def place_of(info: BackendInfo) -> Place:
    """UserError where an interpreter is named that is none."""
    if info.python:
        return Place(_named(info.python), own=False)
    if info.guest and info.why_missing():
        guest = find(info.guest)
        if guest:
            return Place(str(guest.python), own=False)
    return Place(sys.executable, own=True)


def _named(name: str) -> str:
    """The interpreter of an environment of ours, or one by its path."""
    guest = find(name)
    if guest:
        return str(guest.python)
    path = Path(name).expanduser()
    if path.is_dir() and (path / "bin" / "python").exists():  # a virtual environment, named by its folder
        path = path / "bin" / "python"
    if not path.exists():
        near = nearest(name, [environment.name for environment in found()])
        raise UserError(
            f"no interpreter and no environment `{name}`",
            f"did you mean `{near}`?" if near else "give a path to a Python, or a name as in `opmark env list`",
        )
    return str(path.absolute())


def why_missing(info: BackendInfo) -> str | None:
    """Why it certainly cannot run where it would, as far as that can be told without an import."""
    place = place_of(info)
    if place.own:
        return info.why_missing()
    if info.requires is None:
        return None
    module = info.requires.partition(".")[0]  # a part of a package is not looked for: that would import the package
    try:
        guest = ask(place.python, (module,))
    except UserError as error:
        if info.python:
            raise
        return error.message
    return None if module in guest.has else f"{module} is not installed in {place.python}"


def command(info: BackendInfo, module: str) -> list[str]:
    """How a module of opmark's is started for a backend; its arguments follow."""
    place = place_of(info)
    if place.own:
        return [place.python, "-m", module]
    support = overlay.support(ask(place.python, _NEEDED))
    return [place.python, str(_BOOTSTRAP), str(overlay.home()), str(support or ""), module]
