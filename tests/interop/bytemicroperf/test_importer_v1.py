"""Files of ByteMicroPerf's first generation: shapes listed, or by dimension, or the sizes of products."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bytemicroperf_samples import V1_GROUPS, v1

from opmark.errors import InvalidFile
from opmark.interop.bytemicroperf.operators import to_bytemicroperf
from opmark.runner.workload_source import WorkloadSource, read_source


def read(tmp_path: Path, data: Any) -> WorkloadSource:
    path = tmp_path / f"{data['operator']}.json"
    path.write_text(json.dumps(data))
    return read_source(path)


def params(taken: WorkloadSource, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(case.params[name] for name in names) for case in taken.cases]


def products(**group: Any) -> dict[str, Any]:
    return {"operator": "gemm", "input_shape_groups": group, "dtype": ["float32"]}


def test_iterations_set_the_number_of_samples(tmp_path):
    taken = read(tmp_path, v1("exp", iterations=25))
    assert taken.asked == {"samples": 25}
    broken = read(tmp_path, v1("exp", iterations=0))
    assert broken.asked == {}
    assert "$.iterations" in str(broken.problems[0])
    assert len(broken.cases) == 2


@pytest.mark.parametrize("operator", sorted(V1_GROUPS))
def test_every_operator_of_one_device_is_imported(tmp_path, operator):
    taken = read(tmp_path, v1(operator))
    assert taken.cases
    assert taken.problems == ()


def test_shapes_are_listed(tmp_path):
    file = {"operator": "exp", "iterations": 100, "input_shape_list": [[4, 8, 16], [8]], "dtype": ["float32", "half"]}
    taken = read(tmp_path, file)
    assert params(taken, "dtype", "shape") == [
        ("float32", [4, 8, 16]), ("float32", [8]), ("float16", [4, 8, 16]), ("float16", [8])
    ]  # fmt: skip
    assert taken.cases[0].sources == ("exp.json#$.input_shape_list",)


def test_the_shapes_of_two_tensors_are_listed(tmp_path):
    taken = read(tmp_path, {"operator": "add", "input_shape_list": [[[4, 8], [4, 8]], [[2, 2], [2, 2]]]})
    assert params(taken, "shape", "dtype") == [([4, 8], "float32"), ([2, 2], "float32")]


def test_sizes_of_a_tensor_multiply_and_tensors_go_together(tmp_path):
    taken = read(tmp_path, v1("topk", dtype=["float32", "float16"]))
    assert params(taken, "dtype", "shape", "k") == [
        (dtype, [4, 64], k) for dtype in ("float32", "float16") for k in (1, 2, 8)
    ]


def test_inputs_without_a_group(tmp_path):
    taken = read(tmp_path, {"operator": "sort", "inputs": [[[2, 4], [8, 16]]], "dtype": "int32"})
    assert params(taken, "shape") == [([2, 8],), ([2, 16],), ([4, 8],), ([4, 16],)]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"M": [1, 2], "K": [3], "N": [4, 5]}, [(1, 3, 4), (1, 3, 5), (2, 3, 4), (2, 3, 5)]),
        ({"MN": [[1, 4], [2, 5]], "K": [3, 6]}, [(1, 3, 4), (1, 6, 4), (2, 3, 5), (2, 6, 5)]),
        ({"MK": [[1, 3]], "N": [4, 5]}, [(1, 3, 4), (1, 3, 5)]),
        ({"M": [1, 2], "KN": [[3, 4], [5, 6]]}, [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)]),
        ({"M/N/K": [[1, 4, 3], [2, 5, 6]]}, [(1, 3, 4), (2, 6, 5)]),
        ({"M/K/N": [[1, 3, 4]]}, [(1, 3, 4)]),
        ({"inputs": [[[1, 2], [3]], [[3], [4]]]}, [(1, 3, 4), (2, 3, 4)]),
        ({"M": 2, "K": 3, "N": 4}, [(2, 3, 4)]),
    ],
)
def test_the_sizes_of_products_in_every_way_of_writing(tmp_path, group, expected):
    assert params(read(tmp_path, products(**group)), "M", "K", "N") == expected
    assert params(read(tmp_path, {"operator": "gemm", **group}), "M", "K", "N") == expected


def test_several_groups(tmp_path):
    file = {
        "operator": "gemv",
        "input_shape_groups": [{"M": [1], "K": [2, 4], "N": [8]}, {"M": [1], "K": [8], "N": [2]}],
    }
    taken = read(tmp_path, file)
    assert params(taken, "K", "M") == [(2, 8), (4, 8), (8, 2)]
    assert taken.cases[2].sources == ("gemv.json#$.input_shape_groups[1]",)


def test_groups_of_products_have_multiples_of_a_batch(tmp_path):
    taken = read(tmp_path, v1("group_gemm"))
    assert params(taken, "M", "K", "N") == [([1, 2, 3], 16, 32), ([4, 8, 12], 16, 32)]


def test_products_in_int8_have_scales(tmp_path):
    taken = read(tmp_path, v1("gemm", dtype=["int8"]))
    assert {case.op for case in taken.cases} == {"quant_matmul"}
    assert params(taken, "num_tokens", "hidden_size", "new_hidden_size")[0] == (2, 16, 32)
    assert any("quant_matmul" in note for note in taken.notes)


@pytest.mark.parametrize(("dtype", "to"), [("float32", "bfloat16"), ("half", "float32"), ("int8", "int32")])
def test_a_cast_has_the_usual_target_of_bytemicroperf(tmp_path, dtype, to):
    assert {case.params["to"] for case in read(tmp_path, v1("cast", dtype=dtype)).cases} == {to}


def test_tables_and_the_rows_written_into_them(tmp_path):
    taken = read(tmp_path, {"operator": "index_add", "input_shape_list": [[[16, 8], [4, 8]]]})
    assert [(case.op, case.params["shape"], case.params["indices"]) for case in taken.cases] == [
        ("index_add_inplace", [16, 8], 4)
    ]
    picked = read(tmp_path, {"operator": "gather", "input_shape_list": [[[64, 8], [16, 8]], [4, 8]]})
    assert [(case.op, case.params["shape"], case.params["indices"]) for case in picked.cases] == [
        ("gather_rows", [64, 8], 16), ("gather_rows", [4, 8], 4)
    ]  # fmt: skip
    assert params(read(tmp_path, v1("hash_table")), "entries", "dim", "batch", "lookups") == [
        (32, 16, 4, 5), (64, 16, 4, 5)
    ]  # fmt: skip


def test_unique_counts_and_layernorm_has_no_bias(tmp_path):
    assert params(read(tmp_path, v1("unique")), "counts", "inverse") == [(True, False)] * 2
    assert params(read(tmp_path, v1("layernorm")), "bias") == [(False,)] * 2
    path = tmp_path / "layer_norm.json"
    path.write_text(
        json.dumps({"cases": [{"arg_type": "default", "dtype": "float32", "batch_size": 2, "dim_size": 8}]})
    )
    assert "bias" not in read_source(path).cases[0].params


def test_a_broadcast_is_from_rank_0_as_here(tmp_path):
    """Only later generations broadcast from every rank in turn."""
    file = {"operator": "broadcast", "input_shape_list": [[4, 8]], "group": [2]}
    assert read(tmp_path, file).notes == ()


def test_a_key_of_a_group_that_means_nothing_is_said(tmp_path):
    taken = read(tmp_path, {"operator": "gemm", "input_shape_groups": [{"M": 1, "K": 2, "N": 3, "L": 4, "__why": 1}]})
    assert taken.notes == ("gemm.json: $.input_shape_groups[0]: `L` is not known and is ignored",)


def test_processes_multiply_where_several_take_part(tmp_path):
    file = {"operator": "allreduce", "input_shape_groups": {"inputs": [[[1, 2], [8]]]}, "group": [2, 4, 8]}
    taken = read(tmp_path, file)
    assert params(taken, "ranks", "size") == [(ranks, size) for ranks in (2, 4, 8) for size in (32, 64)]


def test_the_group_of_an_operator_of_one_device_is_ignored_with_a_note(tmp_path):
    taken = read(tmp_path, v1("exp", group=[1, 2], extra=3))
    assert len(taken.cases) == 2
    assert any("`group`" in note for note in taken.notes)
    assert any("`extra`" in note for note in taken.notes)


@pytest.mark.parametrize(("key", "meant"), [("dtpe", "dtype"), ("iteratons", "iterations")])
def test_a_mistyped_key_is_refused(tmp_path, key, meant):
    good = v1("exp")
    with pytest.raises(InvalidFile, match=f"{key}.*(\n.*)*did you mean `{meant}`"):
        read(tmp_path, {key if name == meant else name: value for name, value in good.items()})
    assert len(read(tmp_path, {**good, "__dtyp": 1}).cases) == 2


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"inputs": 3.5}, "expected a list"),
        ({"inputs": [3]}, "for each dimension"),
        ({"inputs": [[[1, 2], []]]}, "no case"),
        ({"inputs": [[["a"], [1]]]}, "whole number"),
        ({"inputs": [[list(range(1, 2001)), list(range(1, 2001))]]}, "4000000 points"),
        ({"M": list(range(1, 2001)), "K": list(range(1, 2001)), "N": 1}, "4000000 points"),
        ({"inputs": [[[1], [2]], [[3], [4]]]}, "do not fit"),
        ({"inputs": [[[1], [2]]]}, "dimensions"),
        ({"M": [1], "KN": [[1, 2, 3]]}, "expected [K, N]"),
        ({"M": [1], "K": [2]}, "no case"),
        ({}, "no case"),
        (7, "expected an object"),
    ],
)
def test_a_broken_group_is_named_and_the_others_are_imported(tmp_path, group, expected):
    taken = read(tmp_path, {"operator": "gemm", "input_shape_groups": [group, {"M": 1, "K": 2, "N": 3}]})
    assert params(taken, "M", "K", "N") == [(1, 2, 3)]
    assert len(taken.problems) == 1
    assert "gemm.json: $.input_shape_groups[0]" in str(taken.problems[0])
    assert expected in str(taken.problems[0])


def test_an_element_type_has_a_place(tmp_path):
    taken = read(tmp_path, v1("batch_gemm", dtype=["float32", "int16"]))
    assert len(taken.cases) == 2
    assert taken.problems[0].where.endswith("batch_gemm.json: $.dtype[1]")
    assert "(2 points)" in taken.problems[0].message


@pytest.mark.parametrize(("task", "op"), [("batch_gemm", "quant_batched_matmul"), ("group_gemm", "quant_grouped_gemm")])
@pytest.mark.parametrize("dtype", ["int8", "float8", "float8_e5m2"])
def test_several_products_of_8_bits_have_scales_and_keep_their_name(tmp_path, task, op, dtype):
    taken = read(tmp_path, v1(task, dtype=[dtype]))
    assert not taken.problems
    assert {case.op for case in taken.cases} == {op}
    assert any(f"{task} of 8-bit numbers is {op} here" in note for note in taken.notes)
    assert {to_bytemicroperf(case).op for case in taken.cases} == {task}


def test_float16_has_unique_elements(tmp_path):
    taken = read(tmp_path, v1("unique", dtype=["float16"]))
    assert not taken.problems
    assert {case.params["dtype"] for case in taken.cases} == {"float16"}
