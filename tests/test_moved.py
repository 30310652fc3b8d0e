"""Import paths of 0.8: they give the same objects as the new ones, and say where these are."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

import opmark.plugin
import opmark.schema


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("interfaces", "plugin"),
        ("registry", "plugin.registry"),
        ("compat.param", "interop.param"),
        ("compat.opperf.nd", "interop.opperf.nd"),
    ],
)
def test_an_old_path_is_the_module_of_the_new_one(old: str, new: str) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(f"opmark.{old.partition('.')[0]}.")]:
        del sys.modules[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = import_module(f"opmark.{old}")
    assert f"opmark.{old} is opmark.{new} since opmark 0.9; the old path goes with 0.10" in [
        str(w.message) for w in told
    ]
    assert found is import_module(f"opmark.{new}")
    assert found.__spec__ is not None
    assert found.__spec__.name == f"opmark.{new}"


@pytest.mark.parametrize(("old", "new"), [("Operator", "Operator"), ("Params", "Params"), ("Rule", "ParamRule")])
def test_names_that_moved_out_of_the_schema_are_found_there(old: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=f"opmark.schema.{old} is opmark.plugin.{new}"):
        found = getattr(opmark.schema, old)
    assert found is getattr(opmark.plugin, new)


def test_a_name_that_never_was_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        getattr(opmark.schema, "Nonsense")  # noqa: B009 - a type checker would refuse the attribute


def test_a_script_of_0_8_runs_and_is_told() -> None:
    script = "from opmark.interfaces import Backend; from opmark.compat.opperf import run_performance_test"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "opmark.interfaces is opmark.plugin since opmark 0.9" in done.stderr
