"""Checks out revisions into folders of their own, finds where to import modules from there, and bisects."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import psutil

from opmark.errors import UserError
from opmark.runner.git import Commit, commit_of, describe_commit, git_output, has_changes, run_git
from opmark.schema.comparison import Word
from opmark.schema.messages import Checkout
from opmark.schema.run import CHANGED
from opmark.units import count_noun
from opmark.worker.process_setup import belongs

PREFIX = "opmark-tree-"
"""The names of the folders begin with this; the id of the process that made one follows."""
_OWN_NAME = re.compile(rf"{PREFIX}(\d+)-\w{{8}}")
_QUOTED_LINES = 20


def is_own_file(path: Path, root: Path) -> bool:
    """Return whether a file is a part of the repository at `root`; a virtual environment inside of it is not."""
    return belongs(str(path), str(root))


@contextmanager
def checkout_revision(root: Path, commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, which is removed afterwards."""
    remove_abandoned(root)
    place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")).resolve()
    try:
        git_output(root, "worktree", "add", "--detach", "--quiet", str(place), commit)
        git_output(root, "worktree", "lock", "--reason", _lock_reason(os.getpid()), str(place))
        yield place
    finally:
        _remove(root, place)


def remove_abandoned(root: Path) -> None:
    """Remove the worktrees that killed processes of this host left behind. Nobody else's worktrees are touched,
    whatever their name, not even where they are gone: their disk may only be away."""
    for entry in run_git(root, "worktree", "list", "--porcelain").out.split("\n\n"):
        place, reason = Path(_field(entry, "worktree")), _field(entry, "locked")
        if place.parent == Path(tempfile.gettempdir()).resolve() and _is_abandoned(place.name, reason):
            _remove(root, place)


def _field(entry: str, word: str) -> str:
    return next((line[len(word) + 1 :] for line in entry.splitlines() if line.startswith(f"{word} ")), "")


def _lock_reason(pid: int) -> str:
    """The reason with which worktrees are locked; git shows it. Process ids are used again, but not with the same time
    of start."""
    return f"opmark {socket.gethostname()} {pid} {psutil.Process(pid).create_time():.2f}"


def _is_abandoned(name: str, reason: str) -> bool:
    """Whether opmark made a worktree in a process of this host that does not run any more."""
    named = _OWN_NAME.fullmatch(name)
    if not named or not reason.startswith(f"opmark {socket.gethostname()} {named.group(1)} "):
        return False
    try:
        return reason != _lock_reason(int(named.group(1)))
    except psutil.NoSuchProcess:
        return True


def _remove(root: Path, place: Path) -> None:
    run_git(root, "worktree", "remove", "--force", "--force", str(place))  # twice, since it is locked
    shutil.rmtree(place, ignore_errors=True)  # where git cannot, the rest is done by hand


def run_make(command: str, root: Path) -> None:
    """Run the user's command in a checkout, by the shell. Raise UserError with the end of its output if it fails."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, shell=True, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait()
        if code != 0:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
            end = "\n".join(f"  {line}" for line in lines[-_QUOTED_LINES:])
            said = (
                f"; the last {count_noun(min(len(lines), _QUOTED_LINES), 'line')} of it:\n{end}"
                if lines
                else ", silently"
            )
            raise UserError(f"`{command}` failed with exit code {code} in {root}{said}")


def import_folders(root: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Folders of a repository that modules are imported from: the current one, those on the import path, also by an
    editable installation, and `src` beside. `names` are of callables; plug-ins are looked for as well."""
    here = current_folder(root)
    entries = (entry for distribution in distributions() for entry in distribution.entry_points)
    plugs = (entry.module for entry in entries if entry.group.startswith("opmark."))
    modules = {name.replace(":", ".").partition(".")[0] for name in (*names, *plugs)}
    homes = [str(place) for name in sorted(modules) for place in _find_module_folders(name)]
    places = [str(here), *sys.path, *homes, str(here / "src"), str(root / "src")]
    return tuple(dict.fromkeys(str(Path(place).resolve()) for place in places if belongs(place, str(root))))


def current_folder(root: Path) -> Path:
    """The current folder if it belongs to the repository, else the repository."""
    here = Path.cwd()
    return here if belongs(str(here), str(root)) else root


def _find_module_folders(module: str) -> list[Path]:
    """Folders that have a top-level module, found without importing it."""
    if module == "opmark" or not module.isidentifier():
        return []
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    inside = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    return [Path(place).parent for place in inside]


def make_checkout(root: Path, place: Path, commit: str) -> Checkout:
    """The checkout of a side: its workers start where the user is, in these files."""
    (folder,) = map_folders([str(current_folder(root))], str(root), str(place)) or (str(place),)
    return Checkout(str(place), commit, folder, instead_of=str(root))


def current_checkout(root: Path) -> Checkout:
    """The files of a repository as they are now."""
    return Checkout(str(root), revision_of(root), str(current_folder(root)))


def revision_of(root: Path) -> str:
    return commit_of(root, "HEAD").hash + (CHANGED if has_changes(root) else "")


_FOUND = re.compile(r"^([0-9a-f]{40,64}) is the first '?bad'? commit$", re.MULTILINE)
_HASH = re.compile(r"^[0-9a-f]{40,64}$", re.MULTILINE)
_ONLY_SKIPPED = "only 'skip'ped commits left to test"


class Bisection:
    """`git bisect` in a worktree of its own, which holds the state: a bisection of the user's is not touched."""

    def __init__(self, tree: Path, good: str, bad: str) -> None:
        self._tree = tree
        self.left: list[Commit] = []
        """Filled when it is over: the first bad commit, or all that it may be."""
        self._clean()
        self._run("start", bad, good)

    @property
    def over(self) -> bool:
        return bool(self.left)

    def candidate(self) -> Commit:
        """The commit whose files are there now."""
        return describe_commit(self._tree, "HEAD")

    def say(self, word: Word) -> None:
        """Judge the candidate, and check out the next one. Files that were made meanwhile are thrown away."""
        self._clean()
        before = self.candidate()
        self._run(word)
        if not self.over and self.candidate() == before:
            raise UserError(
                f"git bisect {word}: neither an answer nor another commit than {before.short}",
                "this git says something that opmark does not know; `git --version` tells which one it is",
            )

    def log(self) -> str:
        return git_output(self._tree, "bisect", "log")

    def _run(self, *words: str) -> None:
        said = run_git(self._tree, "bisect", *words)
        found = _FOUND.search(said.out)
        if found:
            self.left = [describe_commit(self._tree, found.group(1))]
        elif _ONLY_SKIPPED in said.out:
            self.left = [describe_commit(self._tree, commit) for commit in _HASH.findall(said.out)]
        elif said.code != 0:
            lines = [line for line in (said.out + said.err).splitlines() if line.strip()]
            raise UserError(
                f"git bisect {words[0]}: {' '.join(lines) or 'it said nothing'}",
                "--good names a commit from before the change, --bad a later one with it",
            )

    def _clean(self) -> None:
        """Undo what a build changed, or git would not go on. Raise UserError where this is no worktree any more."""
        if Path(git_output(self._tree, "rev-parse", "--show-toplevel")).resolve() != self._tree.resolve():
            raise UserError(f"{self._tree}: no worktree any more", "the command of --make must leave `.git` alone")
        git_output(self._tree, "reset", "--hard", "--quiet")
        git_output(self._tree, "clean", "-ffdxq")


def map_folders(folders: Iterable[str], root: str, onto: str) -> tuple[str, ...]:
    """The same folders in another checkout, as far as they exist there, each once."""
    places = (Path(onto) / Path(folder).resolve().relative_to(Path(root).resolve()) for folder in folders)
    return tuple(dict.fromkeys(str(place) for place in places if place.is_dir()))
