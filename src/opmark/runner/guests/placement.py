"""Chooses the interpreter of a backend's worker, and lends opmark, its plug-ins and a few packages to a guest's.

Nothing is installed into a guest that is given by path. Folders of links are put on its import path: a guest runs what
its parent runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from opmark.errors import UserError, nearest
from opmark.plugin import BackendInfo
from opmark.runner.guests.environments import (
    Interpreter,
    cache_folder,
    environments_folder,
    find_environment,
    inspect_interpreter,
    list_environments,
)

WORKER_PACKAGES = ("msgspec", "psutil")
"""Packages that a worker imports besides NumPy. Both have wheels for every Python that opmark runs on."""


@cache
def link_opmark() -> Path:
    """Return a folder that makes opmark and its plug-ins importable, with their entry points."""
    plugins: dict[str, tuple[Distribution, list[str]]] = {}
    for distribution in distributions():
        groups = sorted({entry.group for entry in distribution.entry_points if entry.group.startswith("opmark.")})
        if groups:
            plugins.setdefault(_info_folder(distribution), (distribution, groups))

    def fill(place: Path) -> None:
        for distribution, groups in plugins.values():
            _write_metadata(place, distribution, groups)
            _link(place, {entry.module for entry in distribution.entry_points if entry.group in groups})

    return _cache_folder_of_links("home", fill)


def _cache_folder_of_links(kind: str, fill: Callable[[Path], None]) -> Path:
    """Create a folder of links once; its name is a hash of its content, so that it is found again."""
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as fresh:
        filled = Path(fresh) / kind
        filled.mkdir()
        fill(filled)
        place = parent / f"{kind}-{_digest(filled)}"
        with suppress(OSError):  # the folder exists already
            filled.rename(place)
    return place


def _digest(filled: Path) -> str:
    """Hash the names, the targets of links and the texts in a folder."""
    digest = hashlib.sha256()
    for path in sorted(filled.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        digest.update(f"{path.relative_to(filled)}\0{content}\0".encode())
    return digest.hexdigest()[:16]


def _info_folder(distribution: Distribution) -> str:
    return f"{distribution.name.replace('-', '_')}-{distribution.version}.dist-info"


def _write_metadata(place: Path, distribution: Distribution, groups: Iterable[str]) -> None:
    """Write name, version and entry points, all that a worker reads of a distribution."""
    folder = place / _info_folder(distribution)
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution.name}\nVersion: {distribution.version}\n"
    )
    lines = []
    for group in groups:
        lines += [f"[{group}]", *(f"{e.name} = {e.value}" for e in distribution.entry_points if e.group == group), ""]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def _link(place: Path, modules: Iterable[str]) -> None:
    for name in {module.partition(".")[0] for module in modules}:
        found = find_spec(name)
        if found is None or (place / name).exists():
            continue
        if found.submodule_search_locations:
            (place / name).symlink_to(next(iter(found.submodule_search_locations)))
        elif found.origin:
            (place / Path(found.origin).name).symlink_to(found.origin)


def provide_packages(guest: Interpreter) -> Path | None:
    """Return a folder with the packages that a worker needs and the guest lacks; None if it has them all."""
    missing = [name for name in WORKER_PACKAGES if name not in guest.has]
    if not missing:
        return None
    return _link_packages(tuple(missing)) if guest.abi == sys.implementation.cache_tag else _fetch_packages(guest)


@cache
def _link_packages(names: tuple[str, ...]) -> Path:
    """Link packages of this interpreter, whose compiled modules fit the guest."""
    return _cache_folder_of_links("lent", lambda place: _link(place, names))


def _fetch_packages(guest: Interpreter) -> Path:
    """Let pip fetch the packages once for another version of Python."""
    place = environments_folder() / f"support-{guest.abi}"
    if all((place / name).is_dir() for name in WORKER_PACKAGES):
        return place
    print(
        f"fetching {' and '.join(WORKER_PACKAGES)} for Python {guest.version_text}, once, into {place}", file=sys.stderr
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as fresh:
        version = ".".join(map(str, guest.version[:2]))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--only-binary=:all:", f"--python-version={version}", f"--target={fresh}",
                   *WORKER_PACKAGES]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise UserError(
                f"{guest.executable} lacks {', '.join(WORKER_PACKAGES)}, and pip cannot fetch them: {last}",
                f"{guest.executable} -m pip install {' '.join(WORKER_PACKAGES)}",
            )
        shutil.rmtree(place, ignore_errors=True)
        Path(fresh).rename(place)
        Path(fresh).mkdir()  # the context manager expects a folder to remove
    return place


# The interpreter of a backend's worker: this one, the one that was named, or that of an environment.

_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
_NEEDED = ("numpy", *WORKER_PACKAGES)


class InterpreterChoice(NamedTuple):
    python: str
    own: bool
    """Whether it is the interpreter of this process."""


def choose_interpreter(info: BackendInfo) -> InterpreterChoice:
    """Choose the interpreter of a backend; raise UserError if the one that was named does not exist."""
    if info.python:
        return InterpreterChoice(_find_interpreter(info.python), own=False)
    if info.guest and info.why_missing():
        guest = find_environment(info.guest)
        if guest:
            return InterpreterChoice(str(guest.python), own=False)
    return InterpreterChoice(sys.executable, own=True)


def _find_interpreter(name: str) -> str:
    """Find an interpreter by the name of an environment of `opmark env`, or by its path."""
    guest = find_environment(name)
    if guest:
        return str(guest.python)
    path = Path(os.path.expanduser(name))  # noqa: PTH111 - any text
    if os.path.isfile(path / "bin" / "python"):  # noqa: PTH113 - the folder of a virtual environment
        path = path / "bin" / "python"
    if not os.path.exists(path):  # noqa: PTH110 - any text
        near = nearest(name, [environment.name for environment in list_environments()])
        raise UserError(
            f"there is no interpreter and no environment `{name}`",
            f"did you mean `{near}`?" if near else "give a path to a Python, or a name as in `opmark env list`",
        )
    return str(path.absolute())


def why_missing(info: BackendInfo) -> str | None:
    """Say why a backend certainly cannot run in its interpreter, as far as this is known without an import."""
    place = choose_interpreter(info)
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


def worker_command(info: BackendInfo, module: str) -> list[str]:
    """Return the command that starts a module of opmark in a backend's interpreter, without the module's arguments."""
    place = choose_interpreter(info)
    if place.own:
        return [place.python, "-m", module]
    packages = provide_packages(inspect_interpreter(place.python, _NEEDED))
    return [place.python, str(_BOOTSTRAP), str(link_opmark()), str(packages or ""), module]
