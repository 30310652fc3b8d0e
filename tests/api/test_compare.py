"""What the names of two sides stand for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from compared import QUIET, keep

from opmark.api import compare as compare_module
from opmark.api.compare import RunFinder
from opmark.schema.record import Figure
from opmark.store.memory import MemoryStore

pytestmark = pytest.mark.verdicts

A = "20300101-000000-aaaa"


def test_a_password_is_in_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_store(place: str) -> Any:
        opened.append(place)
        store = MemoryStore()
        return store

    monkeypatch.setattr(compare_module, "open_store", open_store)
    monkeypatch.setattr(compare_module, "find_run", lambda store, name: name)
    url = "postgresql://ada:secret@host/results"
    with ExitStack() as stack:
        named, last = RunFinder(stack, None).run(f"{url}::main"), RunFinder(stack, None).run(url)
    assert named is not None
    assert last is not None
    assert (named.name, named.run) == ("postgresql://ada@host/results::main", "main")
    assert (last.name, last.run) == ("postgresql://ada@host/results", None)
    assert set(opened) == {url}


def test_a_store_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = tmp_path / "store.db"
    keep(db, A, "main", {("torch-cpu", "exp"): [1.0]})
    with ExitStack() as stack:
        finder = RunFinder(stack, db)
        one, other = finder.two("main", f"{db}::main", None)
        again = finder.run(f"{db}::main")
        assert again is not None
        assert other.store is again.store
        assert one.store is finder.store()


def test_a_label_may_hold_what_stands_before_a_run(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    keep(db, A, "nightly::gpu", {("torch-cpu", "exp"): [1.0]})
    with ExitStack() as stack:
        found = RunFinder(stack, db).run("nightly::gpu")
        assert found is not None
        assert found.run.id == A


def figure(implementation: str, case: str = "c", backend: str = "torch-cpu") -> Figure:
    return Figure("r", case, "op", backend, implementation, 2, 0, "ok", "e", "")


def test_of_several_implementations_the_plain_one_is_meant_unless_another_is_named() -> None:
    own = [figure("torch"), figure("flash"), figure("flash", "d")]
    plain = compare_module._chosen(compare_module._called("torch-cpu"), own, "torch-cpu")
    assert [plain(one) for one in own] == [True, False, True]
    named = compare_module._chosen(compare_module._called("torch-cpu/flash"), own, "torch-cpu/flash")
    assert [named(one) for one in own] == [False, True, True]


def test_two_backends_are_parts_of_one_run(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    keep(db, A, "main", {("torch-cpu", "exp"): list(QUIET), ("numpy-cpu", "exp"): list(QUIET)})
    with ExitStack() as stack:
        one, other = RunFinder(stack, db).two("torch-cpu", "numpy-cpu", None)
        assert (one.run, one.name, other.name) == (other.run, "torch-cpu", "numpy-cpu")
        assert one.chosen is not None
        assert [one.chosen(f) for f in one.store.figures(runs=[A])] == [True] * 5 + [False] * 5
