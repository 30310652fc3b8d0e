"""Folders of links that lend opmark, its plug-ins and the few packages that a worker needs to a guest's interpreter.

Nothing is installed into a guest that is given by path. The folders hold links: a guest runs what its parent runs.
"""

from __future__ import annotations

import hashlib
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

from opmark.errors import UserError
from opmark.guests.environments import cache_folder, environments_folder
from opmark.guests.interpreter import Interpreter

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
