"""Which commit the current folder is at, said quickly and quietly: a run keeps it, and no run fails for it."""

from __future__ import annotations

import os
import subprocess

from opmark.schema.run import CHANGED

_PATIENCE = 10.0
# A hook of git's sets them, for the repository that it is a hook of.
_LEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
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
    kept = {name: value for name, value in os.environ.items() if name not in _LEADING}
    environ = {**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments], env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
