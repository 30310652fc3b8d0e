"""Git, asked: what names a commit, and what a person is told where nothing does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.runner import git

pytestmark = pytest.mark.verdicts


def test_a_revision_is_a_commit_with_its_author_and_subject(repo: Any) -> None:
    first = repo.commit("it begins: “quoted” | piped", a="1")
    second = repo.commit("b", a="2")
    found = git.commit_of(repo.path, "HEAD~1")
    assert (found.hash, found.author, found.subject) == (first, "Ada Byron", "it begins: “quoted” | piped")
    assert found.short == first[:10]
    repo.git("tag", "-a", "v1", "-m", "annotated", second)
    assert git.commit_of(repo.path, "v1").hash == second


@pytest.mark.parametrize("name", ["-x", "--output=/tmp/x", "", "main\nother", "\x00", "-"])
def test_what_git_would_take_for_an_option_is_no_revision(repo: Any, name: str) -> None:
    repo.commit("a")
    with pytest.raises(UserError, match="no name of a revision"):
        git.commit_of(repo.path, name)


@pytest.mark.parametrize("name", ["nowhere", "main..main", "HEAD:", "main:a.py", "deadbeef", "a b"])
def test_a_revision_that_is_none_is_named(repo: Any, name: str) -> None:
    repo.commit("a", a="1")
    with pytest.raises(UserError, match="git knows no revision"):
        git.commit_of(repo.path, name)


def test_a_repository_is_found_from_inside(repo: Any) -> None:
    repo.commit("a", deep__down__x="1")
    assert git.repository(repo.path / "deep" / "down") == repo.path


def test_no_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no git repository") as raised:
        git.repository(tmp_path)
    assert "--repo" in str(raised.value)


def test_a_repository_without_files_is_no_use(repo: Any, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(bare))
    with pytest.raises(UserError, match="no git repository with files"):
        git.repository(bare)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        git.repository(tmp_path / "nowhere")


def test_without_git_that_is_what_is_said(repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="git is not installed"):
        git.repository(repo.path)


def test_changed_files_and_new_ones_are_seen(repo: Any) -> None:
    repo.commit("a", a="1")
    assert not git.has_changes(repo.path)
    repo.write(b="2")
    assert git.has_changes(repo.path)
    repo.commit("b")
    repo.write(a="3")
    assert git.has_changes(repo.path)


def test_asking_writes_no_index(repo: Any) -> None:
    """`git status` would refresh it, and get in the way of a user who commits at that moment."""
    repo.commit("a", a="1")
    (repo.path / "a.py").write_text("1")  # the same, with another time
    index = repo.path / ".git" / "index"
    before = index.read_bytes()
    git.has_changes(repo.path)
    assert index.read_bytes() == before


def test_variables_of_a_hook_lead_nowhere_else(repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("a", a="1")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert git.repository(repo.path) == repo.path
    assert not git.has_changes(repo.path)


def test_signatures_that_a_user_wants_to_see_are_not_taken_for_the_answer(repo: Any) -> None:
    """git tells them before what was asked for: of an unsigned commit nothing, so the setting is looked at."""
    first = repo.commit("one", a="1")
    repo.git("config", "log.showSignature", "true")
    assert git.commit_of(repo.path, first).hash == first
    assert git.git_output(repo.path, "config", "log.showSignature") == "false"
