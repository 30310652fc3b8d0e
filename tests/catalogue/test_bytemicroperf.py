"""The suite `bytemicroperf`: every operator of its three generations, with the shapes that it ships."""

from __future__ import annotations

from collections import Counter

import pytest

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suite
from opmark.plugin.registry import operator
from opmark.schema import Case, Workload

V1 = """
    gemm gemv batch_gemm group_gemm sin cos exp exponential log sqrt silu gelu cast swiglu add sub mul div layernorm
    softmax reduce_sum reduce_max reduce_min index_add sort unique scatter gather hash_table topk device2device
    indexadd dropout host2device device2host allreduce broadcast allgather reducescatter alltoall p2p
"""
V2 = """
    gemm add sub mul cast div cos sin exp log sqrt gelu silu reduce_max reduce_min reduce_sum topk rms_norm
    layer_norm softmax index_select gather embedding scatter index_add device2device sort scale_dynamic_quant
    add_rms_norm_dynamic_quant moe_gating_gemm moe_softmax_topk moe_scatter_dynamic_quant moe_quant_matmul
    moe_quant_group_gemm moe_swiglu_dynamic_quant moe_gather head_rms_norm rotary_embedding store_kv_cache
    store_paged_kv_cache flash_attention flash_attention_session_cache flash_decoding quant_matmul
    all_reduce reduce_scatter all_gather all_to_all broadcast p2p host2device device2host moe_dispatch_tokens
"""
V3 = """
    gemm add sub mul cast div cos sin exp log sqrt gelu silu reduce_max reduce_min reduce_sum topk rms_norm
    layer_norm softmax index_select gather embedding scatter index_add device2device scale_dynamic_quant
    add_rms_norm add_rms_norm_dynamic_quant head_rms_norm head_rms_norm_dynamic_quant qk_rms_norm rotary_embedding
    store_kv_cache flash_attention quant_matmul quant_group_gemm_reduce_sum swiglu swiglu_dynamic_quant
    moe_gating_gemm moe_softmax_topk moe_scatter_dynamic_quant moe_quant_group_gemm moe_quant_group_gemm_combine
    moe_swiglu moe_swiglu_dynamic_quant moe_gather
    all_reduce reduce_scatter all_gather all_to_all broadcast p2p all_reduce_h2d host2device device2host
"""
ALL = sorted({*V1.split(), *V2.split(), *V3.split()})
OTHERWISE = {"scatter": "scatter_rows_inplace", "gather": "gather_rows", "index_add": "index_add_inplace"}
"""Operators of these names change their target in place, or have one index per row."""
DRAWS = {"random_exponential"}
"""Reads nothing."""


@pytest.fixture(scope="module")
def workload() -> Workload:
    return suite("bytemicroperf")


@pytest.fixture(scope="module")
def cases(workload) -> list[Case]:
    return expand(workload, operator)


def expanded(workload: Workload, category: str, op: str) -> list[Case]:
    """Return the cases of the entries of one category, even if another entry has them too."""
    entries = [entry for entry in workload.cases if entry.op == op and category in entry.tags]
    return expand(Workload(1, category, entries), operator)


@pytest.mark.parametrize("name", ALL)
def test_every_name_is_known_and_has_cases(cases, name):
    ours = operator(name).name
    assert OTHERWISE.get(ours, ours) in {case.op for case in cases}


def test_v3_has_its_56_operators():
    assert len(V3.split()) == len(set(V3.split())) == 56


def test_the_suite_has_nothing_else(cases):
    theirs = {operator(name).name for name in (*ALL, "flash_mla")}
    assert {case.op for case in cases} == {OTHERWISE.get(name, name) for name in theirs}


@pytest.mark.parametrize("op", ["add", "sub", "mul", "cast"])
def test_linear_operators_have_its_54_cases(workload, op):
    assert len(expanded(workload, "vector_linear_ops", op)) == 54


@pytest.mark.parametrize("op", ["div", "cos", "sin", "exp", "log", "sqrt", "gelu", "silu"])
def test_special_functions_have_its_54_cases(workload, op):
    found = expanded(workload, "vector_sfu_ops", op)
    assert {tuple(case.params["shape"]) for case in found} == {(2**i, 1024) for i in range(18)}
    assert Counter(case.params["dtype"] for case in found) == {"float32": 18, "float16": 18, "bfloat16": 18}


@pytest.mark.parametrize(
    ("category", "op", "count"),
    [
        ("tensor_gemm_ops", "matmul", 624),  # 832 with tfloat32
        ("vector_reduction_ops", "reduce_sum", 33),
        ("vector_reduction_ops", "topk", 156),
        ("vector_norm_ops", "rms_norm", 33),
        ("vector_norm_ops", "softmax", 33),
        ("vector_index_ops", "embedding", 42),  # 44, of which 1024 rows of 1024 twice
        ("vector_index_ops", "scatter_rows_inplace", 42),
        ("vector_index_ops", "gather_rows", 42),
        ("vector_index_ops", "index_add_inplace", 63),  # 66
        ("xccl_ops", "copy", 66),  # 88 with int8
        ("xccl_ops", "all_reduce", 396),
        ("xccl_ops", "reduce_scatter", 396),
        ("xccl_ops", "all_gather", 528),
        ("xccl_ops", "all_to_all", 528),
        ("xccl_ops", "broadcast", 528),
        ("xccl_ops", "p2p", 56),
        ("xccl_ops", "host2device", 440),
        ("xccl_ops", "device2host", 440),
        ("single_test_ops", "all_reduce", 4),
        ("single_test_ops", "all_to_all", 6),
        ("mocked_model", "all_reduce", 76),
        ("ccl_ops", "all_reduce", 228),
        ("ccl_ops", "p2p", 627),  # chains of two, four and eight
        ("h2d_ops", "host2device", 240),
        ("gemm_ops", "matmul", 480),
        ("gemm_ops", "batched_matmul", 2268),
        ("gemm_ops", "grouped_gemm", 126),
        ("unary_ops", "exp", 48),
        ("reduction_ops", "softmax", 30),
        ("index_ops", "topk", 54),
    ],
)
def test_shipped_files_expand_to_as_many_cases(workload, category, op, count):
    assert len(expanded(workload, category, op)) == count


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2), ("int8", 1)])
def test_buffers_have_1_to_2097152_rows_of_1024(workload, dtype, width):
    found = [case for case in expanded(workload, "xccl_ops", "all_gather") if case.params["dtype"] == dtype]
    assert {case.params["size"] for case in found} == {2**i * 1024 * width for i in range(22)}
    assert {case.params["ranks"] for case in found} == {2, 4, 8, 16, 32, 64}


def test_groups_of_products_grow_from_one_to_eight_times_a_batch(workload):
    for case in expanded(workload, "gemm_ops", "grouped_gemm"):
        rows = case.params["M"]
        assert rows == [rows[0] * i for i in range(1, 9)]


def test_attention_of_the_mocked_model(workload):
    found = expanded(workload, "mocked_model", "flash_attention")
    assert Counter(case.params["mode"] for case in found) == {"prefill": 2 * (29 + 15 + 630), "decode": 2 * 240}
    assert {case.params["cache_dtype"] for case in found} == {"same", "int8"}
    assert {(case.params["q_heads"], case.params["kv_heads"], case.params["head_dim"]) for case in found} == {
        (8, 1, 128)
    }


def test_every_entry_says_what_it_is_and_where_it_comes_from(workload):
    for entry in workload.cases:
        first, group, *category = entry.tags
        assert first == "bytemicroperf"
        assert group in ("basic", "llm", "moe")
        assert len(category) == 1
        assert entry.source
        assert entry.phases == ["forward"]
        assert (group == "moe") == entry.op.startswith("moe_")


def test_every_case_has_inputs_and_a_cost(cases):
    for case in cases:
        found = operator(case.op)
        cost = found.phase_cost(case.params, case.phase)
        assert cost is not None, case
        assert cost.bytes_read > 0 or case.op in DRAWS, case
        assert cost.bytes_written > 0, case
        assert cost.flops is None or cost.flops >= 0, case
        found.inputs(case.params)
