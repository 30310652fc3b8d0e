from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.plugin.registry import load_function
from opmark.worker.functions import implementation_of, match_arguments

PARAMS = {"shape": [2, 2], "axis": -1, "dtype": "float32"}


def by_name(x: Any, axis: int) -> Any: ...
def by_a_synonym(x: Any, dim: int) -> Any: ...
def in_order(first: Any, second: Any) -> Any: ...
def swapped(b: Any, a: Any) -> Any: ...
def keywords_only(*, axis: int, x: Any) -> Any: ...
def with_defaults(x: Any, block: int = 64, axis: int = 0) -> Any: ...
def any_number(*tensors: Any) -> Any: ...
def with_dtype(x: Any, dtype: Any) -> Any: ...
def too_few(a: Any) -> Any: ...
def too_many(x: Any, weight: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "inputs", "args", "kwargs"),
    [
        (by_name, ["x"], ["X", -1], {}),
        (by_a_synonym, ["x"], ["X", -1], {}),
        (in_order, ["a", "b"], ["A", "B"], {}),
        (swapped, ["a", "b"], ["B", "A"], {}),
        (keywords_only, ["x"], [], {"axis": -1, "x": "X"}),
        (with_defaults, ["x"], ["X"], {"axis": -1}),
        (any_number, ["a", "b", "c"], ["A", "B", "C"], {}),
        (with_dtype, ["x"], ["X", "<float32>"], {}),
        (max, ["a", "b"], ["A", "B"], {}),
    ],
)
def test_arguments_are_matched(function: Any, inputs: list[str], args: list[Any], kwargs: dict[str, Any]) -> None:
    match = match_arguments(function, inputs, PARAMS, lambda name: f"<{name}>")
    assert match.apply({name: name.upper() for name in inputs}) == (args, kwargs)


def test_what_cannot_be_called_says_what_there_is() -> None:
    with pytest.raises(UserError, match="takes fewer than 2 inputs, expected the inputs a, b"):
        match_arguments(too_few, ["a", "b"], PARAMS)
    with pytest.raises(UserError, match="needs `weight`, expected the inputs x") as error:
        match_arguments(too_many, ["x"], PARAMS)
    assert error.value.hint == "it may also take these parameters by name: shape, axis, dtype"


def test_a_function_is_found_in_a_file_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_it.py").write_text("FACTOR = 3\n")
    (tmp_path / "kernels.py").write_text("import neighbour_of_it\nclass K:\n    f = neighbour_of_it.FACTOR.__mul__\n")
    assert load_function(f"{tmp_path}/kernels.py:K.f")(2) == 6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}/nothing.py:f", "there is no file"),
        ("{}/kernels.py:g", "has no `g`"),
        ("{}/kernels.py:f", "is a int and cannot be called"),
        (":f", "names no function"),
    ],
)
def test_a_function_that_is_not_there(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "kernels.py").write_text("f = 1\n")
    with pytest.raises(UserError, match=message):
        load_function(name.format(tmp_path))


def test_an_implementation_is_imported_only_when_it_is_built(tmp_path: Path) -> None:
    made = implementation_of(f"{tmp_path}/later.py:f", "numpy")
    (tmp_path / "later.py").write_text("def f(x, axis):\n    return x, axis\n")
    assert made.build(PARAMS, x=5)() == (5, -1)
