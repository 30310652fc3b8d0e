"""Implementations that are made out of a function's dotted path."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from opmark.catalogue.operators._builders import calls
from opmark.errors import UnknownName


def test_the_framework_is_the_first_part_of_the_path() -> None:
    assert calls("torch.nn.functional.gelu", "x").framework == "torch"
    assert calls("numpy.add", "x", "y").framework == "numpy"


def test_inputs_go_in_the_order_named_and_parameters_as_keywords() -> None:
    launch = calls("numpy.subtract", "y", "x", dtype="kind").build(
        {"kind": "float32", "other": 1}, x=np.array([1]), y=np.array([5])
    )
    result = launch()
    assert result.tolist() == [4]
    assert result.dtype == np.float32


def test_a_function_deep_in_a_package_is_found() -> None:
    launch = calls("numpy.linalg.norm", "x").build({}, x=np.array([3.0, 4.0]))
    assert launch() == 5


def test_nothing_is_imported_before_a_launch_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    implementation = calls("invented_framework.double", "x")
    with pytest.raises(ModuleNotFoundError, match="invented_framework"):
        implementation.build({}, x=1)
    module = ModuleType("invented_framework")
    module.double = lambda x: 2 * x  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "invented_framework", module)
    assert implementation.build({}, x=21)() == 42


def test_a_function_that_the_framework_lacks_is_an_error_of_the_build_not_of_the_launch() -> None:
    with pytest.raises(UnknownName, match="no_such_function"):
        calls("numpy.no_such_function", "x").build({}, x=1)


def test_the_launch_alone_calls_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    module = ModuleType("invented_framework")
    module.note = called.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "invented_framework", module)
    launch = calls("invented_framework.note", "x").build({}, x="here")
    assert called == []
    launch()
    launch()
    assert called == ["here", "here"]
