"""The public names of `opmark`."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import opmark
from opmark.api.check import check
from opmark.api.run import plan, run
from opmark.api.show import show


def test_the_public_names_are_sorted_and_each_stands_once() -> None:
    assert opmark.__all__ == sorted(set(opmark.__all__))


@pytest.mark.parametrize("name", opmark.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(opmark, name) is not None


def test_the_list_of_names_and_the_names_that_are_found_are_the_same() -> None:
    assert sorted(opmark._PUBLIC) == opmark.__all__


def test_the_functions_are_those_of_the_library() -> None:
    assert (opmark.run, opmark.plan, opmark.show, opmark.check) == (run, plan, show, check)


@pytest.mark.parametrize("name", opmark._MOVED)
def test_a_name_of_the_version_before_works_and_says_where_it_is_now(name: str) -> None:
    module, attribute = opmark._MOVED[name].split(":")
    with pytest.warns(DeprecationWarning, match=f"opmark.{name} .* use `from {module} import {attribute}`"):
        found = getattr(opmark, name)
    assert found is getattr(importlib.import_module(module), attribute)


def test_the_public_names_are_few() -> None:
    assert len(opmark.__all__) <= 21
    assert not set(opmark.__all__) & set(opmark._MOVED)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'opmark' has no attribute 'measure_everything'"):
        _ = opmark.measure_everything


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version

    assert opmark.__version__ == version("opmark")


def test_run_stays_the_function_after_the_runner_was_imported() -> None:
    """A package of the same name would take its place as soon as anything of it is imported."""
    importlib.import_module("opmark.worker.main")
    importlib.import_module("opmark.runner.session")
    assert opmark.run is run
    for name in opmark.__all__:
        assert not isinstance(getattr(opmark, name), type(sys)), f"{name} is a module"


def test_importing_opmark_imports_nothing_else_of_it() -> None:
    """`opmark --help` begins with this import."""
    script = "import sys, opmark; print(*(name for name in sys.modules if name.startswith('opmark.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["opmark._moved"]
