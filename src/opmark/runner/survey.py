"""Tells from metadata which backends are installed: packages, builds, drivers, environments. No framework is imported
and no process is started, so it takes a fraction of a second; whether a backend runs is left to `probe`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from opmark.hardware.host import nvidia_driver, why_no_device, why_no_driver_library
from opmark.plugin import BackendInfo, Build, Installation
from opmark.plugin.backend import find_module
from opmark.plugin.registry import backends
from opmark.runner.guests.placement import InterpreterChoice, choose_interpreter, why_missing
from opmark.schema import Availability

_INFO_FOLDER = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(-py[^-]*)?\.(dist|egg)-info")
"""Folder of a package's metadata: its name and version stand there, also if its files are damaged."""


def survey(infos: Iterable[BackendInfo] | None = None) -> list[Availability]:
    """Return what metadata tells about backends, or about all of them. A reason of None means: nothing speaks against
    it."""
    look = _Survey()
    return [look.at(info) for info in (backends().values() if infos is None else infos)]


class _Survey:
    """One look at everything that is installed; folders are read once."""

    def __init__(self) -> None:
        self._own = _PackageFolders(sys.path)
        self._guests: dict[Path, _PackageFolders] = {}

    def at(self, info: BackendInfo) -> Availability:
        place = choose_interpreter(info)
        missing, installed, packages = self._find(info, place)
        build = _read_build(info, installed) if installed else Build()
        facts: dict[str, Any] = {**packages, **build.facts}
        if not place.own:
            facts["environment"] = info.python or info.guest
        reason = missing or why_no_device(info.device) or build.unfit
        if info.device == "cuda" and not reason:
            facts |= nvidia_driver()
            reason = self._why_no_driver_library
        return Availability(info.name, info.summary, reason, facts, probed=False)

    @cached_property
    def _why_no_driver_library(self) -> str | None:
        return why_no_driver_library()

    def _find(
        self, info: BackendInfo, place: InterpreterChoice
    ) -> tuple[str | None, Installation | None, dict[str, str]]:
        """Return why a backend's framework is missing, or where it is and the packages that it came with."""
        if info.outdated or info.requires is None:
            return info.outdated or None, None, {}
        if place.own:
            missing = info.why_missing()
            spec = None if missing else find_module(info.requires)
            if spec is None:
                return missing, None, {}
            folder = Path(next(iter(spec.submodule_search_locations or ()), spec.origin or ""))
            folders = self._own
        else:
            found = self._guest(place.python)
            if found is None:  # not a virtual environment: only the interpreter knows where its packages are
                return why_missing(info), None, {}
            folders, folder = found, found.folders[0].joinpath(*info.requires.split("."))
            if not os.access(place.python, os.X_OK):
                return f"`{place.python}` is not a program", None, {}
            if not folder.exists():
                return f"{info.requires} is not installed in {place.python}", None, {}
        site = folder.parents[info.requires.count(".")]
        return None, Installation(folder, folders.packages), folders.owners(info.requires, site)

    def _guest(self, python: str) -> _PackageFolders | None:
        """Return the packages of a virtual environment; None if the interpreter is not in one."""
        place = Path(python).parents[1]
        if place not in self._guests and (place / "pyvenv.cfg").is_file():
            sites = [*place.glob("lib/python*/site-packages"), *place.glob("Lib/site-packages")]
            if sites:
                self._guests[place] = _PackageFolders(list(map(str, sites)))
        return self._guests.get(place)


def _read_build(info: BackendInfo, installed: Installation) -> Build:
    try:
        return info.read_build(installed) if info.read_build else Build()
    except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything, and is one of many here
        return Build(unfit=f"its build cannot be read: {type(error).__name__}: {error}")


class _PackageFolders:
    """The folders that an interpreter imports from, and the packages that are installed there."""

    def __init__(self, path: Sequence[str]) -> None:
        self.folders = [Path(folder) for folder in dict.fromkeys(path) if Path(folder).is_dir()]
        self._records: dict[Path, dict[str, bytes]] = {}

    @cached_property
    def packages(self) -> dict[str, str]:
        """Versions by name; a package that was installed twice counts where Python finds it first."""
        found: dict[str, str] = {}
        for folder in self.folders:
            for name, (version, _) in _packages_in(folder).items():
                found.setdefault(name, version)
        return found

    def owners(self, module: str, site: Path) -> dict[str, str]:
        """Return name and version of the packages that have installed a module, by their lists of files. If no list
        names it, as for one that is edited in place, the package of the same name counts."""
        if site not in self._records:
            self._records[site] = {name: _read_record(metadata) for name, (_, metadata) in _packages_in(site).items()}
        path = module.replace(".", "/").encode()
        files = (b"\n%s/__init__.py," % path, b"\n%s.py," % path)
        found = [name for name, record in self._records[site].items() if any(file in record for file in files)]
        return {name: self.packages[name] for name in found or [_normal(module)] if name in self.packages}


def _packages_in(folder: Path) -> dict[str, tuple[str, Path]]:
    """Return version and folder of metadata of each package in a folder, by name."""
    try:
        found = [(path, match) for path in sorted(folder.iterdir()) if (match := _INFO_FOLDER.fullmatch(path.name))]
    except OSError:
        return {}
    return {_normal(match["name"]): (match["version"], path) for path, match in found}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_record(metadata: Path) -> bytes:
    """Return the list of a package's files, each line behind a line feed; nothing if it has none."""
    try:
        return b"\n" + (metadata / "RECORD").read_bytes()
    except OSError:
        return b""
