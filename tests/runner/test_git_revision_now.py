"""Which commit the current folder is at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opmark.runner.git import revision_now
from opmark.runner.plan import Plan
from opmark.runner.session import new_run


def test_the_commit_and_whether_files_were_changed_since(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = repo.commit(work="x = 1\n")
    monkeypatch.chdir(repo.path)
    assert revision_now() == commit
    assert new_run(Plan((), ()), "").revision == commit
    repo.write(work="x = 2\n")
    assert revision_now() == f"{commit}+"
    (repo.path / "below").mkdir()
    assert revision_now(str(repo.path / "below")) == f"{commit}+"


def test_a_file_that_git_does_not_know_is_a_change(repo: Any) -> None:
    commit = repo.commit(work="x = 1\n")
    repo.write(new="x = 1\n")
    assert revision_now(str(repo.path)) == f"{commit}+"


def test_what_a_measurement_writes_is_no_change(repo: Any) -> None:
    """The first measurement of a function imports it: the next one is still of the same commit."""
    repo.exclude.write_text("")
    commit = repo.commit(work="x = 1\n")
    (repo.path / "__pycache__").mkdir()
    (repo.path / "__pycache__" / "work.cpython-311.pyc").write_bytes(b"x")
    for store in ("runs.db", "runs.db-wal"):
        (repo.path / store).write_bytes(b"x")
    assert revision_now(str(repo.path)) == commit


def test_a_hook_of_another_repository_does_not_lead_astray(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = repo.commit(work="x = 1\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert revision_now(str(repo.path)) == commit


def test_without_a_commit_a_repository_or_git_there_is_none(
    repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert revision_now(str(repo.path)) == ""
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert revision_now(str(outside)) == ""
    repo.commit(work="x = 1\n")
    monkeypatch.setenv("PATH", str(outside))
    assert revision_now(str(repo.path)) == ""
