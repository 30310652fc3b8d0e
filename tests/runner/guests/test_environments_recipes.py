from __future__ import annotations

import re

import pytest

from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import backends
from opmark.runner.guests.environments import recipe_for, recipes


def test_every_guest_that_a_backend_names_has_a_recipe() -> None:
    assert {info.guest for info in backends().values() if info.guest} <= recipes().keys()


@pytest.mark.parametrize("name", recipes())
def test_what_is_measured_is_pinned(name: str) -> None:
    assert re.fullmatch(r"[\w-]+==[\w.]+", recipes()[name].requirements[0])


def test_another_version_keeps_what_is_not_tied_to_the_first_one() -> None:
    name, recipe = recipe_for("numpy==1.26.4")
    assert name == "numpy-1.26.4"
    assert recipe.requirements == ("numpy==1.26.4", "scipy>=1.10")
    # The other pins belong to the version that they were tried with.
    assert recipe_for("mxnet==1.8.0")[1].requirements == ("mxnet==1.8.0",)


def test_a_name_of_ones_own_takes_the_packages_to_install() -> None:
    name, recipe = recipe_for("mine", ["torch==2.12.0"])
    assert name == "mine"
    assert recipe.requirements[0] == "torch==2.12.0"


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no recipe named `tensorfow`") as caught:
        recipe_for("tensorfow")
    assert "tensorflow" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["numpy==", "numpy==../x", "numpy==1 2"])
def test_an_invalid_version_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is not a version"):
        recipe_for(name)


@pytest.mark.parametrize("name", ["../x", "", "a b", "-x"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        recipe_for(name, ["numpy"])


def test_the_pythons_of_a_recipe_are_a_range() -> None:
    mxnet = recipes()["mxnet"]
    assert [minor for minor in range(8, 14) if mxnet.takes((3, minor, 1))] == [10, 11]
