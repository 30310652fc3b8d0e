"""api.ab: two sides in turns, both kept as runs of one session, and a verdict."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.api.ab import TurnProgress, ab, measure_sides
from opmark.api.requests import TurnOptions
from opmark.api.result import open_store
from opmark.api.run import run
from opmark.api.show import show
from opmark.errors import InvalidParameter, UserError
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case
from opmark.schema.comparison import Compared
from opmark.schema.messages import Side
from opmark.schema.options import StoreOptions

pytestmark = [pytest.mark.verdicts, pytest.mark.usefixtures("steps")]

FAST = "import numpy as np\ndef f(x):\n    for _ in range(10):\n        x = np.abs(x)\n    return x\n"
SLOW = FAST.replace("10", "90")
QUICK: dict[str, Any] = {"backend": "steps-cpu", "threads": 1}
CALL: dict[str, Any] = {"args": ["2000 float32"], **QUICK}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_two_revisions_are_told_apart_and_kept(repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = repo.commit("fast", work=FAST)
    second = repo.commit("slow", work=SLOW)
    repo.write(work="this is no Python", untracked="1")
    before = repo.state()
    monkeypatch.chdir(repo.path)
    found = ab("work:f", rev=["HEAD~1", "main"], processes=5, db=db, **CALL)
    (pair,) = found.pairs
    assert pair.verdict == "slower"
    assert pair.ratio is not None
    assert pair.ratio == pytest.approx(9, rel=0.2)
    assert found.paired
    assert found.differing["revision"] == (first, second)
    assert pair.processes == (5, 5)
    assert repo.state() == before

    with closing(open_store(db)) as store:
        runs = {run.id: run for run in store.runs()}
        a, b = (runs[name] for name in found.runs)
        assert a.session == b.session != ""
        assert (a.revision, b.revision) == (first, second)
        assert (a.label, b.label) == (f"ab {first[:10]}", f"ab {second[:10]}")
        kept = [[record.task.settings.process for record in store.records(run.id)] for run in (a, b)]
        assert kept == [[0, 1, 2, 3, 4]] * 2
        starts = sorted((record.started, name) for name in found.runs for record in store.records(name))
    assert "".join("ab"[found.runs.index(name)] for _, name in starts) == "abbaabbaab"


def test_a_folder_that_is_changed_against_a_commit(repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder below, with `src` beside, as a package."""
    repo.commit("slow", src__pkg__work=SLOW, bench__x="1")
    repo.write(src__pkg__work=FAST)
    monkeypatch.chdir(repo.path / "bench")
    found = ab("pkg.work:f", rev="HEAD", processes=5, db=db, label="night", **CALL)
    assert [pair.verdict for pair in found.pairs] == ["faster"]
    with closing(open_store(db)) as store:
        assert {run.label for run in store.runs()} == {"night a", "night b"}
        revisions = {run.label: run.revision for run in store.runs()}
    assert revisions["night b"] == f"{revisions['night a']}+"


def test_a_file_of_the_same_length_in_the_same_second_is_another_file(
    repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled modules are recognised by time and length: none of another revision may be taken."""
    repo.commit("fast", work=FAST)
    repo.commit("slow", work=SLOW)
    assert len(FAST) == len(SLOW)
    monkeypatch.chdir(repo.path)
    for _ in range(2):
        found = ab("work:f", rev=["HEAD~1", "HEAD"], processes=2, db=db, **CALL)
        assert found.pairs[0].ratio is not None
        assert found.pairs[0].ratio > 2


def test_what_fails_in_one_revision_is_said_and_stops_nothing(
    repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = SLOW + "def g(x):\n    raise ValueError('broken here')\n"
    repo.commit("whole", work=FAST + "def g(x):\n    return x + 1\n")
    repo.commit("broken", work=broken)
    monkeypatch.chdir(repo.path)
    found = ab(["work:f", "work:g"], rev=["HEAD~1", "HEAD"], processes=3, db=db, **CALL)
    pairs = {pair.op: pair for pair in found.pairs}
    assert pairs["work:f"].processes == (3, 3)
    assert pairs["work:g"].statuses == ("unchecked", "error")
    assert pairs["work:g"].ratio is None
    assert "broken here" in pairs["work:g"].note


def test_a_variable_changes_what_a_worker_does(repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPMARK_TEST_ROUNDS", raising=False)
    work = "import os\nimport numpy as np\nN = int(os.environ.get('OPMARK_TEST_ROUNDS', 20))\n" + FAST.split("\n", 1)[1]
    repo.write(work=work.replace("range(10)", "range(N)"))
    monkeypatch.chdir(repo.path)
    monkeypatch.syspath_prepend(str(repo.path))
    found = ab("work:f", env="OPMARK_TEST_ROUNDS=90", processes=5, db=db, **CALL)
    assert [pair.verdict for pair in found.pairs] == ["slower"]
    before, after = found.differing["variables"]
    assert after == {**before, "OPMARK_TEST_ROUNDS": "90"}
    assert (found.a, found.b) == ("without OPMARK_TEST_ROUNDS", "OPMARK_TEST_ROUNDS=90")


def test_two_interpreters(db: Path, tmp_path: Path) -> None:
    """The same one by two names; what runs in a named interpreter is a guest."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    other = Path(sys.executable).with_name("python3")
    asked = [sys.executable, str(other)]
    found = ab("add", params={"shape": [64]}, backend="numpy-cpu", python=asked, threads=1, processes=2, db=db)
    assert [pair.statuses for pair in found.pairs] == [("ok", "ok")]
    assert found.pairs[0].where == tuple(f"numpy-cpu@{python} ×1" for python in asked)


def test_a_revision_in_a_named_interpreter(repo: Any, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest has a path of its own, and none of it is the current folder."""
    repo.commit("whole", work=FAST)
    repo.commit("broken", work="raise ValueError('broken here')\n")
    monkeypatch.chdir(repo.path)
    asked = {**CALL, "backend": "numpy-cpu"}  # a stranger's backend is not installed there
    found = ab("work:f", rev=["HEAD~1", "HEAD"], python=sys.executable, processes=2, db=db, **asked)
    assert [pair.statuses for pair in found.pairs] == [("unchecked", "error")]
    assert "broken here" in found.pairs[0].note


def test_a_thing_with_itself_is_not_slower(db: Path) -> None:
    told: list[TurnProgress] = []
    found = ab("add", params={"shape": [64]}, same=True, processes=2, db=db, on_turn=told.append, **QUICK)
    assert found.pairs[0].verdict in ("same", "undecided")
    assert [(one.turn.pair, one.side.name) for one in told] == [
        (1, "steps-cpu a"), (1, "steps-cpu b"), (2, "steps-cpu b"), (2, "steps-cpu a"),
    ]  # fmt: skip


def test_two_sides_of_a_program_are_compared_directly(db: Path) -> None:
    case = Case.of("add", find_operator("add").complete({"shape": [64]}), "forward")
    a, b = Side("one", "numpy-cpu", 1), Side("other", "null", 1)
    found = measure_sides(a, b, [case], TurnOptions(processes=2), StoreOptions(db=db))
    assert (found.a, found.b) == ("one", "other")
    assert found.pairs[0].processes == (2, 2)


def test_what_was_interrupted_is_kept_and_told(db: Path) -> None:
    told: list[Compared] = []

    def turn(progress: TurnProgress) -> None:
        if progress.turn.pair == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ab(
            "add", params={"shape": [64]}, same=True, db=db, on_turn=turn, on_interrupted=told.append, **QUICK
        )  # fmt: skip
    assert [pair.processes for pair in told[0].pairs] == [(2, 2)]
    with closing(open_store(db)) as store:
        assert [len(store.records(name)) for name in told[0].runs] == [2, 2]


def test_a_run_of_a_session_is_not_taken_up_by_another(db: Path) -> None:
    """--resume goes by the plan: that of a session is nobody else's."""
    found = ab("add", params={"shape": [64]}, same=True, processes=2, db=db, **QUICK)
    with pytest.raises(UserError, match="no stored run has this plan"):
        run("add", params={"shape": [64]}, processes=2, effort="quick", db=db, resume=True, **QUICK)
    assert show(found.runs[0], db=db).run.tasks == 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"processes": 1}, "processes: expected a whole number from 2 to 20, got 1"),
        ({"processes": 21}, "processes: expected a whole number from 2 to 20, got 21"),
        ({"budget": 0}, "budget: expected seconds above 0"),
        ({"budget": float("nan")}, "budget: expected seconds above 0"),
        ({"margin": -0.1}, "margin"),
        ({"label": "a\nb"}, "label: expected printable text"),
        ({"timeout": -1}, "timeout: expected seconds above 0"),
        ({"effort": "none"}, "no effort named `none`"),
    ],
)
def test_mistakes_are_said_before_anything_is_measured(db: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        ab("add", same=True, db=db, **QUICK, **asked)
    assert message in str(raised.value)
    assert not db.exists()


def test_a_variable_does_not_reach_ranks_and_that_is_said(db: Path) -> None:
    with pytest.raises(UserError, match="not handed on to the ranks"):
        ab("all_reduce", env="A=1", backend="torch-cpu", ranks=2, db=db)


def test_an_invalid_parameter_is_a_users_mistake() -> None:
    assert issubclass(InvalidParameter, UserError)
