"""Arguments of wrong types: every public function answers with a message, before it does anything."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.errors import InvalidParameter, UserError
from opmark.schema.options import fits

FUNCTIONS = {
    name: getattr(import_module(place.partition(":")[0]), place.partition(":")[2])
    for name, place in {**opmark._PUBLIC, **opmark._MOVED}.items()
}
FUNCTIONS = {name: found for name, found in FUNCTIONS.items() if inspect.isfunction(found)}
NEEDED: dict[str, dict[str, Any]] = {
    "compare": {"a": "x", "b": "y"},
    "judge": {"candidate": "x.py:f"},
    "push": {"url": "http://127.0.0.1:9"},
    "replay": {"trace": "x"},
    "schedule": {"program": "x"},
    "capture": {"path": "x"},
    "query": {"sql": "SELECT 1"},
    "export": {"format": "csv"},
    "export_workload": {"source": "x", "format": "param"},
    "create_env": {"name": "x"},
    "remove_env": {"name": "x"},
    "describe": {"op": "add"},
    "describe_run": {"run": "x", "text": "y"},
    "label": {"run": "x", "text": "y"},
    "list": {"kind": "ops"},
    "read_ranking": {"path": "x"},
    "read_workload": {"source": "x"},
    "to_arrow": {"what": []},
    "to_pandas": {"what": []},
}
NOT_CHECKED = {"to_arrow", "to_pandas"}
"""They take anything that has rows, and refuse the rest themselves."""

CALLS = [
    (name, parameter)
    for name, function in FUNCTIONS.items()
    for parameter in inspect.signature(function).parameters
    if name not in NOT_CHECKED
]


@pytest.mark.parametrize(("name", "parameter"), CALLS)
def test_an_argument_that_is_no_value_of_any_type_is_refused(name: str, parameter: str, isolated: Path) -> None:
    class Wrong:
        def __repr__(self) -> str:
            return "<wrong>"

    function = FUNCTIONS[name]
    given = {**NEEDED.get(name, {}), parameter: Wrong()}
    several = [
        one.name for one in inspect.signature(function).parameters.values() if one.kind is one.VAR_POSITIONAL
    ]  # fmt: skip
    positional = [given.pop(one) for one in several if one in given]
    if positional and "url" in given:
        positional.insert(0, given.pop("url"))
    with pytest.raises(UserError) as caught:
        function(*positional, **given)
    assert parameter in caught.value.message
    assert "<wrong>" in caught.value.message
    assert not (isolated / "data").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ops": None}, "ops: expected text or a list of text, got None"),
        ({"ops": 5}, "ops: expected text or a list of text, got 5"),
        ({"ops": ["add", 5]}, "ops: expected text or a list of text, got ['add', 5]"),
        ({"ops": "add", "effort": 5}, "effort: expected text, got 5"),
        ({"ops": "add", "timeout": "x"}, "timeout: expected a duration, got `x`"),
        ({"ops": "add", "seed": 10**30}, f"seed: expected a whole number from 0 to {2**63 - 1}, got {10**30}"),
        ({"ops": "add", "threads": None}, "threads: expected a whole number from 1 to 4096, got None"),
        ({"ops": "add", "params": [1]}, "params: expected a mapping, got [1]"),
        ({"ops": "add", "params": {5: 1}}, "the name of a parameter: expected text, got 5"),
        ({"ops": "add", "label": 5}, "label: expected text, got 5"),
        ({"ops": "add", "label": "x" * 1001}, "label: expected at most 1000 characters, got 1001"),
        ({"ops": "add", "db": 5}, "db: expected text or a path, got 5"),
        ({"ops": "add", "phase": 5}, "phase: expected text or a list of text, got 5"),
        ({"ops": "add", "on_record": 5}, "on_record: expected a function, got 5"),
        ({"ops": "add", "resume": "yes"}, "resume: expected True or False, got 'yes'"),
        ({"workload": 5}, "workload: expected text or a path or a Workload or a mapping, got 5"),
        ({"ops": "add", "label": "x" * 100, "db": ["y" * 100]}, "db: expected text or a path, got ['yyyy"),
    ],
)
def test_the_message_says_what_was_expected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        opmark.run(**{"backend": "null", **given})
    assert caught.value.message.startswith(message)


def test_what_is_missing_or_unknown_is_said_as_python_says_it() -> None:
    for function in FUNCTIONS.values():
        with pytest.raises(TypeError):
            function(no_such_argument=1)


@pytest.mark.parametrize(
    ("value", "kind", "does"),
    [
        (True, int, False), (1, float, True), (1.5, int, False), (None, str | None, True), (None, str, False),
        ("ab", list[str], False), ([1, "a"], Sequence[Any], True), ("ab", Sequence[Any], False),
        ({"a"}, "Row", False), (Path(), "Path | None", True), ([Path()], "Path | Sequence[Path]", True),
        (print, "Callable[[int], None] | None", True), (None, "Callable[[int], None] | None", True),
        (None, "Callable[[int], None]", False),
    ],
)  # fmt: skip
def test_what_a_type_means(value: Any, kind: Any, does: bool) -> None:
    assert fits(value, kind) is does


def test_a_wrong_limit_of_a_query_is_refused() -> None:
    from opmark.api.query import query

    with pytest.raises(InvalidParameter, match="limit: expected a whole number, got 'x'"):
        query("SELECT 1", limit="x")  # type: ignore[arg-type]


PATHS = {
    "run": {"ops": "add", "backend": "null"}, "show": {}, "rank": {}, "history": {}, "make_report": {}, "runs": {},
    "compare": {"a": "x", "b": "y"}, "query": {"sql": "SELECT 1"}, "fit": {}, "export": {"format": "csv"},
    "label": {"run": "x", "text": "y"}, "prune": {"label": "x"},
}  # fmt: skip


@pytest.mark.parametrize("path", ["x" * 300, "x/" * 3000, "a\0b"], ids=["a long name", "a long path", "NUL"])
@pytest.mark.parametrize("name", PATHS)
def test_a_store_that_cannot_be_reached_is_said_to_be(name: str, path: str) -> None:
    with pytest.raises(UserError, match="cannot be reached"):
        FUNCTIONS[name](**PATHS[name], db=path)


@pytest.mark.parametrize("path", ["x" * 300, "x/" * 3000, "a\0b"], ids=["a long name", "a long path", "NUL"])
def test_a_workload_that_cannot_be_reached_is_said_to_be(path: str) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        opmark.plan(workload=path, backend="null")
