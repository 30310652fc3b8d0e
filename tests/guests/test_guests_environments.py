from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from opmark.errors import UnknownName, UserError
from opmark.guests import environments
from opmark.guests.environments import Guest, create, find, folder, found, interpreter_for, remove
from opmark.guests.manage import envs as envs_and_recipes
from opmark.guests.place import place_of, why_missing
from opmark.registry import backend


@pytest.fixture(autouse=True)
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "envs"))
    return tmp_path / "envs"


def made(name: str, *requirements: str) -> Guest:
    """Of packages that are a folder away: nothing is fetched."""
    return create(name, "a test", requirements, sys.executable, None, lambda line: None)


def test_there_are_none_where_none_was_made(envs: Path) -> None:
    assert found() == []
    assert find("mxnet") is None
    assert not envs.exists()


def test_the_folder_is_the_users_own_unless_told(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environments.VARIABLE)
    assert folder() == isolated / "data" / "opmark" / "envs"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """One that pip installs without asking anybody: no build back end, no dependencies."""
    wheel, info = tmp_path / "tiny_package-1.0-py3-none-any.whl", "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_package.py", "VALUE = 1\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_an_environment_is_made_listed_found_and_removed(package: Path, envs: Path) -> None:
    said: list[str] = []
    guest = create("mine", "a test", [str(package)], sys.executable, None, said.append)
    assert guest.packages["tiny-package"] == "1.0"
    assert any("tiny" in line for line in said)
    assert found() == [guest] == [find("mine")]
    assert guest.python.exists()
    assert place_of(backend("numpy-cpu@mine")).python == str(guest.python)
    assert why_missing(backend("numpy-cpu@mine")) == f"numpy is not installed in {guest.python}"
    with pytest.raises(UserError, match="there already"):
        made("mine")
    assert remove("mine") == envs / "mine"
    assert found() == []


def test_what_cannot_be_installed_leaves_nothing_behind(envs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pip could not install") as caught:
        made("mine", str(tmp_path / "no-such-package-1.0-py3-none-any.whl"))
    assert "no-such-package" in caught.value.message
    assert list(envs.iterdir()) == []


def test_an_interrupted_making_leaves_nothing_behind(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        (envs / "mine").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(environments, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made("mine")
    assert list(envs.iterdir()) == []


@pytest.mark.parametrize("name", ["nothing", "..", "", "a/b"])
def test_only_an_environment_is_removed(name: str, envs: Path) -> None:
    (envs / "nothing").mkdir(parents=True)
    (envs / "nothing" / "precious").touch()
    with pytest.raises(UnknownName, match="no environment named"):
        remove(name)
    assert (envs / "nothing" / "precious").exists()


def test_the_interpreter_is_this_one_where_it_fits() -> None:
    assert interpreter_for(lambda version: True, None) == sys.executable


def test_an_interpreter_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="no wheels"):
        interpreter_for(lambda version: False, sys.executable)
    with pytest.raises(UserError, match="no Python on the path"):
        interpreter_for(lambda version: False, None)


def test_the_library_lists_recipes_beside_what_there_is() -> None:
    there, recipes = envs_and_recipes()
    assert there == []
    assert {"mxnet", "tensorflow", "tvm"} <= recipes.keys()


def test_a_folder_that_is_no_environment_is_left_alone(envs: Path) -> None:
    (envs / "mine" / "precious").mkdir(parents=True)
    with pytest.raises(UserError, match="it is no environment"):
        made("mine")
    assert (envs / "mine" / "precious").exists()


def test_two_do_not_make_the_same_one(envs: Path) -> None:
    with environments._building(envs / "mine"), pytest.raises(UserError, match="right now"):
        made("mine")
    assert list(envs.iterdir()) == []


def test_a_note_that_is_none_is_no_environment(envs: Path) -> None:
    (envs / "mine").mkdir(parents=True)
    (envs / "mine" / "opmark.json").write_text("{")
    assert (found(), find("mine")) == ([], None)


def test_of_a_link_only_the_link_is_removed(envs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pyvenv.cfg").touch()
    envs.mkdir()
    (envs / "mine").symlink_to(tmp_path / "elsewhere")
    remove("mine")
    assert (tmp_path / "elsewhere" / "pyvenv.cfg").exists()
    assert not (envs / "mine").exists()
