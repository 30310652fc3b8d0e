"""What a worker of a side is started with, what it makes of it, and how two sides are chosen."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.plugin import registry
from opmark.runner.ab import origin
from opmark.runner.ab.sides import SideOptions, make_sides, one_side
from opmark.runner.supervisor import WorkerPool
from opmark.runner.worker_process import WorkerProcess, environ_for
from opmark.schema import Case
from opmark.schema.messages import VARIABLE, Checkout, Side
from opmark.worker.process_setup import apply_side, belongs, facts_of_side

pytestmark = pytest.mark.verdicts

PLAIN = Side("numpy-cpu", "numpy-cpu", 1)
CASES = [Case.of("add", registry.operator("add").complete({"shape": [4]}), "forward")]


def own(name: str = "work:f") -> list[Case]:
    return [Case.of(name, registry.operator(name).complete({"args": ["4 float32"]}), "forward")]


def test_a_plain_side_changes_nothing() -> None:
    assert PLAIN.plain
    assert PLAIN.over({"A": "1"}) == {"A": "1"}


def test_variables_are_set_emptied_and_taken_away() -> None:
    side = Side("b", "numpy-cpu", 1, environ={"SET": "1", "EMPTY": "", "GONE": None})
    found = side.over({"GONE": "x", "KEPT": "y"})
    told = json.loads(found.pop(VARIABLE))
    assert found == {"KEPT": "y", "SET": "1", "EMPTY": ""}
    assert set(told["environ"]) == {"SET", "EMPTY", "GONE"}


def test_a_side_is_heard_before_what_a_backend_fixes() -> None:
    """Else both sides would silently be the same."""
    info = registry.backend("numpy-cpu")
    (fixed, *_) = info.environ or {"": ""}
    assert environ_for(info, 1, side=Side("b", "numpy-cpu", 1, environ={fixed: "7"}))[fixed] == "7"


def test_what_a_worker_is_told_puts_folders_first_and_leaves_others_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("tree", "repository/src", "repository/.venv/lib"):
        (tmp_path / folder).mkdir(parents=True)
    inside = tmp_path / "repository"
    monkeypatch.setattr(sys, "prefix", str(inside / ".venv"))
    monkeypatch.setattr(sys, "path", [str(inside / "src"), str(inside / ".venv" / "lib"), "/usr/lib/x"])
    checkout = Checkout(str(tmp_path / "tree"), "abc", str(tmp_path / "tree"), instead_of=str(inside))
    side = Side("a", "numpy-cpu", 1, {"FOO": "1"}, (str(tmp_path / "tree"),), checkout)
    environ = side.over({})
    apply_side(environ)
    assert sys.path == [str(tmp_path / "tree"), str(inside / ".venv" / "lib"), "/usr/lib/x"]
    assert facts_of_side(environ) == {"revision": "abc", "variables": {"FOO": "1"}}


def test_without_a_side_nothing_is_put_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    apply_side({})
    assert sys.path == before
    assert facts_of_side({}) == {"variables": {}}


def test_a_virtual_environment_inside_a_repository_is_not_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert belongs(str(tmp_path / "a.py"), str(tmp_path))
    assert not belongs(str(tmp_path / ".venv" / "x.py"), str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path.parent))
    assert belongs(str(tmp_path / "a.py"), str(tmp_path))


def test_a_worker_tells_of_its_side(tmp_path: Path) -> None:
    side = Side("b", "numpy-cpu", 1, environ={"OPMARK_TEST_VARIABLE": "7"})
    with closing(WorkerProcess(registry.backend("numpy-cpu"), 1, {}, side)) as worker:
        facts = worker.hello(60).environment.facts
    assert facts["variables"]["OPMARK_TEST_VARIABLE"] == "7"
    assert "revision" not in facts


def test_workers_of_two_sides_that_wait_are_told_apart() -> None:
    info = registry.backend("numpy-cpu")
    a, b = (Side(name, "numpy-cpu", 1) for name in "ab")
    with closing(WorkerPool()) as pool:
        pool.prestart("numpy-cpu", 1)
        (waiting,) = pool._waiting.values()
        with closing(pool.take(info, 1, None, a)) as one, closing(pool.take(info, 1, None, b)) as other:
            assert len({one.pid, other.pid, waiting.pid}) == 3


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (SideOptions(backend=["numpy-cpu", "null"]), ("numpy-cpu", "null")),
        (SideOptions(backend=["numpy-cpu"], threads=[1, 2]), ("numpy-cpu ×1", "numpy-cpu ×2")),
        (SideOptions(backend=["numpy-cpu"], env=["FOO=1"]), ("without FOO", "FOO=1")),
        (SideOptions(backend=["numpy-cpu"], env=["FOO="]), ("without FOO", "FOO=")),
        (SideOptions(backend=["numpy-cpu"], env=["FOO=0", "FOO"]), ("FOO=0", "without FOO")),
        (SideOptions(backend=["numpy-cpu"], env=["BAR"]), ("BAR=set", "without BAR")),
        (SideOptions(backend=["numpy-cpu"], env=["FOO=a=b", "FOO=c,d"]), ("FOO=a=b", "FOO=c,d")),
        (SideOptions(backend=["numpy-cpu"], same=True), ("numpy-cpu a", "numpy-cpu b")),
        (
            SideOptions(backend=["numpy-cpu"], python=[sys.executable, "/bin/sh"]),
            (f"numpy-cpu@{sys.executable}", "numpy-cpu@/bin/sh"),
        ),
    ],
)
def test_the_one_thing_that_differs_makes_two_sides(
    asked: SideOptions, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOO", raising=False)
    monkeypatch.setenv("BAR", "set")
    with make_sides(asked, CASES) as (a, b):
        assert (a.name, b.name) == names
        assert a != b


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (SideOptions(backend=["numpy-cpu"]), "got nothing that has two values"),
        (SideOptions(backend=["numpy-cpu", "numpy-cpu"]), "got nothing that has two values"),
        (SideOptions(backend=["numpy-cpu"], threads=[2, 2]), "got nothing that has two values"),
        (SideOptions(backend=["numpy-cpu", "null"], threads=[1, 2]), "got --backend and --threads"),
        (SideOptions(backend=["numpy-cpu"], env=["A=1"], rev=["HEAD"], same=True), "--env and --rev and --same"),
        (SideOptions(backend=["numpy-cpu"], threads=[1, 2, 3]), "--threads: two sides are compared, got 3: 1, 2, 3"),
        (SideOptions(backend=["numpy-cpu"], env=["A=1", "B=1"]), "one variable makes two sides"),
        (SideOptions(backend=["numpy-cpu"], env=["A=1", "A=2", "A=3"]), "one variable makes two sides"),
        (SideOptions(backend=["numpy-cpu"], env=["A=1", "A=1"]), "nothing differs"),
        (SideOptions(backend=["numpy-cpu"], env=["=1"]), "expected VAR=VALUE"),
        (SideOptions(backend=["numpy-cpu"], env=["A=\0"]), "expected VAR=VALUE"),
        (SideOptions(backend=["numpy-cpu"], env=["OMP_NUM_THREADS=1"]), "told its threads by"),
        (SideOptions(backend=["numpy-cpu"], same=True, make="make"), "--make goes with --rev"),
        (SideOptions(backend=["numpy-cpu"], same=True, repo="."), "--repo goes with --rev"),
        (SideOptions(backend=["nowhere"], same=True), "no backend named `nowhere`"),
        (SideOptions(backend=["numpy-cpu"], rev=["a", "b", "c"]), "--rev: two sides are compared, got 3"),
    ],
)
def test_none_or_several_differences_are_a_mistake_that_names_them(asked: SideOptions, message: str) -> None:
    with pytest.raises(UserError) as raised, make_sides(asked, CASES):
        pass
    assert message in str(raised.value)


def test_the_same_value_as_it_has_already_makes_no_two_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO", "1")
    with (
        pytest.raises(UserError, match="nothing differs"),
        make_sides(SideOptions(["numpy-cpu"], env=["FOO=1"]), CASES),
    ):
        pass


def test_one_side_takes_one_of_each() -> None:
    assert one_side(SideOptions(["numpy-cpu"], threads=[2]), CASES) == Side("numpy-cpu", "numpy-cpu", 2)
    with pytest.raises(UserError, match="--threads: expected one, got 2"):
        one_side(SideOptions(["numpy-cpu"], threads=[1, 2]), CASES)


def revisions_of(repo: Any, rev: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> SideOptions:
    monkeypatch.chdir(repo.path)
    return SideOptions(["numpy-cpu"], rev=rev)


def test_a_revision_against_the_files_as_they_are(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = repo.commit("one", work="def f(x): return x\n")
    repo.write(work="def f(x): return x + 1\n")
    before = repo.state()
    with make_sides(revisions_of(repo, ["main"], monkeypatch), own()) as (a, b):
        assert (a.name, b.name) == (f"main ({first[:10]})", f"as it is ({first[:10]}+)")
        assert a.checkout
        assert b.checkout
        assert (a.checkout.commit, b.checkout.commit) == (first, f"{first}+")
        assert Path(a.folders[0], "work.py").read_text() == "def f(x): return x\n"
        assert b.folders[0] == str(repo.path)
    assert not Path(a.folders[0]).exists()
    assert repo.state() == before


def test_files_that_are_those_of_the_revision_differ_in_nothing(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("one", work="def f(x): return x\n")
    repo.git("tag", "v1")
    for rev in (["HEAD"], ["HEAD", "v1"]):
        with pytest.raises(UserError, match="nothing differs"), make_sides(revisions_of(repo, rev, monkeypatch), own()):
            pass


def test_what_does_not_come_from_the_repository_is_refused(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("one", work="1")
    repo.commit("two", work="2")
    asked = revisions_of(repo, ["HEAD~1"], monkeypatch)
    with (
        pytest.raises(UserError, match="nothing that is measured comes from this repository"),
        make_sides(asked, CASES),
    ):
        pass


def test_a_module_that_comes_from_the_files_as_they_are_is_refused(
    repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A module that puts an absolute path first gets the same helper in every revision."""
    lead = f"import sys; sys.path.insert(0, {str(repo.path)!r})\nimport helper\ndef f(x): return helper.g(x)\n"
    repo.commit("one", inner__work=lead, helper="def g(x): return x\n")
    second = repo.commit("two", helper="def g(x): return x + 1\n")
    monkeypatch.chdir(repo.path / "inner")
    with pytest.raises(UserError) as raised, make_sides(SideOptions(["numpy-cpu"], rev=["HEAD~1", second]), own()):
        pass
    assert "`helper` was loaded from" in str(raised.value)
    assert "both sides would be the same code" in str(raised.value)


def test_a_module_that_cannot_be_imported_is_left_to_its_record(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("one", work="import nothing_of_this_name\n")
    repo.commit("two", work="def f(x): return x\n")
    with make_sides(revisions_of(repo, ["HEAD~1", "HEAD"], monkeypatch), own()) as (a, _):
        told = origin._inspect_modules(a, ["work:f"])
    assert "nothing_of_this_name" in told["failed"]["work:f"]


def test_a_process_that_dies_while_importing_is_left_to_its_record(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit("one", work="import os; os._exit(3)\n")
    repo.commit("two", work="def f(x): return x\n")
    with make_sides(revisions_of(repo, ["HEAD~1", "HEAD"], monkeypatch), own()) as sides:
        assert len(sides) == 2


def test_no_variable_of_a_side_reaches_this_process() -> None:
    assert VARIABLE not in os.environ
