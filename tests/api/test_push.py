"""Where a token comes from, for who serves and for who sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.api.push import MAX_TOKEN, token_of
from opmark.errors import InvalidFile, UserError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPMARK_TOKEN", "of-the-environment")
    (tmp_path / "token").write_text("of-a-file\n")


def test_it_is_said_or_in_a_file_or_in_the_environment() -> None:
    assert token_of("said", None) == "said"
    assert token_of(None, "~/token") == "of-a-file"
    assert token_of(None, Path("~/token")) == "of-a-file"
    assert token_of(None, None) == "of-the-environment"


def test_an_empty_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_TOKEN", "")
    assert token_of(None, None) is None


def test_twice_is_a_mistake() -> None:
    with pytest.raises(UserError, match="two ways"):
        token_of("said", "~/token")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "nothing"), (b" \n", "nothing"), (b"x" * (MAX_TOKEN + 1), "more"), (b"\xff", "not text")],
)
def test_a_file_holds_a_token_and_nothing_else(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(InvalidFile, match=said):
        token_of(None, tmp_path / "token")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("none", "~nobody-of-this-name/token"):
        with pytest.raises(InvalidFile, match=name):
            token_of(None, name)


def test_a_file_without_end_is_given_up() -> None:
    with pytest.raises(InvalidFile):
        token_of(None, "/dev/zero")


def test_the_longest_token_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * MAX_TOKEN + "\r\n")
    assert token_of(None, tmp_path / "token") == "x" * MAX_TOKEN
