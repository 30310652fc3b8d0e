"""opmark bisect: the commit that made it slower, found by git with measured verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guests import make_guest

from opmark.api.bisect import bisect
from opmark.errors import StoreError
from opmark.schema.comparison import Compared, Pairing

pytestmark = [pytest.mark.verdicts, pytest.mark.usefixtures("steps")]

Command = Callable[..., Any]

TEXT = "import numpy as np\ndef f(x):\n    for _ in range({}):\n        x = np.abs(x)\n    return x\n"
CALL = ["work:f", "--args", "[2000 float32]", "--backend", "steps-cpu", "--threads", "1"]
ASKED: dict[str, Any] = {"args": ["2000 float32"], "backend": "steps-cpu", "threads": 1}


def history(repo: Any) -> list[str]:
    """Eight commits; the one that does not import is asked for first, the sixth is slower, the fifth a little."""
    texts = [TEXT.format(10)] * 3 + ["import nothing_of_this_name\n"] + [TEXT.format(12)] + [TEXT.format(90)] * 3
    return [repo.commit(f"commit {i}", work=f"{text}# {i}\n") for i, text in enumerate(texts, start=1)]


@pytest.mark.slow
def test_the_commit_that_made_it_slower_is_found(opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = history(repo)
    repo.write(work="the user is in the middle of something", untracked="1")
    before = repo.state()
    monkeypatch.chdir(repo.path)
    done = opmark("bisect", *CALL, "--good", commits[0], "--bad", "main", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    (first,) = found["first"]
    assert (first["commit"], first["author"], first["subject"]) == (commits[5], "Ada Byron", "commit 6")
    assert first["ratio"] > 2
    words = {commits.index(step["commit"]) + 1: step["word"] for step in found["steps"]}
    assert words[4] == "skip"  # does not import
    assert words[5] == "good"  # a little slower is not the change that is looked for
    assert words[6] == "bad"
    assert "nothing_of_this_name" in next(step["why"] for step in found["steps"] if step["word"] == "skip")
    assert f"# first bad commit: [{commits[5]}] commit 6" in found["log"]
    assert "skip: " in done.err
    assert repo.state() == before
    assert "BISECT" not in " ".join(str(path) for path in (repo.path / ".git").iterdir())


@pytest.mark.slow
def test_commits_that_are_skipped_leave_several(opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "import nothing_of_this_name\n"
    texts = [TEXT.format(10), broken, TEXT.format(90)]
    commits = [repo.commit(f"commit {i}", work=text) for i, text in enumerate(texts, start=1)]
    monkeypatch.chdir(repo.path)
    done = opmark("bisect", *CALL, "--good", commits[0])
    assert done.code == 0, done.err
    assert "the first bad commit is one of 2" in done.out
    listed = done.out.split("one of 2")[1].split("#")[0]
    assert [commit in listed for commit in commits] == [False, True, True]


@pytest.mark.slow
def test_a_build_that_fails_is_skipped_and_what_it_left_is_thrown_away(
    repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each commit makes `work.py`; a later one must not find that of an earlier one."""
    make = "test ! -e work.py && test ! -e broken && cp work.in work.py && echo changed >> work.in"
    commits = []
    for number, rounds in enumerate((10, 10, 90, 90), start=1):
        (repo.path / "work.in").write_text(TEXT.format(rounds) + f"# {number}\n")
        commits.append(repo.commit(f"commit {number}"))
    monkeypatch.chdir(repo.path)
    found = bisect("work:f", good=commits[0], make=make, db=tmp_path / "x.db", **ASKED)
    assert [one.commit for one in found.first] == [commits[2]]
    assert {step.word for step in found.steps} <= {"good", "bad"}


@pytest.mark.slow
def test_where_nothing_is_slower_it_says_so_and_stops(
    opmark: Command, repo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = [repo.commit(f"commit {rounds}", work=TEXT.format(rounds)) for rounds in (90, 40, 10)]
    monkeypatch.chdir(repo.path)
    done = opmark("bisect", *CALL, "--good", commits[0])
    assert done.code == 1
    assert "nothing to look for: of 1 case, none is slower" in done.out
    assert "(1 faster)" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--good names a revision that was fast"),
        (["--good", "HEAD"], "are both commit"),
        (["--good", "nowhere"], "git knows no revision `nowhere`"),
        (["--good=-x"], "no name of a revision"),
        (["--good", "HEAD~1", "--bad=-x"], "no name of a revision"),
        (["--good", "HEAD~1", "--threads", "1,2"], "--threads: expected one, got 2: 1, 2"),
    ],
)
def test_a_mistake_is_the_users(
    main: Command, repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    repo.commit("one", work=TEXT.format(1))
    repo.commit("two", work=TEXT.format(2))
    monkeypatch.chdir(repo.path)
    done = main("bisect", "work:f", "--args", "[4 float32]", "--backend", "steps-cpu", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.split())
    assert not db.exists()


def test_a_store_that_fails_ends_it(repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is no property of a commit."""
    commits = [repo.commit(f"commit {i}", work=TEXT.format(10 + i)) for i in range(4)]
    monkeypatch.chdir(repo.path)
    calls = []

    def measure(a: Any, b: Any, cases: Any, options: Any, keep: Any, **how: Any) -> Compared:
        calls.append(b)
        if len(calls) > 1:
            raise StoreError("the disk is full")
        pair = pairing(cases[0].id)
        return Compared(a.name, b.name, ("r", "s"), True, 0.01, 0.0, (pair,), None)

    monkeypatch.setattr("opmark.api.bisect.measure_sides", measure)
    before = repo.state()
    with pytest.raises(StoreError, match="disk is full"):
        bisect("work:f", good=commits[0], db=tmp_path / "x.db", **ASKED)
    assert len(calls) == 2
    assert repo.state() == before


def pairing(case: str, **fields: Any) -> Pairing:
    known: dict[str, Any] = {"ratio": 2.0, "low": 1.9, "high": 2.1, "verdict": "slower", **fields}
    return Pairing(
        case, "work:f", "4 float32", "forward", ("x", "x"), "latency", "warm", 1.0, 2.0, (5, 5), known["ratio"],
        known["low"], known["high"], 0.001, known["verdict"], 0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "margin"),
    [(1.21, 0.1), (2.0, 0.4142), (9.0, 2.0)],
)
def test_a_candidate_is_held_against_half_of_the_slowdown(
    repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratio: float, margin: float
) -> None:
    commits = [repo.commit(f"commit {i}", work=TEXT.format(10 + i)) for i in range(4)]
    monkeypatch.chdir(repo.path)
    margins = []

    def measure(a: Any, b: Any, cases: Any, options: Any, keep: Any, **how: Any) -> Compared:
        margins.append(options.margin)
        verdict = "slower" if b.checkout.commit in commits[2:] else "same"
        return Compared(
            a.name, b.name, ("r", "s"), True, 0.01, 0.0, (pairing(cases[0].id, ratio=ratio, verdict=verdict),), None
        )  # fmt: skip

    monkeypatch.setattr("opmark.api.bisect.measure_sides", measure)
    found = bisect("work:f", good=commits[0], margin=0.02, db=tmp_path / "x.db", **ASKED)
    assert margins[0] == 0.02
    assert margins[1:] == [pytest.approx(margin, rel=1e-3)] * (len(margins) - 1)
    assert [one.commit for one in found.first] == [commits[2]]


@pytest.mark.slow
def test_the_version_that_made_it_slower_is_found(
    opmark: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions in environments of their own; that of 1.2 does not import, and is skipped."""
    monkeypatch.setenv("OPMARK_ENVS", str(tmp_path / "envs"))
    rounds = {"1.0": 10, "1.1": 10, "1.2": 0, "1.3": 90, "1.4": 90}
    for version, count in rounds.items():
        text = TEXT.format(count) if count else "import nothing_of_this_name\n"
        make_guest(tmp_path / "envs", f"work-{version}", work=text)
    listed = ["--package", "work", "--versions", ",".join(rounds)]
    done = opmark("bisect", *CALL, *listed, "--good", "1.0", "--bad", "1.4", "--json")
    assert done.code == 0, done.out
    found = json.loads(done.out)
    assert (found["package"], [one["commit"] for one in found["first"]]) == ("work", ["1.2", "1.3"])
    assert [(step["commit"], step["word"]) for step in found["steps"]] == [
        ("1.2", "skip"), ("1.1", "good"), ("1.3", "bad"),
    ]  # fmt: skip
    assert found["first"][-1]["ratio"] > 2
    assert "1.3 bad: " in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--versions", "1,2"], "--versions goes with --package"),
        (["--package", "work", "--bad", "2", "--make", "make"], "--make is about commits, --package about versions"),
        (["--package", "work", "--bad", "2", "--python", "x"], "--package makes an interpreter for each version"),
        (["--package", "work", "--versions", "1,2", "--bad", "3"], "no version of work named `3`"),
    ],
)
def test_what_contradicts_a_package_is_refused(main: Command, arguments: list[str], message: str) -> None:
    done = main("bisect", *CALL, "--good", "1", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
