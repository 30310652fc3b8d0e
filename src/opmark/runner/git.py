"""Runs git in a child process. Nothing here changes a user's files, index or branches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from opmark.errors import UserError
from opmark.schema.run import CHANGED

_TIMEOUT = 600.0
_QUICK_TIMEOUT = 10.0
# Variables that a git hook sets, and that would lead these commands to another repository or index.
_REDIRECTING_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
)
# Messages in English, no questions to the user, no index written just for reading it.
_QUIET_VARIABLES = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# A user's hooks may do anything, and signatures would be printed before the answer.
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false", "-c", "log.showSignature=false")

TRACKED = (":/", ":(top,exclude,glob)**/__pycache__/**", ":(top,exclude,glob)**/*.db", ":(top,exclude,glob)**/*.db-*")
"""All files but those that a measurement itself writes: what Python puts beside modules, and stores."""


class GitOutput(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The line of the output that says why git failed."""
        lines = [line for line in (self.err or self.out).splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (fatal or lines or ["it said nothing"])[-1].strip()


def run_git(folder: str | Path, *arguments: str, timeout: float = _TIMEOUT) -> GitOutput:
    """Run `git -C FOLDER ARGUMENTS`. A failure is not raised: the result has the exit code."""
    environ = {
        name: value for name, value in os.environ.items() if name not in _REDIRECTING_VARIABLES
    } | _QUIET_VARIABLES
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *_NO_HOOKS, *arguments],
            env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout,
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError("git is not installed, or not on PATH", "revisions are compared with git's help") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"git {arguments[0]} does not answer within {timeout:.0f} s") from None
    return GitOutput(done.returncode, *(text.decode(errors="replace") for text in (done.stdout, done.stderr)))


def git_output(folder: str | Path, *arguments: str) -> str:
    """The output of a git command without the last line break. Raise UserError where git fails."""
    result = run_git(folder, *arguments)
    if result.code != 0:
        words = arguments[:2] if arguments[0] in ("worktree", "bisect") else arguments[:1]
        raise UserError(f"git {' '.join(words)}: {result.last}")
    return result.out.rstrip("\n")


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
    if not os.path.isdir(where):  # noqa: PTH112 - any text
        raise UserError(f"{where}: no such folder", "--repo PATH names a git repository")
    result = run_git(where, "rev-parse", "--show-toplevel")
    if result.code != 0 or not result.out.strip():
        raise UserError(
            f"{where.resolve()}: no git repository with files in it: {result.last}",
            "--rev compares revisions of the repository of the current folder; --repo PATH names another one",
        )
    return Path(result.out.rstrip("\n"))


def commit_of(root: Path, revision: str) -> Commit:
    """The commit that a branch, a tag or a hash names. Raise UserError where it names none."""
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise UserError(f"{revision!a} is no name of a revision", "a branch, a tag or a hash, as in --rev main")
    result = run_git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if result.code != 0:
        raise UserError(f"{root}: git knows no revision `{revision}`", "a branch, a tag or a hash, as in --rev main")
    return describe_commit(root, result.out.strip())


def describe_commit(root: Path, commit: str) -> Commit:
    return Commit(*git_output(root, "show", "--no-patch", "--format=%H%x00%an%x00%aI%x00%s", commit).split("\0"))


def has_changes(root: Path) -> bool:
    """Whether files differ from the last commit, or are not known to git."""
    return bool(git_output(root, "status", "--porcelain", "--", *TRACKED))


def revision_now(folder: str = ".") -> str:
    """The hash of HEAD, marked where files were changed since; empty where there is no repository, no commit or no git.

    A run stores it, and no run fails for want of it. Where git does not say in time whether files were changed, they
    count as changed.
    """
    try:
        head = run_git(folder, "rev-parse", "--verify", "--quiet", "HEAD", timeout=_QUICK_TIMEOUT)
    except (UserError, OSError):
        return ""
    commit = head.out.strip()
    if head.code != 0 or not commit:
        return ""
    try:
        status = run_git(folder, "status", "--porcelain", "--", *TRACKED, timeout=_QUICK_TIMEOUT)
    except (UserError, OSError):
        return commit + CHANGED
    return commit if status.code == 0 and not status.out.strip() else commit + CHANGED
