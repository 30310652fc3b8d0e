"""`git bisect` in a worktree of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.runner.ab import revisions
from opmark.runner.ab.revisions import Bisection, checkout_revision
from opmark.runner.git import GitOutput

pytestmark = pytest.mark.verdicts


def test_git_goes_from_commit_to_commit_in_its_own_worktree(repo: Any) -> None:
    commits = [repo.commit(f"commit {i}", a=str(i)) for i in range(8)]
    before = repo.state()
    with checkout_revision(repo.path, commits[-1]) as tree:
        bisection = Bisection(tree, commits[0], commits[-1])
        seen = []
        while not bisection.over:
            candidate = bisection.candidate()
            seen.append(candidate.hash)
            assert (tree / "a.py").read_text() == str(commits.index(candidate.hash))
            (tree / "a.py").write_text("changed by a build")
            (tree / "left.o").write_text("left by a build")
            bisection.say("bad" if commits.index(candidate.hash) >= 5 else "good")
            assert not (tree / "left.o").exists()
        assert [commit.hash for commit in bisection.left] == [commits[5]]
        assert len(seen) <= 3
        assert "git bisect start" in bisection.log()
    assert repo.state() == before


def test_neighbours_need_no_step(repo: Any) -> None:
    first, second = repo.commit("one"), repo.commit("two")
    with checkout_revision(repo.path, second) as tree:
        bisection = Bisection(tree, first, second)
        assert bisection.over
        assert [commit.hash for commit in bisection.left] == [second]


def test_a_good_commit_that_comes_after_the_bad_one_is_a_mistake(repo: Any) -> None:
    first, second = repo.commit("one"), repo.commit("two")
    with (
        checkout_revision(repo.path, first) as tree,
        pytest.raises(UserError, match=r"git bisect start: .*good revs are not ancestors of the bad rev"),
    ):
        Bisection(tree, second, first)


def test_nothing_is_thrown_away_outside_of_its_worktree(repo: Any) -> None:
    """A build that removes `.git` makes git look further up: to what may be the user's own files."""
    first, _, third = (repo.commit(f"commit {i}", a=str(i)) for i in range(3))
    inside: Path = repo.path / "tmp" / "tree"
    repo.git("worktree", "add", "--quiet", "--detach", str(inside), third)
    bisection = Bisection(inside, first, third)
    repo.write(a="the user's own change")
    (inside / ".git").unlink()
    with pytest.raises(UserError, match="no worktree any more"):
        bisection.say("good")
    assert (repo.path / "a.py").read_text() == "the user's own change"


def _says(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Another git."""
    honest = revisions.run_git

    def ask(folder: Any, *arguments: str) -> GitOutput:
        said = honest(folder, *arguments)
        return said._replace(out=change(said.out)) if arguments[0] == "bisect" else said

    monkeypatch.setattr(revisions, "run_git", ask)


def test_a_git_that_quotes_its_words_is_understood(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [repo.commit(f"commit {i}", a=str(i)) for i in range(4)]
    _says(monkeypatch, lambda out: out.replace("the first bad commit", "the first 'bad' commit"))
    with checkout_revision(repo.path, commits[-1]) as tree:
        bisection = Bisection(tree, commits[0], commits[-1])
        for _ in range(3):
            if not bisection.over:
                bisection.say("bad")
        assert [commit.hash for commit in bisection.left] == [commits[1]]


def test_a_git_that_is_not_understood_is_no_reason_to_ask_for_ever(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [repo.commit(f"commit {i}", a=str(i)) for i in range(3)]
    _says(monkeypatch, lambda out: out.replace("first bad commit", "guilty one"))
    with checkout_revision(repo.path, commits[-1]) as tree:
        bisection = Bisection(tree, commits[0], commits[-1])
        with pytest.raises(UserError, match="neither an answer nor another commit"):
            bisection.say("bad")
