"""PyTorch's operator_benchmark axes as cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.interop.operator_benchmark import OPERATOR_BENCHMARK, dtype
from opmark.runner.workload_source import read_source
from opmark.schema import Imported

PATH = Path("mine.yaml")
ARGS = ["{M}x{N} {dtype}", "{M}x{N} {dtype}"]


def read(data: Any, seed: int = 0) -> Imported:
    assert OPERATOR_BENCHMARK.recognises(PATH, data)
    return OPERATOR_BENCHMARK.read(PATH, data, seed)


def test_a_list_of_shapes_times_element_types() -> None:
    more = {"device": ["cpu", "cuda"], "dtype": ["torch.float", "torch.half"]}
    config = {"attr_names": ["M", "N"], "attrs": [[1, 2], [8, 16]], "cross_product_configs": more, "tags": ["short"]}
    found = read({"op": "torch.add", "args": ARGS, "config_list": config})
    assert [(e.args, e.source) for e in found.entries] == [
        (["1x2 float32"] * 2, "mine.yaml#add_M1_N2_dtypefloat32_cpu"),
        (["1x2 float16"] * 2, "mine.yaml#add_M1_N2_dtypefloat16_cpu"),
        (["8x16 float32"] * 2, "mine.yaml#add_M8_N16_dtypefloat32_cpu"),
        (["8x16 float16"] * 2, "mine.yaml#add_M8_N16_dtypefloat16_cpu"),
    ]
    assert all(e.tags == ["short"] and e.op == "torch.add" and e.params == {} for e in found.entries)
    assert found.notes == ("device cuda: the backend decides about the device (--backend torch-cuda)",)


def test_a_product_of_axes_of_a_catalogue_operator() -> None:
    found = read(
        {
            "op": "matmul",
            "gradient": True,
            "cross_product_configs": {"M": [8, 16], "N": [4], "K": [2, 3], "tags": "long"},
        }
    )
    assert [e.params for e in found.entries] == [
        {"M": 8, "N": 4, "K": 2}, {"M": 8, "N": 4, "K": 3}, {"M": 16, "N": 4, "K": 2}, {"M": 16, "N": 4, "K": 3},
    ]  # fmt: skip
    assert all(e.phases == ["forward", "backward"] and e.tags == ["long"] for e in found.entries)


def test_parameters_made_of_axes() -> None:
    found = read({"op": "add", "params": {"shape": ["{M}", "{N}"]}, "cross_product_configs": {"M": [8], "N": [4]}})
    assert found.entries[0].params == {"shape": [8, 4]}


def test_a_list_of_operators_and_inputs_by_name() -> None:
    listed = {"attr_names": ["op_name", "op_func"], "attrs": [["abs", "torch.abs"], ["acos", "torch.acos"]]}
    config = {"attr_names": ["M"], "attrs": [[3]], "tags": ["short"]}
    found = read({"op_list": listed, "inputs": {"input": "{M} float32"}, "config_list": config})
    assert [(e.op, e.args, e.source) for e in found.entries] == [
        ("torch.abs", ["3 float32"], "mine.yaml#abs_M3"),
        ("torch.acos", ["3 float32"], "mine.yaml#acos_M3"),
    ]


def test_several_configs_and_several_blocks() -> None:
    crossed = [{"M": [1], "N": [1], "K": [1]}, {"M": [2], "N": [2], "K": [2], "tags": ["b"]}]
    found = read([{"op": "matmul", "cross_product_configs": crossed}, {"op": "exp", "config_list": {
        "attr_names": ["shape"], "attrs": [[[4, 4]]]}}])  # fmt: skip
    assert [(e.op, e.tags) for e in found.entries] == [("matmul", []), ("matmul", ["b"]), ("exp", [])]
    assert found.entries[2].params == {"shape": [4, 4]}


@given(st.integers(0, 5), st.integers(1, 30))
def test_what_is_drawn_depends_on_the_seed_alone_and_comes_from_the_axes(seed: int, count: int) -> None:
    config = {"M": [1, 2, 3], "N": [4, 5], "K": [7], "probs": {"M": [0.7, 0.3, 0]}, "total_samples": count}
    block = {"op": "matmul", "random_sample_configs": config}
    found = [e.params for e in read(block, seed).entries]
    assert found == [e.params for e in read(block, seed).entries]
    assert 1 <= len(found) <= min(count, 4)
    assert {p["M"] for p in found} <= {1, 2}
    assert len({str(p) for p in found}) == len(found)


def test_seeds_draw_differently() -> None:
    config = {"M": list(range(1, 100)), "N": [4], "K": [7], "total_samples": 3}
    drawn = [
        str([e.params for e in read({"op": "matmul", "random_sample_configs": config}, s).entries]) for s in (0, 1)
    ]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"cross_product_configs": {"M": [1]}}, "expected `op`"),
        ({"op": [], "cross_product_configs": {"M": [1]}}, "names no operator"),
        ({"op": "torch.add", "cross_product_configs": {"M": [1]}}, "is a callable and needs arguments"),
        ({"op": "torch.add", "args": ["3 float32"], "cross_product_configs": {"M": [1]}}, "axis `M` is used in no"),
        ({"op": "matmul", "cross_product_configs": {"M": [1], "Q": [1]}}, "has no parameter `Q`"),
        ({"op": "matmul", "cross_product_configs": {"M": []}}, "axis `M` is empty"),
        ({"op": "matmul", "cross_product_configs": []}, "an empty list makes no case"),
        ({"op": "matmul", "cross_product_configs": {"M": [1] * 5000, "N": [1] * 5000}}, "makes 25000000 points"),
        ({"op": "matmul", "config_list": {"attr_names": ["M", "N"], "attrs": [[1]]}}, "expected rows of 2 values"),
        ({"op": "matmul", "config_list": {"attrs": [[1]]}}, "`attr_names`: expected names of axes"),
        ({"op": "matmul", "config_list": {"attr_names": ["M"], "attrs": [[1]], "tag": "x"}}, "`tag` is not known"),
        (
            {"op": "matmul", "random_sample_configs": {"M": [1], "probs": {"M": [1, 2]}, "total_samples": 1}},
            "1 weights",
        ),
        ({"op": "matmul", "random_sample_configs": {"M": [1]}}, "`total_samples`: expected a whole number"),
        ({"op": "matmull", "cross_product_configs": {"M": [1]}}, "no operator named `matmull`"),
        ({"op": "matmul", "cross_product_configs": {"M": [0], "N": [1], "K": [1]}}, "parameter `M`: expected"),
        ({"op": 3, "cross_product_configs": {"M": [0]}}, "expected the name of an operator"),
        ({"op_list": [1], "cross_product_configs": {"M": [0]}}, "expected rows of [op_name, op_func]"),
        ({"op": "matmul", "cross_product_configs": 3}, "expected axes by name"),
        ({"op": "matmul", "cross_product_configs": {"M": [1], "N": [1], "K": [1]}, "arsg": []}, "`arsg` is not known"),
    ],
)
def test_what_is_wrong_is_named(block: dict[str, Any], message: str) -> None:
    found = read(block)
    assert any(message in problem.message for problem in found.problems)
    assert all(problem.where.startswith("mine.yaml: $") for problem in found.problems)


def test_one_broken_row_is_named_and_the_others_are_taken() -> None:
    config = {"attr_names": ["M", "N"], "attrs": [[1, 1], [64, 64], [3], 5], "cross_product_configs": {"K": [1, 2]}}
    found = read({"op": "matmul", "config_list": [config]})
    assert [(e.params["M"], e.params["K"]) for e in found.entries] == [(1, 1), (1, 2), (64, 1), (64, 2)]
    assert [(p.where, p.message) for p in found.problems] == [
        ("mine.yaml: $.config_list[0].attrs[2]", "expected rows of 2 values, got `[3]`"),
        ("mine.yaml: $.config_list[0].attrs[3]", "expected rows of 2 values, got `5`"),
    ]


@pytest.mark.parametrize(
    ("named", "where"),
    [
        ({"op_list": {"attrs": [["abs", "torch.abs"], ["bad"], ["acos", "torch.acos"]]}}, "$.op_list.attrs[1]"),
        ({"op_list": ["torch.abs", ["bad", 1], "torch.acos"]}, "$.op_list[1]"),
        ({"ops": ["torch.abs", 7, "torch.acos"]}, "$.ops[1]"),
        ({"op": ["torch.abs", None, "torch.acos"]}, "$.op[1]"),
    ],
)
def test_one_broken_operator_is_named_and_the_others_are_taken(named: dict[str, Any], where: str) -> None:
    config = {"attr_names": ["M"], "attrs": [[3]]}
    found = read({**named, "args": ["{M} float32"], "config_list": config})
    assert [e.op for e in found.entries] == ["torch.abs", "torch.acos"]
    (problem,) = found.problems
    assert problem.where == f"mine.yaml: {where}"
    assert problem.message.startswith("expected ")


def test_an_operator_without_gradient_is_forward_only() -> None:
    found = read({"op": "argmax", "gradient": True, "params": {"shape": ["{M}"]}, "cross_product_configs": {"M": [8]}})
    assert found.entries[0].phases == ["forward"]
    assert "no gradient" in found.notes[0]


@pytest.mark.parametrize(
    "data", [[], {}, None, 3, {"op": "add", "inputs": [{}]}, {"torch.add": {"config": []}}, {"operator": "add"}]
)
def test_other_files_are_not_taken(data: Any) -> None:
    assert not OPERATOR_BENCHMARK.recognises(PATH, data)


@pytest.mark.parametrize(
    ("name", "ours"), [("torch.float", "float32"), ("double", "float64"), ("torch.int8", "int8"), ("long", "int64")]
)
def test_element_types(name: str, ours: str) -> None:
    assert dtype(name) == ours


def test_a_file_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text("op: matmul\ncross_product_configs: {M: [8, 16], N: [8], K: [8], tags: [short]}\n")
    taken = read_source(file)
    assert (taken.foreign, len(taken.cases), taken.problems) == ("operator-benchmark", 2, ())
