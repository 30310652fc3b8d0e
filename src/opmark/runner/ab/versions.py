"""Searches the versions of a package for the first that is slower. Each version is installed in a guest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from opmark.errors import UnknownName, UserError
from opmark.runner.git import Commit
from opmark.runner.guests.environments import own_environ, recipes
from opmark.schema.comparison import Word

_TIMEOUT = 120.0
_LISTED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def versions_between(package: str, good: str, bad: str, known: Sequence[str] = ()) -> list[str]:
    """Return the versions from `good` to `bad`, both included, oldest first.

    `known` are versions in their order; without them, pip says which ones its index has.
    """
    if not _PACKAGE.fullmatch(package):
        raise UserError(f"package: expected the name of a package, got {package!a}", "as in --package torch")
    every = list(known) or _ask_pip(package)
    for version in (good, bad):
        if version not in every:
            raise UnknownName(f"version of {package}", version, every)
    first, last = every.index(good), every.index(bad)
    if first >= last:
        raise UserError(
            f"{package}: {good} is not older than {bad}",
            "--good names an older version that was fast, --bad a later one that is slow",
        )
    return every[first : last + 1]


def _ask_pip(package: str) -> list[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT, stdin=subprocess.DEVNULL,
            env=own_environ(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(
            f"pip does not say within {_TIMEOUT:.0f} s which versions of {package} there are", _NAME_THEM
        ) from None
    found = _LISTED.search(done.stdout)
    if done.returncode != 0 or found is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["it printed none"]
        raise UserError(f"pip does not say which versions of {package} there are: {lines[-1]}", _NAME_THEM)
    return [version.strip() for version in found[1].split(",")][::-1]


_NAME_THEM = "--versions lists them, oldest first, as in --versions 2.11.0,2.12.0,2.13.0"


def environment_request(package: str, version: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the requirements with which `opmark env create` makes the guest of a version."""
    if package in recipes():
        return f"{package}=={version}", ()
    return f"{package}-{version}", (f"{package}=={version}",)


def describe_version(package: str, version: str) -> Commit:
    """Return a version in the form of a commit: a search tells both in the same way."""
    return Commit(version, "", "", f"{package} {version}")


class VersionSearch:
    """A binary search over the versions of a package, with the methods of `Bisection`."""

    def __init__(self, package: str, versions: Sequence[str]) -> None:
        """`versions`: oldest first; the first one is good, the last one bad."""
        self._package = package
        self._versions = list(versions)
        self._good, self._bad = 0, len(versions) - 1
        self._skipped: set[int] = set()
        self._log = [f"good: {versions[0]}", f"bad: {versions[-1]}"]

    @property
    def _open(self) -> list[int]:
        return [at for at in range(self._good + 1, self._bad) if at not in self._skipped]

    @property
    def over(self) -> bool:
        return not self._open

    @property
    def left(self) -> list[Commit]:
        """The first bad version once the search is over; several, if versions before it had to be skipped."""
        return [describe_version(self._package, one) for one in self._versions[self._good + 1 : self._bad + 1]]

    def candidate(self) -> Commit:
        return describe_version(self._package, self._versions[self._middle()])

    def _middle(self) -> int:
        return min(self._open, key=lambda at: abs(2 * at - self._good - self._bad))

    def say(self, word: Word) -> None:
        """Judge the candidate."""
        at = self._middle()
        self._log.append(f"{word}: {self._versions[at]}")
        if word == "good":
            self._good = at
        elif word == "bad":
            self._bad = at
        else:
            self._skipped.add(at)

    def log(self) -> str:
        return "\n".join(self._log)
