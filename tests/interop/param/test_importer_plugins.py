"""Iterators and generators of plug-ins, registered as the documents say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from opmark.interop.param.importer import PARAM
from opmark.plugin import registry
from opmark.schema import Imported

MODULE = '''
"""An iterator as a function, one as a class like PARAM's own, and generators."""

def halves(configs, key, device):
    for n, spec in enumerate(configs[key]):
        yield f"{n}_0", spec
        yield f"{n}_1", {"size": spec["size"] // 2}

class Squares:
    """An iterator like PARAM's own: a class with __next__."""

    def __init__(self, configs, key, device):
        self.left = list(enumerate(configs[key]))

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

def square(spec, draw):
    n = spec["size"] + draw.integer(0, 3)
    return [f"{n}x{n} float32"], {"alpha": 1}

def fails(*given):
    raise KeyError("shape")

def gives_nothing(spec, draw):
    return None

def shapeless(configs, key, device):
    yield "0"

def endless(configs, key, device):
    n = 0
    while True:
        yield n, {"size": 1}
        n += 1

def same(configs, key, device):
    yield "0", {"size": 4}
    yield 0, {"size": 512}
    yield "1", {"size": 8}

def barred(configs, key, device):
    yield "0|1", {"size": 4}

def odd(spec, draw):
    return GIVES[spec["gives"]]()

class Tensor:
    """A stand-in for a tensor of torch, which a generator must not return."""

class Scalar(float):
    """A stand-in for a number of NumPy, which is a float as well."""

def nested():
    found = []
    found.append(found)
    return [found], {}

GIVES = {
    "tensor": lambda: [[Tensor()], {}],
    "scalar": lambda: [[1, Scalar(2)], {}],
    "deep": lambda: ([[1, {"tuple": [Tensor()]}]], {}),
    "kwarg": lambda: ([], {"alpha": Tensor()}),
    "set": lambda: ([{1, 2}], {}),
    "nan": lambda: ([float("nan")], {}),
    "inf": lambda: ([1], {"max": float("-inf")}),
    "large": lambda: ([2**70], {}),
    "key": lambda: ([], {1: 2}),
    "none": lambda: None,
    "one": lambda: ([],),
    "swapped": lambda: ({}, []),
    "type": lambda: ([float], {}),
    "endless": nested,
    "written": lambda: (["8x64 float32", {"dtype": "float16"}, {"float": "inf"}, None], {"dim": (1, 2)}),
}
'''
ENTRY_POINTS = """
[opmark.param_iterators]
Halves = strange_param:halves
Squares = strange_param:Squares
Failing = strange_param:fails
Shapeless = strange_param:shapeless
Endless = strange_param:endless
Same = strange_param:same
Barred = strange_param:barred
Missing = strange_param:not_there

[opmark.param_generators]
Square = strange_param:square
Failing = strange_param:fails
Nothing = strange_param:gives_nothing
Odd = strange_param:odd
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a plug-in as an installer would."""
    info = tmp_path / "strange_param-1.0.dist-info"
    info.mkdir()
    (tmp_path / "strange_param.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-param\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    registry.plugins.cache_clear()
    yield
    sys.modules.pop("strange_param", None)
    monkeypatch.undo()
    registry.plugins.cache_clear()


def read(iterator: str = "Halves", generator: str = "Square", count: int = 1) -> Imported:
    specs = [{"size": 8 * (n + 1)} for n in range(count)]
    config: dict[str, Any] = {"input": specs}
    info = {"input_iterator": iterator, "input_data_generator": generator, "config": [config]}
    return PARAM.read(Path("c.json"), {"torch.f": info}, 0)


def test_ids_and_arguments_are_those_of_the_plug_in() -> None:
    found = read(count=2)
    assert found.problems == ()
    assert [entry.source.rpartition("|")[2] for entry in found.entries] == ["0_0", "0_1", "1_0", "1_1"]
    sizes = [int(entry.args[0].partition("x")[0]) for entry in found.entries if entry.args]
    assert [low <= n <= low + 3 for n, low in zip(sizes, (8, 4, 16, 8), strict=True)] == [True] * 4
    assert found.entries[0].kwargs == {"alpha": 1}
    assert found.notes == ("values were drawn with seed 0; each entry holds the drawn values",)


def test_a_class_in_the_manner_of_param() -> None:
    assert [entry.source.rpartition("|")[2] for entry in read("Squares", count=3).entries] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("iterator", "generator", "words"),
    [
        ("Failing", "Square", "the iterator failed: KeyError: 'shape'"),
        ("Halves", "Failing", "the data generator failed: KeyError: 'shape'"),
        ("Halves", "Nothing", "the data generator"),
        ("Shapeless", "Square", "the iterator failed"),
        ("Missing", "Square", "expected the name of an iterator"),
    ],
)
def test_a_broken_one_is_named(iterator: str, generator: str, words: str) -> None:
    found = read(iterator, generator)
    assert found.entries == ()
    assert words in found.problems[0].message


def test_an_endless_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.interop.param.importer.MOST_POINTS", 100)
    found = read("Endless")
    assert found.entries == ()
    assert "at most 100" in found.problems[0].message


def test_an_id_twice_is_a_problem_and_the_first_is_kept() -> None:
    found = read("Same")
    assert [entry.source.rpartition("|")[2] for entry in found.entries] == ["0", "1"]
    (problem,) = found.problems
    assert problem.where == 'c.json: $["torch.f"].config[0].input[0]'
    assert "is used twice" in problem.message


def test_an_id_with_a_separator_is_refused() -> None:
    (problem,) = read("Barred").problems
    assert "without | and #" in problem.message


def given(name: str) -> Imported:
    info = {"input_data_generator": "Odd", "config": [{"input": [{"gives": name}]}]}
    return PARAM.read(Path("c.json"), {"torch.f": info}, 0)


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("tensor", "got a Tensor for `args[0]`"),
        ("scalar", "got a Scalar for `args[1]`"),
        ("deep", "got a Tensor for `args[0][1].tuple[0]`"),
        ("kwarg", "got a Tensor for `kwargs.alpha`"),
        ("set", "got a set for `args[0]`"),
        ("nan", "got nan for `args[0]`"),
        ("inf", "got -inf for `kwargs.max`"),
        ("large", f"got {2**70} for `args[0]`"),
        ("key", "got a key of type int for `kwargs`"),
        ("none", "got nothing"),
        ("one", "got a tuple"),
        ("swapped", "got (dict, list)"),
        ("type", "got a type for `args[0]`"),
    ],
)
def test_data_that_is_not_plain_is_named(name: str, got: str) -> None:
    found = given(name)
    assert found.entries == ()
    (problem,) = found.problems
    assert problem.where == 'c.json: $["torch.f"].config[0].input[0]'
    assert "tensors written as 8x64 float32" in problem.message
    assert problem.message.endswith(got)


def test_a_list_in_itself_is_no_traceback() -> None:
    assert "nested too deeply" in given("endless").problems[0].message


def test_plain_data_is_imported_unchanged() -> None:
    (entry,) = given("written").entries
    assert entry.args == ["8x64 float32", {"dtype": "float16"}, {"float": "inf"}, None]
    assert entry.kwargs == {"dim": [1, 2]}
