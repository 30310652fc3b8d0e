"""What a guest's interpreter gets from this one: opmark itself, its plug-ins, and the few packages that a worker needs.

Nothing is installed into a guest that is given by path. Links, not copies: a guest runs what its parent runs.
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
from opmark.guests.environments import cache_folder, folder
from opmark.guests.interpreter import Interpreter

SUPPORT = ("msgspec", "psutil")
"""What a worker imports besides NumPy. Both have wheels for every Python that opmark runs on."""


@cache
def home() -> Path:
    """A folder that makes opmark and its plug-ins importable, with their entry points."""
    brought: dict[str, tuple[Distribution, list[str]]] = {}
    for distribution in distributions():
        groups = sorted({entry.group for entry in distribution.entry_points if entry.group.startswith("opmark.")})
        if groups:
            brought.setdefault(_info(distribution), (distribution, groups))

    def fill(place: Path) -> None:
        for distribution, groups in brought.values():
            _describe(place, distribution, groups)
            _link(place, {entry.module for entry in distribution.entry_points if entry.group in groups})

    return _kept("home", fill)


def _kept(kind: str, fill: Callable[[Path], None]) -> Path:
    """A folder of links, made once and named after what is in it: whoever needs the same finds it."""
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as fresh:
        filled = Path(fresh) / kind
        filled.mkdir()
        fill(filled)
        place = parent / f"{kind}-{_digest(filled)}"
        with suppress(OSError):  # it is there already
            filled.rename(place)
    return place


def _digest(filled: Path) -> str:
    """Of names, of where links lead, and of texts."""
    told = hashlib.sha256()
    for path in sorted(filled.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        told.update(f"{path.relative_to(filled)}\0{content}\0".encode())
    return told.hexdigest()[:16]


def _info(distribution: Distribution) -> str:
    return f"{distribution.name.replace('-', '_')}-{distribution.version}.dist-info"


def _describe(place: Path, distribution: Distribution, groups: Iterable[str]) -> None:
    """Name, version and entry points: all that is asked of it."""
    folder = place / _info(distribution)
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


def support(guest: Interpreter) -> Path | None:
    """A folder with what a worker needs and the guest has not; None where it has everything."""
    missing = [name for name in SUPPORT if name not in guest.has]
    if not missing:
        return None
    return _shared(tuple(missing)) if guest.abi == sys.implementation.cache_tag else _fetched(guest)


@cache
def _shared(names: tuple[str, ...]) -> Path:
    """From this interpreter, whose compiled modules fit."""
    return _kept("lent", lambda place: _link(place, names))


def _fetched(guest: Interpreter) -> Path:
    """For another version of Python, by pip, once."""
    place = folder() / f"support-{guest.abi}"
    if all((place / name).is_dir() for name in SUPPORT):
        return place
    print(f"fetching {' and '.join(SUPPORT)} for Python {guest.shown}, once, into {place}", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as fresh:
        version = ".".join(map(str, guest.version[:2]))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--only-binary=:all:", f"--python-version={version}", f"--target={fresh}", *SUPPORT]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            wanted = f"{guest.executable} -m pip install {' '.join(SUPPORT)}"
            raise UserError(f"{guest.executable} lacks {', '.join(SUPPORT)}, and pip cannot fetch them: {said}", wanted)
        shutil.rmtree(place, ignore_errors=True)
        Path(fresh).rename(place)
        Path(fresh).mkdir()  # for the context to remove
    return place
