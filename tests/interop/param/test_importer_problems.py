"""Problems of a PARAM file: each is reported with its place, and the rest is imported."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.interop.param.importer import PARAM
from opmark.runner.workload_source import read_source
from opmark.schema import Imported, ImportProblem

TENSOR = {"type": "tensor", "dtype": "float", "shape": [4, 4]}


def ranged(value: Any, kind: str = "int") -> dict[str, Any]:
    return {"type": kind, "value": value, "__range__": ["value"]}


def operator(*args: Any, **more: Any) -> dict[str, Any]:
    """Return two configs; the first may be broken, the second is right."""
    right = {"input": [{"args": [TENSOR]}]}
    return {"input_data_generator": "PyTorch:DefaultDataGenerator", "input_iterator": "RangeConfigIterator",
            "config": [{"input": [{"args": list(args)}]}, right], **more}  # fmt: skip


def read(data: Any) -> Imported:
    return PARAM.read(Path("c.json"), data, 0)


def problem_of(data: Any) -> ImportProblem:
    found = read(data)
    (problem,) = found.problems
    return problem


@pytest.mark.parametrize(
    ("arg", "path", "words"),
    [
        (5, "", "expected an argument"),
        ({}, ".type", "got nothing"),
        ({"type": "tensr", "dtype": "float", "shape": []}, ".type", "`'tensr'`"),
        ({"type": ["tensor"]}, ".type", "expected the type"),
        ({"type": "tensor", "shape": [1]}, ".dtype", "got nothing"),
        ({"type": "tensor", "dtype": "flot", "shape": [1]}, ".dtype", "`'flot'`"),
        ({"type": "tensor", "dtype": {}, "shape": [1]}, ".dtype", "expected an element type"),
        ({"type": "tensor", "dtype": "float"}, ".shape", "got nothing"),
        ({"type": "tensor", "dtype": "float", "shape": "4x4"}, ".shape", "list of sizes"),
        ({"type": "tensor", "dtype": "float", "shape": [-1]}, ".shape", "list of sizes"),
        ({"type": "tensor", "dtype": "float", "shape": [2**70]}, ".shape", "list of sizes"),
        ({"type": "tensor", "dtype": "float", "shape": [[4, 8]]}, ".shape", "list of sizes"),
        ({"type": "tensor", "dtype": "float", "shape": [1], "requires_grad": 1}, ".requires_grad", "true or false"),
        ({"type": "tensor", "dtype": "float", "shape": [1], "low": 2}, ".low", "`low` below `high`"),
        ({"type": "tensor", "dtype": "float", "shape": [1], "low": 2, "high": 2}, ".low", "`low` below `high`"),
        ({"type": "int"}, "", "got neither"),
        ({"type": "int", "value": "1"}, ".value", "a whole number"),
        ({"type": "int", "value": True}, ".value", "a whole number"),
        ({"type": "int", "value": 2**63}, ".value", "a whole number"),
        ({"type": "int", "value_range": [1.5, 2]}, ".value_range", "[smallest, largest]"),
        ({"type": "int", "value_range": [3, 2]}, ".value_range", "[smallest, largest]"),
        ({"type": "float", "value": float("nan")}, ".value", "a finite number"),
        ({"type": "float", "value_range": [0, float("inf")]}, ".value_range", "[smallest, largest]"),
        ({"type": "float", "value_range": [-1.7e308, 1.7e308]}, ".value_range", "[smallest, largest]"),
        ({"type": "bool", "value": 1}, ".value", "true or false"),
        ({"type": "str", "value": 1}, ".value", "a text"),
        ({"type": "tuple", "value": "ab"}, ".value", "a list of arguments"),
        ({"type": "tuple", "value": [TENSOR, 3]}, ".value[1]", "expected an argument"),
        (ranged(3), ".value", "[first, last, step]"),
        (ranged([1, 2, 0]), ".value", "a step of at least 1"),
        (ranged([5, 1]), ".value", "first <= last"),
        (ranged([0, 1], "float"), ".value", "[first, last, step]"),
        (ranged([0, 1, 1e-300], "float"), ".value", "more than"),
        (ranged("ab", "str"), ".value", "a list of values"),
        (ranged(1, "none"), ".value", "has no range of `value`"),
        ({"type": "int", "value": 1, "__range__": ["valeu"]}, ".__range__", "`valeu`"),
        ({"type": "int", "value": 1, "__range__": "value"}, ".__range__", "expected names"),
        ({**TENSOR, "shape": [4, [1, 2, 3, 4]], "__range__": ["shape"]}, ".shape[1]", "[first, last, step]"),
        ({**TENSOR, "__copy__": {}}, ".__copy__", "expected a list"),
        ({**TENSOR, "__copy__": [3]}, ".__copy__[0]", "expected an attribute"),
        ({**TENSOR, "__copy__": [{"shape": [0, 1]}]}, ".__copy__[0].shape", "[element, [argument, element]]"),
        ({**TENSOR, "__copy__": [{"shape": [0, [9, 0]]}]}, ".__copy__[0].shape", "no argument `9`"),
        ({**TENSOR, "__copy__": [{"shape": [7, [0, 0]]}]}, ".__copy__[0].shape", "no element `7`"),
        ({**TENSOR, "__copy__": [{"dtype": [0, [0, 0]]}]}, ".__copy__[0].dtype", "of a shape"),
    ],
)  # fmt: skip
def test_an_invalid_argument(arg: Any, path: str, words: str) -> None:
    found = read({"torch.f": operator(arg)})
    (problem,) = found.problems
    assert problem.where == f'c.json: $["torch.f"].config[0].input[0].args[0]{path}'
    assert words in problem.message
    assert [entry.source for entry in found.entries] == ["c.json#torch.f|1|0|0_0"]


@pytest.mark.parametrize(
    ("info", "path", "words"),
    [
        (3, "", "expected an operator"),
        ({"input_data_generator": "x"}, ".config", "a list of configs"),
        ({"config": []}, ".config", "at least one"),
        ({"config": {}}, ".config", "a list of configs"),
        ({"config": ["x"]}, ".config[0]", "expected a config"),
        ({"config": [{}]}, ".config[0].input", "a list of specs"),
        ({"config": [{"input": {}}]}, ".config[0].input", "a list of specs"),
        ({"config": [{"input": []}]}, ".config[0].input", "there is no case"),
        ({"config": [{"input": [3]}]}, ".config[0].input[0]", "expected a spec"),
        ({"config": [{"input": [{}]}]}, ".config[0].input[0]", "got neither"),
        ({"config": [{"input": [{"args": "x"}]}]}, ".config[0].input[0].args", "a list of arguments"),
        ({"config": [{"input": [{"kwargs": []}]}]}, ".config[0].input[0].kwargs", "by name"),
        ({"config": [{"build": "x", "input": [{"args": []}]}]}, ".config[0].build", "a list of specs"),
        ({"config": [{"build": [3], "input": [{"args": []}]}]}, ".config[0].build[0]", "expected a spec"),
        (operator(TENSOR, input_iterator="RangeConfigIterato"), ".input_iterator", "the name of an iterator"),
        (operator(TENSOR, build_iterator=3), ".build_iterator", "the name of an iterator"),
        (operator(TENSOR, input_data_generator="no"), ".input_data_generator", "the name of a data generator"),
        (operator(TENSOR, build_data_generator=[]), ".build_data_generator", "the name of a data generator"),
    ],
)  # fmt: skip
def test_an_invalid_config(info: Any, path: str, words: str) -> None:
    found = read({"torch.f": info, "torch.g": operator(TENSOR)})
    (problem,) = found.problems
    assert problem.where == f'c.json: $["torch.f"]{path}'
    assert words in problem.message
    assert [entry.op for entry in found.entries] == ["torch.g", "torch.g"]


def test_a_mistyped_name_is_guessed() -> None:
    assert "`RangeConfigIterator`" in problem_of({"torch.f": operator(TENSOR, input_iterator="RangeConfigIter")}).hint
    assert "`tensor`" in problem_of({"torch.f": operator({"type": "tensro"})}).hint
    assert "`float16`" in problem_of({"torch.f": operator({**TENSOR, "dtype": "flaot16"})}).hint


@pytest.mark.parametrize("name", ["ad", "", "torch.", "paddle.add", "a b", "*", "gem?", "aten::"])
def test_an_unknown_operator_is_no_silence(name: str) -> None:
    found = read({name: operator(TENSOR), "torch.g": operator(TENSOR)})
    assert [problem.where for problem in found.problems] == [f"c.json: $[{json.dumps(name)}]"]
    assert len(found.entries) == 2


def test_one_bad_spec_of_three_costs_one() -> None:
    specs = [{"args": [TENSOR]}, {"args": [{"type": "x"}]}, {"args": [TENSOR]}]
    found = read({"torch.f": {"config": [{"input": specs}]}})
    assert [entry.source for entry in found.entries] == ["c.json#torch.f|0|0|0", "c.json#torch.f|0|0|2"]
    assert found.problems[0].where == 'c.json: $["torch.f"].config[0].input[1].args[0].type'


def test_a_bad_input_is_named_once_for_all_builds() -> None:
    builds = [{"args": [{"type": "int", "value": n}]} for n in range(5)]
    found = read({"torch.nn.F": {"config": [{"build": builds, "input": [{"args": [3]}, {"args": [TENSOR]}]}]}})
    assert len(found.entries) == 5
    assert len(found.problems) == 1


def test_a_range_without_its_iterator_is_no_other_shape() -> None:
    info = operator({**TENSOR, "shape": [[4, 8, 4]], "__range__": ["shape"]})
    del info["input_iterator"]
    problem = problem_of({"torch.f": info})
    assert problem.where.endswith(".shape")
    assert "RangeConfigIterator" in problem.hint


def test_a_million_points_are_the_most() -> None:
    wide = ranged([1, 10**4])
    found = read({"torch.f": operator(wide, wide), "torch.g": operator(TENSOR)})
    assert "expands to 100000000 points" in found.problems[0].message
    assert found.problems[0].where == 'c.json: $["torch.f"].config[0].input[0]'
    assert len(found.entries) == 3


def test_builds_times_inputs_are_counted_before_they_are_made() -> None:
    spec = {"args": [ranged([1, 2000])]}
    info = operator(TENSOR, build_iterator="RangeConfigIterator")
    info["config"].insert(0, {"build": [spec], "input": [spec]})
    found = read({"torch.nn.F": info})
    assert "points" in found.problems[0].message
    assert found.problems[0].where == 'c.json: $["torch.nn.F"].config[0]'
    assert len(found.entries) == 2


def test_nesting_without_end_is_no_traceback() -> None:
    deep: Any = TENSOR
    for _ in range(5000):
        deep = {"type": "tuple", "value": [deep]}
    found = read({"torch.f": operator(deep)})
    assert len(found.problems) == len(found.entries) == 1
    assert "nested too deeply" in found.problems[0].message
    deep = 1
    for _ in range(5000):
        deep = {"type": "tuple", "value": [deep], "__range__": ["value"]}
    assert len(read({"torch.f": operator(deep)}).problems) == 1
    for _ in range(3):
        deep = [deep]
    assert len(read({"torch.f": deep, "torch.g": {"config": deep}, "torch.h": {"config": [deep]}}).problems) == 3


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"config_build_id": 5}, "$.config_build_id"),
        ({"config_build_id": "5"}, "$.config_build_id"),
        ({"config_build_id": "1|2|3"}, "$.config_build_id"),
        ({"run_options": 5}, "$.run_options"),
        ({"run_options": {"warmup": -1}}, "$.run_options.warmup"),
        ({"run_options": {"iteration": "7"}}, "$.run_options.iteration"),
        ({"run_options": {"pass-type": "sideways"}}, "$.run_options.pass-type"),
        ({"run_options": {"device": 5}}, "$.run_options.device"),
        ({"run_options": {"op_exec_mode": []}}, "$.run_options.op_exec_mode"),
        ({"run_options": {"cuda_graph": 1}}, "$.run_options.cuda_graph"),
        ({"op_info": 5}, "$.op_info"),
        ({"op_name": 5}, "$.op_info"),
        ({"op_name": []}, "$.op_info"),
        ({"op_info": operator(TENSOR)}, "$.op_info.config"),
        (
            {"op_name": "torch.nn.F", "op_info": {"config": [{"build": [{"args": []}] * 2, "input": [{"args": []}]}]}},
            "$.op_info.config[0].build",
        ),
    ],
)
def test_an_invalid_batch(changes: dict[str, Any], place: str) -> None:
    info = operator(TENSOR)
    data = {"op_name": "torch.f", "op_info": {**info, "config": info["config"][:1]}, **changes}
    assert problem_of(data).where == f"c.json: {place}"


def test_a_wrong_run_option_says_that_the_case_is_read_without_it() -> None:
    info = operator(TENSOR)
    data = {"op_name": "torch.f", "op_info": {**info, "config": info["config"][:1]}, "run_options": {"warmup": -1}}
    said = "expected a whole number of at least 0, got `-1`; the option is ignored, as if the file did not set it"
    assert problem_of(data).message == said


def test_several_values_of_a_parameter_are_no_one_case() -> None:
    def sizes(*shape: Any) -> dict[str, Any]:
        return {"kwargs": {"shape": {"type": "list", "value": list(shape)}}}

    four: dict[str, Any] = {"type": "int", "value": 4}
    found = read({"exp": {"config": [{"input": [sizes(four), sizes({"type": "list", "value": [four]})]}]}})
    assert [entry.params for entry in found.entries] == [{"shape": [4]}]
    assert found.problems[0].where == 'c.json: $["exp"].config[0].input[1].kwargs.shape'
    assert "expected one value" in found.problems[0].message


def test_problems_of_the_file_and_of_the_cases_stand_together(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"matmul": {"config": [{"input": [{"kwargs": {"Q": {"type": "int", "value": 1}}}]}]},
                                "torch.g": operator(TENSOR), "nothing": {}}))  # fmt: skip
    taken = read_source(path)
    assert [case.op for case in taken.cases] == ["torch.g", "torch.g"]
    assert sorted(problem.where for problem in taken.problems) == [
        f'{path}: $["nothing"].config', f"{path}: matmul|0|0|0",
    ]  # fmt: skip


WHOLE: dict[str, Any] = {
    "torch.f": operator(ranged([1, 3]), {**TENSOR, "__copy__": [{"shape": [0, [1, 1]]}]}),
    "torch.nn.G": {
        "config": [{"build": [{"args": []}], "input": [{"args": [TENSOR], "kwargs": {"a": {"type": "none"}}}]}]
    },
    "pytorch.model.resnet": {"config": [{"build": [], "input": [{"args": [TENSOR]}]}]},
}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["tensor", "value"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "value", "args"]), inner),
    max_leaves=4,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, item in items for found in places(item, (*path, key)))]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(places(WHOLE)[1:]), ANYTHING)
def test_any_value_anywhere_leaves_every_config_reported(place: tuple[Any, ...], junk: Any) -> None:
    data = deepcopy(WHOLE)
    node = data
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = junk
    found = read(data)
    told = " ".join([*(entry.source for entry in found.entries), *(problem.where for problem in found.problems)])
    for name, info in WHOLE.items():
        for i in range(len(info["config"])):
            places_of = (f"{name}|{i}|", f'["{name}"].config[{i}]')
            whole = f'["{name}"] ' in f"{told} " or f'["{name}"].' in told
            assert any(part in told for part in places_of) or whole, (name, i)
