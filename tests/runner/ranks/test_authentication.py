"""The secret of the ranks: where it comes from, and which ones are refused."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs
import pytest

from opmark.errors import UserError
from opmark.runner.ranks.authentication import read_secret


def test_a_variable_goes_before_a_file(tmp_path: Path) -> None:
    environ = {"OPMARK_SECRET": "sixteen letters!", "OPMARK_SECRET_FILE": str(tmp_path / "missing")}
    assert read_secret(environ) == b"sixteen letters!"


def test_a_file_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("sixteen letters!\n")
    file.chmod(0o640)
    assert read_secret({"OPMARK_SECRET_FILE": str(file)}) == b"sixteen letters!"


def test_without_either_one_is_drawn_once_for_this_user() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: read_secret({}), range(32)))
    assert found == {read_secret({})}
    (file,) = platformdirs.user_data_path("opmark").glob("rank-secret*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text()) == 65


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_file_that_is_open_to_all_is_refused_with_what_to_type(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_text("sixteen letters!")
    file.chmod(mode)
    with pytest.raises(UserError, match="open to every user of this host") as caught:
        read_secret({"OPMARK_SECRET_FILE": str(file)})
    assert caught.value.hint == f"chmod o= {file}"


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(UserError, match=r"cannot be read: .*No such file"):
        read_secret({"OPMARK_SECRET_FILE": str(file)})
    file.write_bytes(b"\xff" * 32)
    file.chmod(0o600)
    with pytest.raises(UserError, match="cannot be read"):
        read_secret({"OPMARK_SECRET_FILE": str(file)})


def test_a_folder_that_cannot_be_written_is_named_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without a home directory."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="no secret for the ranks can be kept there") as caught:
        read_secret({})
    assert "OPMARK_SECRET" in str(caught.value.hint)


def test_a_short_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(UserError, match="OPMARK_SECRET: expected a secret of at least 16 characters, got 7") as caught:
        read_secret({"OPMARK_SECRET": "hunter2"})
    assert "hunter2" not in caught.value.message
