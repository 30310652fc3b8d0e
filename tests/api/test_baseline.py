"""What was measured once, as a side that can be measured again."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from opmark.api import baseline
from opmark.api.baseline import Baseline, BaselineLost, BaselineSide, baseline_side, named_side, same_code
from opmark.errors import UserError
from opmark.schema.messages import Checkout, Side

pytestmark = pytest.mark.verdicts

FAST = "import numpy as np\ndef f(x):\n    return np.abs(x)\n"
OWN = ["work:f"]


def then(revision: str = "", backend: str = "numpy-cpu", **facts: Any) -> Baseline:
    return Baseline(
        "main", backend, 1, revision, {"numpy": "2.0", "interpreter": sys.executable, "threads": 2, **facts}
    )


@pytest.fixture
def software(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Facts by backend, instead of what is installed."""
    known: dict[str, Any] = {"numpy-cpu": {"numpy": "2.0", "threads": 1}}
    monkeypatch.setattr(baseline, "_facts_now", lambda backend, threads: known.get(backend, f"no {backend} here"))
    return known


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of no repository."""
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.chdir(folder)
    return folder


def test_installed_software_of_the_same_versions_is_had_again(software: Any, outside: Path) -> None:
    with ExitStack() as stack:
        assert baseline_side(then(), ["exp"], stack) == Side("main", "numpy-cpu", 1)


def test_the_interpreter_that_it_had_is_taken_where_this_one_has_another_version(software: Any, outside: Path) -> None:
    software["numpy-cpu"] = {"numpy": "2.1"}
    software[f"numpy-cpu@{sys.executable}"] = {"numpy": "2.0"}
    with ExitStack() as stack:
        side = baseline_side(then(), ["exp"], stack)
    assert isinstance(side, Side)
    assert side.backend == f"numpy-cpu@{sys.executable}"


@pytest.mark.parametrize("interpreter", [sys.executable, "/nowhere/bin/python", None])
def test_software_that_was_replaced_is_lost(software: Any, outside: Path, interpreter: str | None) -> None:
    software["numpy-cpu"] = {"numpy": "2.1"}
    software[f"numpy-cpu@{sys.executable}"] = {"numpy": "2.1"}
    with ExitStack() as stack:
        found = baseline_side(then(interpreter=interpreter), ["exp"], stack)
    assert found == BaselineLost("its software is no longer here: numpy 2.0 -> 2.1")


def test_a_backend_that_cannot_run_is_lost_with_its_reason(software: Any, outside: Path) -> None:
    with ExitStack() as stack:
        found = baseline_side(then(backend="torch-cpu"), ["exp"], stack)
    assert found == BaselineLost("its software is no longer here: no torch-cpu here")


def test_an_operator_of_another_opmark_is_lost_and_ones_own_is_not(
    software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repo.commit(work=FAST)
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        found = baseline_side(then(commit, opmark="0.0"), ["exp"], stack)
        assert isinstance(found, BaselineLost)
        assert found.why.startswith("it was measured by opmark 0.0, and this is ")
        assert isinstance(baseline_side(then(commit, opmark="0.0"), OWN, stack), Side)


def test_a_file_of_no_repository_may_have_been_changed(software: Any, outside: Path) -> None:
    with ExitStack() as stack:
        found = baseline_side(then(), OWN, stack)
    assert isinstance(found, BaselineLost)
    assert found.why == "`work:f` is no part of a git repository, so that it may have been changed since"


def test_a_revision_is_checked_out(software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = repo.commit(work=FAST), repo.commit(work=FAST + "\n")
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        side, now = baseline_side(then(old), OWN, stack), baseline_side(then(new), OWN, stack, here=True)
        assert isinstance(side, Side)
        assert isinstance(now, Side)
        assert side.checkout is not None
        assert side.checkout.commit == old
        assert (Path(side.checkout.root) / "work.py").read_text() == FAST
        assert now.checkout is not None
        assert Path(now.checkout.root) == repo.path
        assert not same_code(side, now)
    assert not Path(side.checkout.root).exists()


def test_the_revision_that_is_here_is_the_same_code(software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = repo.commit(work=FAST)
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        a, b = baseline_side(then(commit), OWN, stack), baseline_side(then(commit), OWN, stack, here=True)
        assert isinstance(a, Side)
        assert isinstance(b, Side)
        assert same_code(a, b)


def test_changed_files_are_lost_but_for_those_that_are_here(
    software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repo.commit(work=FAST)
    repo.write(work=FAST + "\n")
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        lost = baseline_side(then(f"{commit}+"), OWN, stack)
        assert lost == BaselineLost(f"files had been changed since commit {commit[:10]} when it was measured")
        assert isinstance(baseline_side(then(f"{commit}+"), OWN, stack, here=True), Side)
        repo.write(work=FAST + "\n\n")  # git says the same of it, and it is another
        assert baseline_side(then(f"{commit}+"), OWN, stack) == lost


@pytest.mark.parametrize(
    ("revision", "why"), [("", "no git revision was stored with it"), ("f" * 40, "git knows no revision `ffff")]
)
def test_a_revision_that_nobody_knows_is_lost(
    software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch, revision: str, why: str
) -> None:
    repo.commit(work=FAST)
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        found = baseline_side(then(revision), OWN, stack)
    assert isinstance(found, BaselineLost)
    assert why in found.why


def test_the_revision_of_a_repository_that_nothing_comes_from_does_not_matter(
    software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit(notes="x = 1\n")
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        assert baseline_side(then("f" * 40), ["exp"], stack) == Side("main", "numpy-cpu", 1)


def test_what_stands_for_the_baseline_can_be_said(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = repo.commit(work=FAST)
    repo.commit(work=FAST + "\n")
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        assert named_side(then(), BaselineSide(backend="null"), OWN, stack) == Side("main", "null", 1)
        python = named_side(then(), BaselineSide(python=sys.executable), OWN, stack)
        assert python.backend == f"numpy-cpu@{sys.executable}"
        side = named_side(then(), BaselineSide(rev="HEAD~1"), OWN, stack)
        assert side.checkout is not None
        assert side.checkout.commit == old
        with pytest.raises(UserError, match="git knows no revision `nosuch`"):
            named_side(then(), BaselineSide(rev="nosuch"), OWN, stack)
        with pytest.raises(UserError, match="no interpreter and no environment `/nowhere`"):
            named_side(then(), BaselineSide(python="/nowhere"), OWN, stack)


def test_the_same_code_is_backend_threads_variables_and_commit() -> None:
    side = Side("a", "numpy-cpu", 1)
    assert same_code(side, Side("b", "numpy-cpu", 1))
    for other in (Side("b", "null", 1), Side("b", "numpy-cpu", 2), Side("b", "numpy-cpu", 1, {"X": "1"}),
                  Side("b", "numpy-cpu", 1, checkout=Checkout("/r", "c", "/r"))):  # fmt: skip
        assert not same_code(side, other)


def test_software_is_asked_in_a_process_of_its_own(outside: Path) -> None:
    facts = baseline._facts_now("numpy-cpu", 1)
    assert isinstance(facts, dict)
    assert facts["threads"] == 1
    with ExitStack() as stack:
        assert isinstance(baseline_side(Baseline("main", "numpy-cpu", 1, "", facts), ["exp"], stack), Side)
    assert baseline._facts_now("nosuch", 1) == "no backend named `nosuch`"


def test_a_module_of_elsewhere_is_lost_inside_of_a_repository_too(
    software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "installed.py").write_text(FAST)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    commit = repo.commit(work=FAST)
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        for ops in (["installed:f"], ["installed:f", *OWN]):
            found = baseline_side(then(commit), ops, stack)
            assert isinstance(found, BaselineLost)
            assert found.why.startswith("`installed:f` is no part of this git repository")
        assert isinstance(baseline_side(then(commit), ["installed:f"], stack, here=True), Side)


def test_a_function_of_a_framework_goes_with_its_version(software: Any, outside: Path) -> None:
    with ExitStack() as stack:
        assert baseline_side(then(), ["numpy:abs"], stack) == Side("main", "numpy-cpu", 1)


def test_a_file_of_no_repository_is_still_there_a_moment_later(software: Any, outside: Path) -> None:
    with ExitStack() as stack:
        assert baseline_side(then(), OWN, stack, here=True) == Side("main", "numpy-cpu", 1)


def test_a_revision_is_made_first(software: Any, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = repo.commit(work=FAST)
    repo.commit(work=FAST + "\n")
    monkeypatch.chdir(repo.path)
    with ExitStack() as stack:
        side = baseline_side(then(old), OWN, stack, command="echo yes > made")
        assert isinstance(side, Side)
        assert side.checkout is not None
        assert (Path(side.checkout.root) / "made").exists()
        lost = baseline_side(then(old), OWN, stack, command="false")
        assert isinstance(lost, BaselineLost)
        assert "`false` failed with exit code 1" in lost.why
