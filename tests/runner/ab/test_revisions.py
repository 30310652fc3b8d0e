"""A revision's files in a folder of their own, and nothing left of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.runner import git
from opmark.runner.ab import revisions
from opmark.runner.ab.revisions import map_folders

pytestmark = pytest.mark.verdicts


def test_a_commit_is_checked_out_and_gone_afterwards(repo: Any) -> None:
    first = repo.commit("one", a="1")
    repo.commit("two", a="2")
    repo.write(a="3", new="4")
    before = repo.state()
    with revisions.checkout_revision(repo.path, first) as place:
        assert (place / "a.py").read_text() == "1"
        assert not (place / "new.py").exists()
    assert not place.exists()
    assert repo.state() == before
    assert (repo.path / "a.py").read_text() == "3"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_it_is_gone_after_an_error_too(repo: Any, error: type[BaseException]) -> None:
    first = repo.commit("one", a="1")
    before = repo.state()
    places: list[Path] = []

    def fail() -> None:
        with revisions.checkout_revision(repo.path, first) as place:
            places.append(place)
            (place / "left.txt").write_text("by a build")
            raise error

    with pytest.raises(error):
        fail()
    assert not places[0].exists()
    assert repo.state() == before


def test_hooks_of_the_user_are_not_run(repo: Any, tmp_path: Path) -> None:
    first = repo.commit("one", a="1")
    hook = repo.path / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with revisions.checkout_revision(repo.path, first):
        pass
    assert not (tmp_path / "ran").exists()


def _left_behind(repo: Any, commit: str) -> Path:
    """By a process that was killed in the middle."""
    code = (
        "import os, pathlib, sys; from opmark.runner.ab.revisions import checkout_revision\n"
        "with checkout_revision(pathlib.Path(sys.argv[1]), sys.argv[2]) as place: print(place, flush=True); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(repo.path), commit], capture_output=True, text=True)
    return Path(done.stdout.strip())


@pytest.mark.parametrize("folder_is_there", [True, False])
def test_what_a_killed_process_left_is_cleared_away(repo: Any, folder_is_there: bool) -> None:
    first = repo.commit("one", a="1")
    before = repo.state()
    left = _left_behind(repo, first)
    assert left.is_dir()
    assert repo.state() != before
    if not folder_is_there:
        shutil.rmtree(left)
    with revisions.checkout_revision(repo.path, first):
        assert not left.exists()
    assert repo.state() == before


@pytest.mark.parametrize("locked", ["", "my own work", "opmark another-host {pid} 1.00"])
def test_a_worktree_that_only_looks_like_one_of_ours_stays(
    repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """Also in the folder for temporary files, with the number of a process that is no more."""
    first = repo.commit("one", a="1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("opmark-tree-999999999-abcdefgh", "opmark-tree-view", "opmark-tree-1"):
        place = tmp_path / name
        repo.git("worktree", "add", "--quiet", "--detach", str(place), first)
        (place / "mine").write_text("work of a day")
        if locked:
            repo.git("worktree", "lock", "--reason", locked.format(pid=999999999), str(place))
        with revisions.checkout_revision(repo.path, first):
            pass
        assert (place / "mine").read_text() == "work of a day"


def test_worktrees_of_others_stay_also_where_their_folder_is_away(repo: Any, tmp_path: Path) -> None:
    first = repo.commit("one", a="1")
    own, running = tmp_path / "mine", tmp_path / f"{revisions.PREFIX}{os.getpid()}-x"
    for place in (own, running):
        repo.git("worktree", "add", "--quiet", "--detach", str(place), first)
    shutil.rmtree(own)  # on a disk that is not mounted
    with revisions.checkout_revision(repo.path, first):
        pass
    listed = repo.git("worktree", "list")
    assert str(own) in listed
    assert str(running) in listed
    assert running.exists()


def test_a_command_makes_something_in_the_files(repo: Any) -> None:
    first = repo.commit("one", a="1")
    with revisions.checkout_revision(repo.path, first) as place:
        revisions.run_make("cp a.py made.py", place)
        assert (place / "made.py").read_text() == "1"
    assert not (repo.path / "made.py").exists()


def test_a_command_that_fails_shows_the_end_of_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        revisions.run_make("seq 1 100; echo broken >&2; exit 7", tmp_path)
    message = str(raised.value)
    assert "exit code 7" in message
    assert message.splitlines()[-1].strip() == "broken"
    assert "  99" in message
    assert "  50" not in message


def test_a_command_that_fails_silently_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"exit code 1 in .*, silently"):
        revisions.run_make("false", tmp_path)


def test_folders_that_modules_come_from(repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The current one, those on the path, `src`; of other places none, of a virtual environment inside none."""
    repo.commit("one", src__pkg__x="1", sub__y="1", lib__z="1")
    venv = repo.path / ".venv" / "site-packages"
    venv.mkdir(parents=True)
    monkeypatch.chdir(repo.path / "sub")
    monkeypatch.setattr(sys, "prefix", str(repo.path / ".venv"))
    monkeypatch.setattr(sys, "path", [str(repo.path / "lib"), str(venv), str(tmp_path), *sys.path])
    found = revisions.import_folders(repo.path, ["y:f"])
    named = [str(Path(place).relative_to(repo.path)) for place in found]
    assert named[:2] == ["sub", "lib"]
    assert "src" in named
    assert not any(".venv" in name for name in named)
    assert all(git.repository(repo.path) in Path(place).parents for place in found)


def test_the_folder_of_a_module_that_an_import_hook_finds(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editable installations may leave no trace on the path."""
    repo.commit("one", python__hooked_module="def f(): pass")
    from importlib.machinery import PathFinder

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            return PathFinder.find_spec(name, [str(repo.path / "python")]) if name == "hooked_module" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    found = revisions.import_folders(repo.path, ["hooked_module:f"])
    assert str(repo.path / "python") in found


def test_folders_are_mapped_onto_a_checkout_where_they_are_there(repo: Any, tmp_path: Path) -> None:
    (tmp_path / "tree" / "src").mkdir(parents=True)
    folders = [str(repo.path), str(repo.path / "src"), str(repo.path / "newer")]
    assert map_folders(folders, str(repo.path), str(tmp_path / "tree")) == (
        str(tmp_path / "tree"),
        f"{tmp_path}/tree/src",
    )


def test_workers_start_where_the_user_is(repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = repo.commit("one", a="1")
    second = repo.commit("two", sub__b="1")
    monkeypatch.chdir(repo.path / "sub")
    with revisions.checkout_revision(repo.path, second) as place:
        found = revisions.make_checkout(repo.path, place, second)
        assert found.folder == str(place / "sub")
        assert found.instead_of == str(repo.path)
    with revisions.checkout_revision(repo.path, first) as place:  # it has no such folder yet
        assert revisions.make_checkout(repo.path, place, first).folder == str(place)
    monkeypatch.chdir(tmp_path)
    assert revisions.current_checkout(repo.path).folder == str(repo.path)


def test_files_as_they_are_have_a_plus_where_they_were_changed(repo: Any) -> None:
    first = repo.commit("one", a="1")
    assert revisions.revision_of(repo.path) == first
    repo.write(a="2")
    assert revisions.revision_of(repo.path) == f"{first}+"
