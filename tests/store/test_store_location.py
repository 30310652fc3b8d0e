"""Where the store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.store.location import store_path


def test_the_default_is_in_the_data_directory_of_the_user(isolated: Path) -> None:
    path = store_path()
    assert path.name == "opmark.db"
    assert path.is_relative_to(isolated / "data")


def test_the_variable_comes_before_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "named.db"))
    assert store_path() == tmp_path / "named.db"


def test_what_was_told_comes_before_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "named.db"))
    assert store_path(str(tmp_path / "told.db")) == tmp_path / "told.db"
    assert store_path(tmp_path / "told.db") == tmp_path / "told.db"


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, isolated: Path) -> None:
    monkeypatch.setenv("OPMARK_DB", "")
    assert store_path().is_relative_to(isolated / "data")


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_path("~/mine.db") == tmp_path / "mine.db"
