"""`git bisect` in a worktree of its own: the state of a bisection belongs to it, so that the user's is not touched."""

from __future__ import annotations

import re
from pathlib import Path

from opmark.errors import UserError
from opmark.runner.git import Commit, ask, described, tell
from opmark.schema.bisected import Word

_FOUND = re.compile(r"^([0-9a-f]{40,64}) is the first '?bad'? commit$", re.MULTILINE)
_HASH = re.compile(r"^[0-9a-f]{40,64}$", re.MULTILINE)
_ONLY_SKIPPED = "only 'skip'ped commits left to test"


class Bisection:
    def __init__(self, tree: Path, good: str, bad: str) -> None:
        self._tree = tree
        self.left: list[Commit] = []
        """Filled when it is over: the first bad commit, or all that it may be."""
        self._clean()
        self._hear("start", bad, good)

    @property
    def over(self) -> bool:
        return bool(self.left)

    def candidate(self) -> Commit:
        """The commit whose files are there now."""
        return described(self._tree, "HEAD")

    def say(self, word: Word) -> None:
        """Judge the candidate, and check out the next one. Files that were made meanwhile are thrown away."""
        self._clean()
        before = self.candidate()
        self._hear(word)
        if not self.over and self.candidate() == before:
            raise UserError(
                f"git bisect {word}: neither an answer nor another commit than {before.short}",
                "this git says something that opmark does not know; `git --version` tells which one it is",
            )

    def log(self) -> str:
        return tell(self._tree, "bisect", "log")

    def _hear(self, *words: str) -> None:
        said = ask(self._tree, "bisect", *words)
        found = _FOUND.search(said.out)
        if found:
            self.left = [described(self._tree, found.group(1))]
        elif _ONLY_SKIPPED in said.out:
            self.left = [described(self._tree, commit) for commit in _HASH.findall(said.out)]
        elif said.code != 0:
            lines = [line for line in (said.out + said.err).splitlines() if line.strip()]
            raise UserError(
                f"git bisect {words[0]}: {' '.join(lines) or 'it said nothing'}",
                "--good names a commit from before the change, --bad a later one with it",
            )

    def _clean(self) -> None:
        """A build may have changed files, and git would not go on. Only where this surely is our worktree."""
        if Path(tell(self._tree, "rev-parse", "--show-toplevel")).resolve() != self._tree.resolve():
            raise UserError(f"{self._tree}: no worktree any more", "the command of --make must leave `.git` alone")
        tell(self._tree, "reset", "--hard", "--quiet")
        tell(self._tree, "clean", "-ffdxq")
