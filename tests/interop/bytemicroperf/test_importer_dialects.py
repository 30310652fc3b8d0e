"""Older dialects of ByteMicroPerf's files: keys and operators that later versions dropped or renamed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from opmark.interop.bytemicroperf.operators import to_bytemicroperf
from opmark.plugin.registry import operator
from opmark.runner.workload_source import WorkloadSource, read_source

MLA = {"args_type": "llm", "dtype": ["bfloat16"], "phase": "decode", "b": [2, 4], "s_q": [1, 2], "s": [64], "h_q": [8],
       "h_kv": [1], "d": [24], "dv": [16], "causal": [True], "varlen": [False]}  # fmt: skip
FP8 = {"arg_type": "default", "dtype": ["float8_e4m3fn"], "quant_group_size": [128]}


def read(tmp_path: Path, name: str, data: Any) -> WorkloadSource:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(data))
    return read_source(path)


def params(taken: WorkloadSource, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(case.params[name] for name in names) for case in taken.cases]


@pytest.mark.parametrize("task", ["reducemax", "reducemin", "reducesum", "softmax", "cast", "swiglu"])
def test_input_shape_group_lists_the_sizes_of_each_dimension(tmp_path, task):
    taken = read(tmp_path, task, {"operator": task, "iterations": 10, "input_shape_group": [[[4, 8], [16, 32]]]})
    assert taken.problems == ()
    assert params(taken, "shape") == [([4, 16],), ([4, 32],), ([8, 16],), ([8, 32],)]
    assert taken.cases[0].sources == (f"{task}.json#$.input_shape_group",)


def test_input_shape_group_pairs_the_shapes_of_two_tensors(tmp_path):
    group = [[[16], [8, 32]], [[4], [8, 32]]]
    taken = read(tmp_path, "indexadd", {"operator": "indexadd", "input_shape_group": group, "dtype": ["half"]})
    assert params(taken, "shape", "indices") == [([16, 8], 4), ([16, 32], 4)]


@pytest.mark.parametrize(
    ("task", "shapes", "expected"),
    [
        ("exp", [4, 1024], [[4, 1024]]),
        ("exp", [[4, 1024], [8]], [[4, 1024], [8]]),
        ("add", [[[4, 8], [4, 8]], [[2, 2], [2, 2]]], [[4, 8], [2, 2]]),
    ],
)
def test_input_shape_is_one_shape_or_a_list_of_them(tmp_path, task, shapes, expected):
    taken = read(tmp_path, task, {"operator": task, "input_shape": shapes, "dtype": "float32"})
    assert taken.problems == ()
    assert [case.params["shape"] for case in taken.cases] == expected


def test_rows_of_a_group_of_products_are_listed(tmp_path):
    groups = [{"group": [[4, 8], [2]], "KN": [[16, 32], [32, 16]]}]
    taken = read(tmp_path, "group_gemm", {"operator": "group_gemm", "input_shape_groups": groups})
    assert params(taken, "M", "K", "N") == [([4, 8], 16, 32), ([4, 8], 32, 16), ([2], 16, 32), ([2], 32, 16)]


def test_sizes_of_mnk_choices_are_those_that_bytemicroperf_draws(tmp_path):
    file = {"operator": "group_gemm", "iterations": 20, "MNK_choices": [8, 16, 32], "seed": 2024, "problems": [5]}
    taken = read(tmp_path, "group_gemm", {**file, "dtype": ["float32", "half"]})
    assert taken.problems == ()
    draw = Random(2024)
    drawn = [[draw.choice([8, 16, 32]) for _ in "MNK"] for _ in range(5)]
    assert {case.op for case in taken.cases} == {"grouped_gemm_mixed"}
    sizes = [[row[i] for row in drawn] for i in range(3)]
    assert params(taken, "M", "N", "K", "dtype") == [(*sizes, "float32"), (*sizes, "float16")]
    theirs = to_bytemicroperf(taken.cases[0])
    assert theirs is not None
    assert theirs.op == "group_gemm"
    again = {key: [value] if isinstance(value, list) else value for key, value in theirs.arguments.items()}
    assert read(tmp_path, "x", {"group_gemm": [again]}).cases[0].id == taken.cases[0].id


@pytest.mark.parametrize(
    ("change", "detail"),
    [({"MNK_choices": []}, "sizes to draw from"), ({"problems": [0]}, "at least 1"), ({"seed": "x"}, "a whole number")],
)
def test_broken_mnk_choices_are_named(tmp_path, change, detail):
    file = {"operator": "group_gemm", "MNK_choices": [8], "seed": 1, "problems": [2], **change}
    right = {"gemm_group": [1], "batch": [2], "KN": [[4, 4]]}
    taken = read(tmp_path, "group_gemm", {**file, "input_shape_groups": right})
    assert len(taken.cases) == 1
    assert [detail in str(problem) for problem in taken.problems] == [True]


def test_args_type_is_arg_type(tmp_path):
    point = {"args_type": "llm", "dtype": ["bfloat16"], "is_causal": [True], "q_head_num.kv_head_num": [[4, 2]],
             "head_dim": [32], "batch_size": [1], "q_seq_len.kv_seq_len": [[8, 8], [4, 16]]}  # fmt: skip
    taken = read(tmp_path, "flash_attention", {"cases": [point]})
    assert taken.problems == taken.notes == ()
    assert params(taken, "mode", "q_len", "cache_len") == [("prefill", 8, 0), ("prefill", 4, 12)]
    wrong = read(tmp_path, "flash_attention", {"cases": [point, {**point, "args_type": "lm"}]})
    assert "$.cases[1].args_type" in str(wrong.problems[0])


@pytest.mark.parametrize("change", [{"q_seq_len.kv_seq_len": [[8, 4]]}, {"cache_len": 1}])
def test_kv_seq_len_has_the_new_tokens_too(tmp_path, change):
    point = {"arg_type": "llm", "dtype": "bfloat16", "q_head_num": 4, "kv_head_num": 2, "head_dim": 32, "batch_size": 1}
    lengths = {"q_seq_len.kv_seq_len": [[8, 8]]}
    taken = read(tmp_path, "x", {"flash_attention": [{**point, **lengths}, {**point, **lengths, **change}]})
    assert len(taken.cases) == 1
    assert "cached and new tokens together, at least 8" in str(taken.problems[0])


def test_flash_mla_is_mla_decode(tmp_path):
    taken = read(tmp_path, "flash_mla", {"cases": [MLA]})
    assert taken.problems == taken.notes == ()
    assert {case.op for case in taken.cases} == {"mla_decode"}
    expected = [(b, s_q, 64 - s_q, 8, 16, 8, 64) for b in (2, 4) for s_q in (1, 2)]
    names = ("batch", "q_len", "cache_len", "heads", "kv_lora_rank", "rope_dim", "block_size")
    assert params(taken, *names) == expected
    theirs = to_bytemicroperf(taken.cases[1])
    assert theirs is not None
    assert theirs.op == "flash_mla"
    assert {key: MLA[key] if key == "phase" else [theirs.arguments[key]] for key in MLA if key != "args_type"} == {
        **{key: value for key, value in MLA.items() if key != "args_type"}, "b": [2], "s_q": [2]
    }  # fmt: skip


def test_flash_mla_has_the_work_and_the_scale_of_flashmla(tmp_path):
    """FlashMLA: 2 s_q s h_q (d + dv) operations, less what is masked; its scale is d to the power of -1/2."""
    case = read(tmp_path, "flash_mla", {"cases": [{**MLA, "b": 3, "s_q": 1}]}).cases[0]
    assert operator("mla_decode").cost(case.params).flops == 3 * 2 * 64 * 8 * (24 + 16)
    assert case.params["nope_dim"] + case.params["rope_dim"] == 24


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"h_kv": 2}, "h_kv"),
        ({"s": 1}, "s"),
        ({"d": 16}, "d"),
        ({"varlen": True}, "varlen"),
        ({"causal": False}, "causal"),
    ],
)
def test_what_flash_mla_has_and_opmark_lacks_is_refused(tmp_path, change, argument):
    taken = read(tmp_path, "flash_mla", {"cases": [MLA, {**MLA, "s_q": 2, **change}]})
    assert len(taken.cases) == 4
    assert f"argument `{argument}`" in str(taken.problems[0])


def test_gemm_fp8_is_a_product_with_scales(tmp_path):
    taken = read(tmp_path, "gemm_fp8", {"cases": [{**FP8, "M": [64, 128], "K.N": [[256, 512]]}]})
    assert taken.problems == ()
    assert {case.op for case in taken.cases} == {"quant_matmul"}
    names = ("num_tokens", "hidden_size", "new_hidden_size", "dtype", "out_dtype")
    assert params(taken, *names) == [(m, 256, 512, "float8_e4m3fn", "bfloat16") for m in (64, 128)]
    assert any("one per quant_group_size elements" in note for note in taken.notes)
    theirs = to_bytemicroperf(taken.cases[0])
    assert theirs is not None
    assert (theirs.op, theirs.arguments["M"], theirs.arguments["dtype"]) == ("gemm_fp8", 64, "float8")


def test_group_gemm_fp8_is_a_product_for_each_expert(tmp_path):
    point = {**FP8, "mode": ["contiguous"], "num_groups.M": [[4, 32]], "K.N": [[256, 512]]}
    taken = read(tmp_path, "group_gemm_fp8", {"cases": [point, {**point, "mode": "masked", "num_groups.M": [[1, 8]]}]})
    assert taken.problems == ()
    assert [operator(case.op).cost(case.params).flops for case in taken.cases] == [
        2 * rows * 256 * 512 for rows in (4 * 32, 8)
    ]
    assert to_bytemicroperf(taken.cases[0]).op == "group_gemm_fp8"  # type: ignore[union-attr]
