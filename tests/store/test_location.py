"""Where the store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.errors import StoreError
from opmark.store.location import display_address, is_server, store_path, without_secrets
from opmark.store.sql import open_sql


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


SECRETS = [
    "mysql://u:hunter2@h.invalid/db",
    "Postgresql://u:hunter2@h.invalid/db",
    "POSTGRESQL://u:hunter2@h.invalid:99999999/db",
    "postgresql+psycopg2://u:hunter2@h.invalid/db",
    "postgresql:/u:hunter2@h.invalid/db",
    "postgresql://u:a@b:hunter2@h.invalid/db",
    "postgresql://u:hun@ter2@localhost/db",
    "postgresql://u:hun/ter2@h.invalid/db",
    "postgresql://u:hun?ter2@h.invalid/db",
    "postgresql://u:hun#ter2@h.invalid/db",
    "postgresql://u:hunter2",
    "postgresql://u@h.invalid:hunter2/db",
    "postgresql://h.invalid/db?user=x&password=hun@ter2",
    "postgresql://h.invalid/db?user=x&password=hunter2",
    "postgresql://u:hunter2@h.invalid/db?sslpassword=hunter2&sslmode=nonsense",
]


@pytest.mark.parametrize("told", SECRETS)
def test_no_password_is_told_and_no_address_becomes_a_file(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for where in (told, Path(told)):
        with pytest.raises(StoreError) as caught:
            open_sql(where, create=True)
        assert "ter2" not in f"{caught.value} {display_address(where)}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("told", ["postgresql://u:a@b@h/db", "postgresql://h/db?password=a@b"])
def test_an_unescaped_at_is_said_to_be_one(told: str) -> None:
    with pytest.raises(StoreError, match="%40"):
        open_sql(told)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("postgresql://me:secret@h:5432/db", "postgresql://me@h:5432/db"),
        ("postgresql://me@[::1]:5432/db", "postgresql://me@[::1]:5432/db"),
        ("postgresql://:secret@a,b:1/db", "postgresql://@a,b:1/db"),
        (
            "postgresql:///db?host=/run/pg&password=x&options=-csearch_path%3Dmine",
            "postgresql:///db?host=/run/pg&options=-csearch_path%3Dmine",
        ),
        ("postgresql://u:a@b@h/db", "postgresql://...@h/db"),
    ],
)
def test_an_address_is_shown_as_it_could_be_given_again(told: str, expected: str) -> None:
    assert display_address(told) == expected


def test_a_drive_of_windows_is_no_address() -> None:
    assert not is_server("C:/results/opmark.db")
    assert not is_server("folder/a.db")


def test_a_command_is_kept_without_secrets() -> None:
    typed = ["opmark", "ab", "--db", "postgresql://u:hunter2@h/db", "--db=postgresql://u:hun@ter2@h/db", "--env",
             "TOKEN=hunter2", "--env=KEY=hunter2=x", "--env", "UNSET", "-p", "shape=[1]", "C:/a.db"]  # fmt: skip
    assert list(without_secrets(typed)) == [
        "opmark", "ab", "--db", "postgresql://u@h/db", "--db=postgresql://...@h/db", "--env",
        "TOKEN=...", "--env=KEY=...", "--env", "UNSET", "-p", "shape=[1]", "C:/a.db"]  # fmt: skip
