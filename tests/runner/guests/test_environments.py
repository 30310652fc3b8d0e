from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from opmark.api.env import envs as envs_and_recipes
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import backend
from opmark.runner.guests import environments
from opmark.runner.guests.environments import (
    Guest,
    create,
    environments_folder,
    find_environment,
    interpreter_for,
    list_environments,
    remove,
)
from opmark.runner.guests.placement import choose_interpreter, why_missing


@pytest.fixture(autouse=True)
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "envs"))
    return tmp_path / "envs"


def create_local(name: str, *requirements: str) -> Guest:
    """Create an environment from local packages, so that nothing is fetched."""
    return create(name, "a test", requirements, sys.executable, None, lambda line: None)


def test_there_is_no_environment_before_one_is_created(envs: Path) -> None:
    assert list_environments() == []
    assert find_environment("mxnet") is None
    assert not envs.exists()


def test_the_folder_is_the_users_own_unless_a_variable_names_it(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environments.VARIABLE)
    assert environments_folder() == isolated / "data" / "opmark" / "envs"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A wheel that pip installs without the network: it has no build back end and no dependencies."""
    wheel, info = tmp_path / "tiny_package-1.0-py3-none-any.whl", "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_package.py", "VALUE = 1\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_an_environment_is_created_listed_found_and_removed(package: Path, envs: Path) -> None:
    lines: list[str] = []
    guest = create("mine", "a test", [str(package)], sys.executable, None, lines.append)
    assert guest.packages["tiny-package"] == "1.0"
    assert any("tiny" in line for line in lines)
    assert list_environments() == [guest] == [find_environment("mine")]
    assert guest.python.exists()
    assert choose_interpreter(backend("numpy-cpu@mine")).python == str(guest.python)
    assert why_missing(backend("numpy-cpu@mine")) == f"numpy is not installed in {guest.python}"
    with pytest.raises(UserError, match="exists already"):
        create_local("mine")
    assert remove("mine") == envs / "mine"
    assert list_environments() == []


def test_a_failed_installation_leaves_nothing_behind(envs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pip could not install") as caught:
        create_local("mine", str(tmp_path / "no-such-package-1.0-py3-none-any.whl"))
    assert "no-such-package" in caught.value.message
    assert list(envs.iterdir()) == []


def test_an_interrupted_creation_leaves_nothing_behind(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        (envs / "mine").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(environments, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create_local("mine")
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
    with pytest.raises(UserError, match="have no wheels"):
        interpreter_for(lambda version: False, sys.executable)
    with pytest.raises(UserError, match="wheels for no Python on the path"):
        interpreter_for(lambda version: False, None)


def test_the_library_lists_recipes_beside_environments() -> None:
    there, recipes = envs_and_recipes()
    assert there == []
    assert {"mxnet", "tensorflow", "tvm"} <= recipes.keys()


def test_a_folder_that_is_no_environment_is_left_alone(envs: Path) -> None:
    (envs / "mine" / "precious").mkdir(parents=True)
    with pytest.raises(UserError, match="exists and is not an environment"):
        create_local("mine")
    assert (envs / "mine" / "precious").exists()


def test_two_processes_do_not_create_the_same_environment(envs: Path) -> None:
    with environments._building(envs / "mine"), pytest.raises(UserError, match="right now"):
        create_local("mine")
    assert list(envs.iterdir()) == []


def test_a_folder_with_an_unreadable_description_is_no_environment(envs: Path) -> None:
    (envs / "mine").mkdir(parents=True)
    (envs / "mine" / "opmark.json").write_text("{")
    assert (list_environments(), find_environment("mine")) == ([], None)


def test_removing_a_linked_environment_removes_only_the_link(envs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pyvenv.cfg").touch()
    envs.mkdir()
    (envs / "mine").symlink_to(tmp_path / "elsewhere")
    remove("mine")
    assert (tmp_path / "elsewhere" / "pyvenv.cfg").exists()
    assert not (envs / "mine").exists()
