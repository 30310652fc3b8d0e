"""Git, asked in a child process: nothing here changes a user's files, index or branches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opmark.errors import UserError
from opmark.schema.run import CHANGED

_PATIENCE = 600.0
# Variables that a hook of git's sets, and that would lead these commands to another repository or index.
_LEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
# Messages as they are written, no question to anybody, no index written just for having looked at it.
_QUIET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# A user's hooks are meant for their own work, and may do anything; signatures would be told before what is asked for.
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false", "-c", "log.showSignature=false")


class GitOutput(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The line that says why."""
        lines = [line for line in (self.err or self.out).splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (fatal or lines or ["it said nothing"])[-1].strip()


def ask(folder: str | Path, *arguments: str) -> GitOutput:
    """`git -C FOLDER ARGUMENTS`, whatever becomes of it."""
    environ = {name: value for name, value in os.environ.items() if name not in _LEADING} | _QUIET
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *_NO_HOOKS, *arguments],
            env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE,
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError("git is not installed, or not on PATH", "revisions are compared with git's help") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"git {arguments[0]} does not answer within {_PATIENCE:.0f} s") from None
    return GitOutput(done.returncode, *(text.decode(errors="replace") for text in (done.stdout, done.stderr)))


def tell(folder: str | Path, *arguments: str) -> str:
    """The same for what has to work: its output, without the last line break."""
    said = ask(folder, *arguments)
    if said.code != 0:
        raise UserError(f"git {' '.join(_words(arguments))}: {said.last}")
    return said.out.rstrip("\n")


def _words(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[:2] if arguments[0] in ("worktree", "bisect") else arguments[:1]


class Commit(NamedTuple):
    hash: str
    author: str
    date: str
    subject: str

    @property
    def short(self) -> str:
        return self.hash[:10]


def repository(folder: str | os.PathLike[str] | None = None) -> Path:
    """The root of the working tree that a folder lies in."""
    where = Path(folder or ".")
    if not where.is_dir():
        raise UserError(f"{where}: no such folder", "--repo PATH names a git repository")
    said = ask(where, "rev-parse", "--show-toplevel")
    if said.code != 0 or not said.out.strip():
        raise UserError(
            f"{where.resolve()}: no git repository with files in it: {said.last}",
            "--rev compares revisions of the repository of the current folder; --repo PATH names another one",
        )
    return Path(said.out.rstrip("\n"))


def commit_of(root: Path, revision: str) -> Commit:
    """UserError where that names no commit."""
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise UserError(f"{revision!a} is no name of a revision", "a branch, a tag or a hash, as in --rev main")
    said = ask(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if said.code != 0:
        raise UserError(f"{root}: git knows no revision `{revision}`", "a branch, a tag or a hash, as in --rev main")
    return described(root, said.out.strip())


def described(root: Path, commit: str) -> Commit:
    return Commit(*tell(root, "show", "--no-patch", "--format=%H%x00%an%x00%aI%x00%s", commit).split("\0"))


def changed(root: Path) -> bool:
    """Whether files differ from the last commit, or are not known to git."""
    return bool(tell(root, "status", "--porcelain", "--", *TRACKED))


# Which commit the current folder is at, said quickly and quietly: a run keeps it, and no run fails for it.

_REVISION_PATIENCE = 10.0
# A hook of git's sets them, for the repository that it is a hook of.
_REVISION_LEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
TRACKED = (":/", ":(top,exclude,glob)**/__pycache__/**")
"""All files but what Python writes beside the modules that a measurement imports."""


def revision_now(folder: str = ".") -> str:
    """The hash of HEAD; nothing where there is no repository, no commit or no git.

    Where git does not say in time whether files were changed, they may have been.
    """
    commit = _told(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return ""
    changes = _told(folder, "status", "--porcelain", "--", *TRACKED)
    return commit if changes == "" else commit + CHANGED


def _told(folder: str, *arguments: str) -> str | None:
    """None where it could not be had."""
    kept = {name: value for name, value in os.environ.items() if name not in _REVISION_LEADING}
    environ = {**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments], env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_REVISION_PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
