"""Files of ByteMicroPerf's second and third generation, and its CSV: products, rows, places of problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bytemicroperf_samples import LISTS, V3_COMPUTE

from opmark.catalogue.workload_file import compact
from opmark.errors import InvalidFile
from opmark.interop.bytemicroperf.importer import BYTEMICROPERF
from opmark.interop.bytemicroperf.operators import to_bytemicroperf
from opmark.runner.workload_source import WorkloadSource, read_source


def read(tmp_path: Path, name: str, data: Any) -> WorkloadSource:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_source(path)


def test_an_operator_of_both_takes_parameters_that_only_opmark_has(tmp_path: Path) -> None:
    point = {"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_size": 8, "approximate": ["none", "tanh"]}
    taken = read(tmp_path, "w.json", {"gelu": [point]})
    assert params(taken, "approximate") == [("none",), ("tanh",)]
    assert not taken.notes


def params(taken: WorkloadSource, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(case.params[name] for name in names) for case in taken.cases]


GEMM = {"arg_type": "default", "dtype": ["float32", "float16"], "K.N": [[32, 64], [64, 16]], "M": [1, 2]}


def test_a_product_goes_in_the_order_of_the_file_and_dotted_keys_go_together(tmp_path):
    taken = read(tmp_path, "gemm.json", {"cases": [GEMM]})
    assert {case.op for case in taken.cases} == {"matmul"}
    assert params(taken, "dtype", "K", "N", "M") == [
        (dtype, k, n, m) for dtype in ("float32", "float16") for k, n in ((32, 64), (64, 16)) for m in (1, 2)
    ]
    assert taken.problems == ()


def test_points_of_an_object_share_a_source(tmp_path):
    taken = read(tmp_path, "gemm.json", {"cases": [GEMM, {**GEMM, "M": 3}]})
    assert [case.sources for case in taken.cases] == [("gemm.json#$.cases[0]",)] * 8 + [("gemm.json#$.cases[1]",)] * 4
    several = read(tmp_path, "any_name.json", {"gemm": [GEMM], "exp": [{"arg_type": "default", "dtype": "float32",
                                                                        "batch_size": 1, "dim_size": 8}]})  # fmt: skip
    assert dict.fromkeys(case.sources for case in several.cases) == {
        ("any_name.json#gemm[0]",): None, ("any_name.json#exp[0]",): None
    }  # fmt: skip


@pytest.mark.parametrize("name", ["gemm.json", "basic_tensor_gemm_ops_gemm.json", "x_gemm.json"])
def test_a_file_is_named_after_its_operator(tmp_path, name):
    assert len(read(tmp_path, name, {"cases": [GEMM]}).cases) == 8


@pytest.mark.parametrize(
    ("stem", "op"),
    [("mocked_model_moe_gating_gemm", "moe_gating_gemm"), ("batch_gemm", "batched_matmul"), ("rms_norm", "rms_norm")],
)
def test_the_longest_name_at_the_end_counts(tmp_path, stem, op):
    point = {"dtype": "float32", "num_tokens": 8, "hidden_size": 8, "num_experts": 4, "batch_size": 2, "dim_size": 8}
    sizes = {"M": 2, "K": 4, "N": 8}
    taken = read(tmp_path, f"{stem}.json", {"cases": [{"arg_type": "llm", **point, **sizes}]})
    assert [case.op for case in taken.cases] == [op]


def test_scalars_texts_and_comments(tmp_path):
    object_ = {"__comment": "anything", "arg_type": "default", "dtype": "half", "batch_size": 4, "dim_size": [8]}
    taken = read(tmp_path, "add.json", {"__about": 1, "cases": [object_]})
    assert params(taken, "shape", "dtype") == [([4, 8], "float16")]
    assert taken.notes == ()


def test_an_unknown_argument_is_ignored_with_a_note(tmp_path):
    object_ = {"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_size": 8, "vendor": "x", "axes": 1}
    taken = read(tmp_path, "add.json", {"cases": [object_], "about": "rows"})
    assert len(taken.cases) == 1
    assert any("`vendor`" in note for note in taken.notes)
    assert any("`about`" in note for note in taken.notes)


def test_the_form_of_the_arguments_is_kept_and_neighbours_are_still_one_entry(tmp_path):
    tokens = {"arg_type": "llm", "dtype": "bfloat16", "num_tokens": [8, 16], "hidden_size": 64}
    taken = read(tmp_path, "rms_norm.json", {"cases": [tokens]})
    assert [case.tags for case in taken.cases] == [("rms_norm llm",)] * 2
    assert len(compact(taken.workload.cases)) == 1
    plain = {"arg_type": "default", "dtype": "bfloat16", "batch_size": [8, 16], "dim_size": 64}
    both = read(tmp_path, "rms_norm.json", {"cases": [plain]})
    assert [case.tags for case in both.cases] == [()] * 2
    assert [case.id for case in both.cases] == [case.id for case in taken.cases]


def test_a_mistyped_argument_is_refused(tmp_path):
    """The default of the argument that was meant would measure another case."""
    point = {"arg_type": "llm", "attn_mode": "decode", "dtype": "bfloat16", "q_head_num": 4, "kv_head_num": 2,
             "head_dim": 32, "cache_len": 8}  # fmt: skip
    objects = [{**point, "bach_size": [2, 4]}, {**point, "batch_size": 2, "vendor": "x", "hidden_size": 8}]
    taken = read(tmp_path, "flash_attention.json", {"cases": objects})
    assert params(taken, "batch") == [(2,)]
    assert "$.cases[0]: `flash_attention` has no argument `bach_size` (2 points)" in problem(taken)
    assert "did you mean `batch_size`?" in problem(taken)
    # A name unlike any argument, or an argument of another operator, is ignored as in ByteMicroPerf.
    assert [name for name in ("vendor", "hidden_size") if any(f"`{name}`" in note for note in taken.notes)] == [
        "vendor", "hidden_size"
    ]  # fmt: skip


def test_tokens_that_the_second_generation_distributes_differently(tmp_path):
    point = {"arg_type": "llm", "dtype": "bfloat16", "hidden_size": 64, "num_experts.topk.ep_size": [[8, 2, 4]]}
    name = "moe_swiglu_dynamic_quant"
    even = read(tmp_path, f"{name}.json", {"cases": [{**point, "num_tokens": [8, 16]}]})
    odd = read(tmp_path, f"{name}.json", {"cases": [{**point, "num_tokens": [8, 17]}]})
    last = read(tmp_path, f"{name}.json", {"cases": [{**point, "num_tokens": [8, 17], "rank": 3}]})
    third = read(tmp_path, "x.json", {name: [{**point, "num_tokens": [8, 17]}]})
    noted = [
        any("(num_tokens // ep_size) * topk" in note for note in taken.notes) for taken in (even, odd, last, third)
    ]
    assert noted == [False, False, True, False]


def test_a_folder_of_files(tmp_path):
    read(tmp_path, "basic/tensor/gemm.json", {"cases": [GEMM]})
    read(tmp_path, "llm/attention.json", {"flash_attention": [LISTS]})
    (tmp_path / "llm" / "flash_decoding.json").write_text('{"to_be_implemented": true}')
    taken = read_source(tmp_path)
    assert len(taken.cases) == 9
    assert len(taken.problems) == 1
    assert "flash_decoding.json" in taken.problems[0].where


@pytest.mark.parametrize("kind", ["batch_llm", ["batch_llm"]])
def test_lists_of_lengths_are_one_case_however_arg_type_is_written(tmp_path, kind):
    taken = read(tmp_path, "x.json", {"flash_attention": [{**LISTS, "arg_type": kind}]})
    assert params(taken, "batch", "q_lens", "cache_lens") == [(2, [3, 5], [0, 7])]


def test_lists_of_lists_of_lengths_are_an_axis(tmp_path):
    object_ = {**LISTS, "arg_type": ["batch_llm"], "dtype": ["bfloat16"], "q_lens": [[3, 5], [1, 2]],
               "block_table": [[0, -1], [1, 2]], "block_size": 8}  # fmt: skip
    taken = read(tmp_path, "x.json", {"flash_attention": [object_]})
    assert params(taken, "q_lens", "block_size") == [([3, 5], 8), ([1, 2], 8)]
    assert any("`block_table`: opmark draws the pages itself" in note for note in taken.notes)


def test_lengths_that_are_all_the_same_are_one_number(tmp_path):
    taken = read(tmp_path, "x.json", {"flash_attention": [{**LISTS, "q_lens": [4, 4]}]})
    assert params(taken, "batch", "q_len", "q_lens", "cache_lens") == [(2, 4, [], [0, 7])]


def test_sequences_may_decode_different_numbers_of_tokens(tmp_path):
    taken = read(tmp_path, "x.json", {"flash_attention": [{**LISTS, "attn_mode": "decode", "q_lens": [1, 4]}]})
    assert taken.problems == ()
    assert params(taken, "mode", "q_lens", "cache_lens") == [("decode", [1, 4], [0, 7])]


def test_csv_has_numbers_lists_and_empty_cells(tmp_path):
    text = (
        "task_name,arg_type,dtype,batch_size,dim_size,k,q_lens,cache_lens,add_residual\n"
        "topk, default, float16, 4, 64, 8,,,\n"
        "rms_norm,default,float32,2,64,,,,False\n"
        "add,default,half,\"[1, 2]\",64,,,,\n"
    )  # fmt: skip
    taken = read(tmp_path, "rows.csv", text)
    assert [(case.op, case.params["shape"], case.params["dtype"]) for case in taken.cases] == [
        ("topk", [4, 64], "float16"), ("rms_norm", [2, 64], "float32"), ("add", [1, 64], "float16"),
        ("add", [2, 64], "float16"),
    ]  # fmt: skip
    assert taken.cases[0].params["k"] == 8
    assert taken.problems == ()


@pytest.mark.parametrize("column", ["task_name", "op_name", "task", "operator", "op"])
def test_csv_names_its_operators_in_one_of_several_columns(tmp_path, column):
    taken = read(tmp_path, "rows.csv", f"{column},dtype,batch_size,dim_size\nexp,float32,2,8\nlog,float32,4,8\n")
    assert [(case.op, case.params["shape"]) for case in taken.cases] == [("exp", [2, 8]), ("log", [4, 8])]


def test_csv_without_such_a_column_is_named_after_its_operator(tmp_path):
    taken = read(tmp_path, "gemm.csv", "M,K,N,dtype\n2,4,8,float16\n")
    assert [case.op for case in taken.cases] == ["matmul"]
    assert params(taken, "M", "K", "N", "dtype") == [(2, 4, 8, "float16")]


@pytest.mark.parametrize(("name", "head"), [("rows.csv", "M,K,N,dtype"), ("rows.csv", "op,K,N,dtype")])
def test_other_csv_is_not_recognised(tmp_path, name, head):
    rows = [dict(zip(head.split(","), ["2", "4", "8", "float16"], strict=True))]
    assert not BYTEMICROPERF.recognises(tmp_path / name, rows)


def test_a_table_of_results_is_a_workload(tmp_path):
    text = (
        "sku_name,op_name,provider,arg_type,batch_size,dim_size,k,dtype,latency(us),kernels,status,phase\n"
        'chip,topk,torch,default,4,64,8,float16,1.5,"[""a""]",ok,forward\n'
        "chip,exp,torch,default,2,64,,float32,,,oom,forward\n"
        "chip,exp,torch,default,2,64,,float32,3.5,[],ok,backward\n"
    )
    taken = read(tmp_path, "topk-torch.csv", text)
    assert [(case.op, case.params["shape"]) for case in taken.cases] == [("topk", [4, 64]), ("exp", [2, 64])]
    assert taken.notes == ()
    assert "$[2].phase: expected forward, got `backward`" in problem(taken)


def test_csv_takes_lists_of_lengths(tmp_path):
    text = (
        "task_name,arg_type,attn_mode,dtype,q_head_num,kv_head_num,head_dim,q_lens,cache_lens\n"
        'flash_attention,batch_llm,prefill,bfloat16,4,2,32,"[3, 5]","[0, 7]"\n'
    )
    taken = read(tmp_path, "rows.csv", text)
    assert params(taken, "q_lens", "cache_lens") == [([3, 5], [0, 7])]


def problem(taken: WorkloadSource) -> str:
    assert len(taken.problems) == 1, taken.problems
    return str(taken.problems[0])


def test_an_unknown_value_is_reported_with_its_place_and_the_number_of_points(tmp_path):
    taken = read(tmp_path, "gemm.json", {"cases": [{**GEMM, "dtype": ["float32", "mxfloat8"]}]})
    assert len(taken.cases) == 4
    assert f"{tmp_path}/gemm.json: $.cases[0].dtype[1]: " in problem(taken)
    assert "`mxfloat8`" in problem(taken)
    assert "(4 points)" in problem(taken)
    assert "no operator of opmark has a scale for each block" in problem(taken)


def test_products_in_tf32_are_imported_and_come_back_by_the_same_name(tmp_path):
    taken = read(tmp_path, "gemm.json", {"cases": [{**GEMM, "dtype": ["float32", "tfloat32"]}]})
    assert not taken.problems
    assert [case.params["dtype"] for case in taken.cases].count("tfloat32") == len(taken.cases) / 2 == 4
    assert {to_bytemicroperf(case).arguments["dtype"] for case in taken.cases} == {"float32", "tfloat32"}


def test_an_operator_without_products_has_no_tf32(tmp_path):
    taken = read(tmp_path, "add.json", {"add": [V3_COMPUTE["add"][0] | {"dtype": ["float32", "tfloat32"]}]})
    assert "`add` has no tfloat32; expected one of float" in problem(taken)


def test_a_place_in_a_dotted_key(tmp_path):
    object_ = V3_COMPUTE["quant_matmul"][0] | {
        "dtype.w_dtype.compute_dtype.dst_dtype": [["int8"] * 3, ["int8", "int4", "int8", "bfloat16"]]
    }
    taken = read(tmp_path, "x.json", {"quant_matmul": [object_], "add": V3_COMPUTE["add"]})
    short, narrow = taken.problems
    assert short.where.endswith('$.quant_matmul[0]["dtype.w_dtype.compute_dtype.dst_dtype"][0]')
    assert narrow.where.endswith('$.quant_matmul[0]["dtype.w_dtype.compute_dtype.dst_dtype"][1]')
    assert "int4" in narrow.message
    assert {case.op for case in taken.cases} == {"add"}


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({"arg_type": "default", "dtype": "float32", "batch_size": 4}, "`dim_size` is missing"),
        ({"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_sise": 4}, "did you mean it by `dim_sise`"),
        ({"arg_type": "defalt", "dtype": "float32", "batch_size": 4, "dim_size": 4}, "did you mean `default`"),
        ({"arg_type": "default", "dtype": "flot32", "batch_size": 4, "dim_size": 4}, "did you mean `float32`"),
        ({"arg_type": "default", "dtype": "float32", "batch_size": "4", "dim_size": 4}, "whole number"),
        ({"arg_type": "default", "dtype": "float32", "batch_size": 0, "dim_size": 4}, "at least 1"),
        ({"arg_type": "default", "dtype": "float32", "batch_size": 10**30, "dim_size": 4}, "at most"),
        ({"arg_type": "default", "dtype": [], "batch_size": 4, "dim_size": 4}, "$.cases[1].dtype: an empty list"),
        ({"arg_type": "default", "dtype": "float32", "batch_size.batch_size": [[1, 1]], "dim_size": 4}, "twice"),
        ({"arg_type": "default", "dtype": "float32", "batch_size.dim_size": [[1, 1]], "dim_size": 4}, "is given twice"),
        ({"arg_type": "default", "dtype": "float32", "batch_size": list(range(1, 2000)),
          "dim_size": list(range(1, 2000))}, "3996001 points"),
        ({}, "no arguments"),
        ([1], "expected an object"),
        (None, "expected an object"),
    ],
)  # fmt: skip
def test_a_broken_object_is_named_and_the_others_are_imported(tmp_path, broken, expected):
    good = {"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_size": 8}
    taken = read(tmp_path, "add.json", {"cases": [good, broken, good]})
    assert len(taken.cases) == 2
    assert "add.json: $.cases[1]" in problem(taken)
    assert expected in problem(taken)


def test_half_a_surrogate_pair_is_reported(tmp_path):
    good = {"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_size": 8}
    taken = read(tmp_path, "add.json", {"cases": [good, {**good, "dtype": "\ud800"}], "x": 1})
    assert len(taken.cases) == 1
    assert "$.cases[1]" in problem(taken)


def test_an_unknown_operator_is_named_with_the_nearest(tmp_path):
    taken = read(tmp_path, "x.json", {"gemmm": [GEMM], "add": V3_COMPUTE["add"]})
    assert "`gemmm`" in problem(taken)
    assert "did you mean `gemm`?" in problem(taken)


@pytest.mark.parametrize("data", [{"add": {"arg_type": 1}, "sub": V3_COMPUTE["sub"]}, {**V3_COMPUTE, "add": []}])
def test_an_operator_without_objects_is_named(tmp_path, data):
    taken = read(tmp_path, "x.json", data)
    assert "$.add" in problem(taken)


def test_a_violated_rule_of_the_operator_is_a_problem(tmp_path):
    object_ = {"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_size": 8, "k": [4, 9]}
    taken = read(tmp_path, "topk.json", {"cases": [object_]})
    assert len(taken.cases) == 1
    assert "$.cases[0]" in problem(taken)


def test_a_file_without_a_usable_case_is_an_error(tmp_path):
    with pytest.raises(InvalidFile, match="`world_size` is missing"):
        read(tmp_path, "all_reduce.json", {"cases": [{"arg_type": "default", "dtype": "float32", "batch_size": 1,
                                                      "dim_size": 8}]})  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.json", None), ("x.json", []), ("x.json", [1]), ("x.json", "text"), ("x.json", {}), ("x.json", {1: 2}),
        ("add.json", {"torch.add": {"config": []}}), ("add.json", {"add": [{"lhs": [1, 2], "rhs": [1, 2]}]}),
        ("add.json", {"schema": 1, "cases": [{"op": "add", "params": {"shape": [1]}}]}), ("add.json", {"cases": 3}),
        ("x.json", {"operator": "add"}), ("x.csv", [{"a": "1"}]),
    ],
)  # fmt: skip
def test_files_of_others_are_not_recognised(name, data):
    assert not BYTEMICROPERF.recognises(Path(name), data)
