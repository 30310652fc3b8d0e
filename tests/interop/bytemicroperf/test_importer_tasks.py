"""Every operator of ByteMicroPerf and its counterpart in opmark, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bytemicroperf_samples import EXPERTS, HEADS, LISTS, TOKENS, V1_GROUPS, V3_COMPUTE, WIDE_NARROW
from hypothesis import given
from hypothesis import strategies as st

from opmark.catalogue.expansion import expand
from opmark.catalogue.operators._moe import dispatched_rows, distinct_tokens, loads
from opmark.interop.bytemicroperf.importer import BYTEMICROPERF
from opmark.interop.bytemicroperf.llm import draw_lengths
from opmark.interop.bytemicroperf.operators import FORMS, NAMES, to_bytemicroperf
from opmark.plugin.registry import operator
from opmark.schema import Case, Workload

V1 = """
    gemm gemv batch_gemm group_gemm sin cos exp exponential log sqrt silu gelu cast swiglu add sub mul div layernorm
    softmax reduce_sum reduce_max reduce_min index_add sort unique scatter gather hash_table topk device2device
    host2device device2host allreduce broadcast allgather reducescatter alltoall p2p
"""
V2 = """
    gemm add sub mul cast div cos sin exp log sqrt gelu silu reduce_max reduce_min reduce_sum topk rms_norm layer_norm
    softmax index_select gather embedding scatter index_add device2device all_reduce reduce_scatter all_gather
    all_to_all broadcast p2p host2device device2host scale_dynamic_quant add_rms_norm_dynamic_quant moe_gating_gemm
    moe_softmax_topk moe_scatter_dynamic_quant moe_quant_matmul moe_quant_group_gemm moe_swiglu_dynamic_quant
    moe_gather head_rms_norm rotary_embedding store_kv_cache store_paged_kv_cache flash_attention
    flash_attention_session_cache flash_decoding moe_dispatch_tokens quant_matmul sort
"""
TRANSFERS = {"all_reduce_h2d", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "p2p",
             "host2device", "device2host"}  # fmt: skip


def read(task: str, point: dict[str, Any]) -> Case:
    """Import a point that is exactly one case."""
    cases = read_all({task: [point]})
    assert len(cases) == 1
    return cases[0]


def read_all(data: dict[str, Any]) -> list[Case]:
    found = BYTEMICROPERF.read(Path("x.json"), json.loads(json.dumps(data)), 0)
    assert found.problems == ()
    return [case for entry in found.entries for case in expand(Workload(1, "x", [entry]), operator)]


def refused(task: str, point: dict[str, Any]) -> str:
    found = BYTEMICROPERF.read(Path("x.json"), {task: [point]}, 0)
    assert found.entries == ()
    assert len(found.problems) == 1
    return str(found.problems[0])


def test_all_names_of_bytemicroperf_are_known():
    assert (len(set(V1.split())), len(set(V2.split())), len({*V3_COMPUTE, *TRANSFERS})) == (39, 53, 56)


@pytest.mark.parametrize("name", sorted({*V1.split(), *V2.split(), *V3_COMPUTE, *TRANSFERS}))
def test_every_name_has_a_row(name):
    assert name in NAMES


@pytest.mark.parametrize("task", sorted(FORMS))
def test_every_form_names_parameters_that_its_operator_has(task):
    for form in FORMS[task]:
        known = operator(form.op).by_name
        assert {name for field in form.fields for name in field.ours} <= known.keys()


@pytest.mark.parametrize("task", sorted(V3_COMPUTE))
def test_every_operator_of_one_device_is_imported_and_exported_again(task):
    cases = read_all({task: V3_COMPUTE[task]})
    for case in cases:
        theirs = to_bytemicroperf(case)
        assert theirs is not None
        assert theirs.op == task
        assert read(theirs.op, _in_lists(theirs.arguments)).id == case.id


def _in_lists(point: dict[str, Any]) -> dict[str, Any]:
    """Write a point as in a file, where a value that is a list needs a list around it."""
    lengths = ("q_lens", "cache_lens")
    return {key: [value] if isinstance(value, list) and key not in lengths else value for key, value in point.items()}


@pytest.mark.parametrize("task", sorted(V1_GROUPS))
def test_operators_of_the_first_generation_are_exported_again(task):
    file = {"operator": task, "input_shape_groups": V1_GROUPS[task], "dtype": ["float32"]}
    found = BYTEMICROPERF.read(Path("x.json"), file, 0)
    for entry in found.entries:
        (case,) = expand(Workload(1, "x", [entry]), operator)
        theirs = to_bytemicroperf(case)
        assert theirs is not None
        assert read(theirs.op, _in_lists(theirs.arguments)).id == case.id


def test_a_case_is_exported_with_arguments_of_bytemicroperf():
    case = read("gemm", {"arg_type": "default", "dtype": "half", "M": 4, "K": 8, "N": 16})
    assert to_bytemicroperf(case) == (
        "gemm", {"arg_type": "default", "M": 4, "K": 8, "N": 16, "dtype": "float16"}
    )  # fmt: skip
    lists = read("flash_attention", LISTS)
    assert to_bytemicroperf(lists).arguments.items() >= LISTS.items()


@pytest.mark.parametrize(
    ("op", "params", "phase"),
    [
        ("conv2d", operator("conv2d").preset("small"), "forward"),
        ("add", {"shape": [4, 8]}, "backward"),
        ("add", {"shape": [4, 8], "y": "row"}, "forward"),
        ("exp", {"shape": [2, 4, 8]}, "forward"),
        ("softmax", {"shape": [4, 8], "axis": 0}, "forward"),
        ("rms_norm", {"shape": [4, 8], "eps": 0.1}, "forward"),
        ("moe_gather", {"num_tokens": 8, "num_experts": 4, "topk": 2, "hidden_size": 8, "routing": "zipf"}, "forward"),
    ],
)
def test_a_case_without_a_counterpart_is_not_exported(op, params, phase):
    assert to_bytemicroperf(Case.of(op, operator(op).complete(params), phase)) is None


def test_tokens_are_divided_by_the_ranks():
    case = read("gemm", {"arg_type": "llm", "dtype": "float32", "num_tokens": 17, "sp_size": 4, "hidden_size": 8,
                         "new_hidden_size": 16})  # fmt: skip
    assert (case.params["M"], case.params["K"], case.params["N"]) == (4, 8, 16)
    gate = read("swiglu", {**TOKENS, "num_tokens": 9, "sp_size": 2})
    assert gate.params["shape"] == [4, 128]
    too_many = {"arg_type": "llm", "dtype": "float32", "num_tokens": 2, "sp_size": 4, "hidden_size": 8}
    assert "at most num_tokens=2" in refused("rms_norm", too_many)


@given(st.integers(1, 60), st.sampled_from([(4, 2, 2), (8, 3, 4), (12, 5, 3), (8, 8, 8), (6, 1, 1)]), st.data())
def test_tokens_are_distributed_as_in_bytemicroperf(tokens, sizes, data):
    """Each choice goes to the next expert; the order is the first expert of every rank, then the second, ..."""
    experts, topk, ranks = sizes
    rank = data.draw(st.integers(0, ranks - 1))
    each = experts // ranks
    order = [r * each + i for i in range(each) for r in range(ranks)]
    counts = dict.fromkeys(range(experts), 0)
    for choice in range(tokens * topk):
        counts[order[choice % experts]] += 1
    mine = [counts[expert] for expert in range(rank * each, (rank + 1) * each)]
    point = {**WIDE_NARROW, "num_tokens": tokens, "num_experts.topk.ep_size": [[experts, topk, ranks]], "ep_rank": rank}
    if sum(mine) == 0:
        return
    case = read("moe_quant_group_gemm", point)
    assert operator(case.op).inputs(case.params)["x"].shape == (sum(mine), 64)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_quantised_group_gemm_of_16_bits_is_a_plain_one(dtype):
    point = {**TOKENS, "num_tokens": 16, "hidden_size": 64, "new_hidden_size": 32, "num_experts": 4, "topk": 2,
             "dtype.w_dtype.compute_dtype.dst_dtype": [[dtype] * 4]}  # fmt: skip
    case = read("moe_quant_group_gemm", {name: value for name, value in point.items() if name != "dtype"})
    assert (case.op, case.params["dtype"]) == ("moe_group_gemm", dtype)
    theirs = to_bytemicroperf(case)
    assert (theirs.op, theirs.arguments["w_dtype"]) == ("moe_quant_group_gemm", dtype)


SECOND_EXPERTS = {**TOKENS, "world_size.rank": [[4, 2]], "num_shared_experts.dp_size.sp_size": [[0, 1, 1]],
                  "num_experts.topk.ep_size": [[8, 2, 4]], "num_tokens": 16}  # fmt: skip


@pytest.mark.parametrize("task", ["moe_scatter_dynamic_quant", "moe_swiglu_dynamic_quant", "moe_quant_group_gemm"])
def test_ranks_of_the_second_generation(task):
    narrow = {"dtype": "int8", "new_hidden_size": 8} if task == "moe_quant_group_gemm" else {}
    assert read(task, {**SECOND_EXPERTS, **narrow}).params["ep_rank"] == 2
    shared = {**SECOND_EXPERTS, **narrow, "num_shared_experts.dp_size.sp_size": [[1, 1, 1]]}
    assert "`num_shared_experts`" in refused(task, shared)


@given(st.integers(1, 60), st.sampled_from([(4, 2, 2), (8, 3, 2), (12, 2, 3), (8, 1, 8), (6, 1, 1)]))
def test_the_first_rank_has_as_many_rows_as_in_the_second_generation(tokens, sizes):
    experts, topk, ranks = sizes
    each, rows = experts // ranks, tokens // ranks * topk
    if not rows:
        return
    expected = tuple(rows // each + (i < rows % each) for i in range(each))
    sizes = {"world_size.rank": [[ranks, 0]], "num_experts.topk.ep_size": [[experts, topk, ranks]]}
    for task in ("moe_scatter_dynamic_quant", "moe_swiglu_dynamic_quant"):
        assert loads(read(task, {**SECOND_EXPERTS, **sizes, "num_tokens": tokens}).params) == expected


def test_tokens_of_the_second_generation_have_all_their_experts_on_one_rank():
    """48 tokens for 8 ranks: 6 are read, each for 4 experts."""
    point = {**SECOND_EXPERTS, "world_size.rank": [[8, 0]], "num_experts.topk.ep_size": [[64, 4, 8]], "num_tokens": 48}
    second = read("moe_scatter_dynamic_quant", point).params
    assert (dispatched_rows(second), distinct_tokens(second)) == (24, 6)
    third = {**TOKENS, "num_experts.topk.ep_size": [[64, 4, 8]], "num_tokens": 48}
    assert distinct_tokens(read("moe_scatter_dynamic_quant", third).params) == 24


def test_moe_gather_of_the_second_generation_has_neither_weights_nor_a_residual():
    """1536 rows of 8 KiB are read, added to as many others and written: 36 MiB, and a place for each row."""
    point = {**SECOND_EXPERTS, "num_experts.topk.ep_size": [[64, 4, 8]], "num_tokens": 3072, "hidden_size": 4096}
    case = read("moe_gather", point)
    assert operator(case.op).cost(case.params).bytes_moved == 36 * 2**20 + 8 * 1536
    assert "without weights and a residual" in notes("moe_gather", point)
    assert to_bytemicroperf(case).op == "index_add"
    assert "at most one for each token" in refused("moe_gather", {**point, "num_experts.topk.ep_size": [[64, 9, 8]]})
    third = {**TOKENS, "num_experts.topk.ep_size": [[64, 4, 8]], "num_tokens": 3072, "hidden_size": 4096}
    assert read("moe_gather", third).op == "moe_gather"


def test_weights_of_a_gate_have_the_type_of_the_tokens():
    for dtype, size in (("bfloat16", 2), ("float32", 4)):
        case = read("moe_gating_gemm", {**TOKENS, "num_tokens": 8, "num_experts": 4, "dtype": dtype})
        assert operator(case.op).cost(case.params).bytes_read == size * 64 * (8 + 4)
        assert to_bytemicroperf(case).arguments["dtype"] == dtype
    wide = operator("moe_gating_gemm").complete({"num_tokens": 8, "hidden_size": 4, "num_experts": 4})
    assert to_bytemicroperf(Case.of("moe_gating_gemm", {**wide, "dtype": "bfloat16"}, "forward")) is None


@pytest.mark.parametrize(
    ("more", "mode"), [({}, "both"), ({"add_residual": False}, "norm"), ({"output_mode": "res"}, "res")]
)
def test_the_second_generation_returns_the_sum_and_the_norm_too(more, mode):
    point = {**TOKENS, "num_tokens": 8, "dst_dtype": "int8", **more}
    found = BYTEMICROPERF.read(Path("add_rms_norm_dynamic_quant.json"), {"cases": [point]}, 0)
    assert [entry.params["output_mode"] for entry in found.entries] == [mode]
    assert read("add_rms_norm_dynamic_quant", point).params["output_mode"] == more.get("output_mode", "none")


SECOND = {"arg_type": "llm", "dtype": "bfloat16", **HEADS, "batch_size": 2, "cache_len": 8, "q_seq_len": 2}


@pytest.mark.parametrize(
    ("mode", "ours", "batch", "q_len"),
    [("prefill", "prefill", 1, 2), ("prefill_session_cache", "prefill", 2, 1), ("decode", "decode", 2, 2)],
)
def test_modes_of_the_second_generation(mode, ours, batch, q_len):
    """Lengths as short as these cannot vary by a tenth."""
    case = read("flash_attention", {**SECOND, "mode": mode, "cache_dtype": "int8"})
    assert {key: case.params[key] for key in ("mode", "batch", "q_len", "cache_len", "cache_dtype")} == {
        "mode": ours, "batch": batch, "q_len": q_len, "cache_len": 8, "cache_dtype": "int8"
    }  # fmt: skip


@given(st.sampled_from(["store_kv_cache", "rotary_embedding", "flash_attention"]), st.integers(1, 32),
       st.integers(32, 9999), st.integers(0, 9999), st.integers(0, 3))  # fmt: skip
def test_sessions_share_the_new_tokens_and_lengths_vary_by_up_to_a_tenth(task, batch, q, cache, seed):
    sizes = {**SECOND, "mode": "prefill_session_cache", "batch_size": batch, "q_seq_len": q, "cache_len": cache}
    given, note = draw_lengths(task, sizes, seed)
    assert len(given["q_lens"]) == len(given["cache_lens"]) == batch
    assert all(abs(length - q / batch) <= q / batch / 10 + 1 for length in given["q_lens"])
    assert all(abs(length - cache) <= cache / 10 for length in given["cache_lens"])
    assert f"seed {seed}" in note
    assert (given, note) == draw_lengths(task, sizes, seed)
    decoding, _ = draw_lengths(task, {**sizes, "mode": "decode", "q_seq_len": 4}, seed)
    assert decoding["q_lens"] == [4] * batch
    assert all(abs(length - cache) <= cache / 10 for length in decoding["cache_lens"])


def test_the_work_of_a_session_is_that_of_its_new_tokens():
    """Half of 12288 new tokens for each of two sequences: 6.29 MB of keys and values, and not 12.58."""
    sizes = {"batch_size": 2, "q_seq_len": 12288, "cache_len": 2048, "q_head_num.kv_head_num.head_dim": [[8, 1, 128]]}
    point = {**SECOND, **sizes, "mode": "prefill_session_cache", "dst_dtype": "int8"}
    cases = {seed: _read_with_seed("store_kv_cache", point, seed) for seed in (0, 0, 1)}
    for case in cases.values():
        assert operator(case.op).cost(case.params).bytes_read == pytest.approx(6.29e6, rel=0.1)
    assert cases[0].params["q_lens"] != cases[1].params["q_lens"]
    attention = _read_with_seed("flash_attention", {**point, "dst_dtype": "bfloat16"}, 0)
    assert attention.params["q_lens"] == cases[0].params["q_lens"]


def _read_with_seed(task, point, seed):
    (entry,) = BYTEMICROPERF.read(Path("x.json"), {task: [point]}, seed).entries
    (case,) = expand(Workload(1, "x", [entry]), operator)
    return case


def test_lengths_of_the_second_generation_are_said_and_those_of_the_third_are_as_written():
    assert "whatever batch_size is" in notes("flash_attention", {**SECOND, "mode": "prefill"})
    assert "cached tokens of the sequences vary" in notes("flash_attention", {**SECOND, "mode": "decode"})
    third = {**ATTENTION, "attn_mode": "decode", "batch_size": 4, "cache_len": 1000}
    assert notes("flash_attention", third) == ""
    assert read("flash_attention", third).params["cache_len"] == 1000
    few = {**SECOND, "mode": "prefill_session_cache", "batch_size": 4}
    assert "at least one token for each of 4 sequences" in refused("flash_attention", few)


PRODUCT = {"arg_type": "llm", "num_tokens": 8, "hidden_size": 64, "new_hidden_size": 32}
ATTENTION = {"arg_type": "llm", "attn_mode": "prefill", "dtype": "bfloat16", "cache_len": 0, "q_len": 4, **HEADS}


@pytest.mark.parametrize(
    ("task", "point", "argument"),
    [
        ("flash_attention", {**ATTENTION, "cache_dtype": "float16"}, "cache_dtype"),
        ("flash_attention", {**ATTENTION, "cache_dtype": "mxfloat8"}, "cache_dtype"),
        ("flash_attention", {**ATTENTION, "qk_compute_dtype": "int8"}, "qk_compute_dtype"),
        ("flash_attention", {**ATTENTION, "dtype": "float8", "dst_dtype": "float8"}, "dst_dtype"),
        ("flash_attention", {**ATTENTION, "dtype": "float8", "qk_compute_dtype": "bfloat16"}, "qk_compute_dtype"),
        ("flash_attention", {**ATTENTION, "is_causal": False}, "is_causal"),
        ("flash_attention", {**ATTENTION, "unbalance_q": 10}, "unbalance_q"),
        ("flash_attention", {**ATTENTION, "attn_mode": "prefil"}, "attn_mode"),
        ("flash_attention", {**LISTS, "q_lens": [1, 2, 3]}, "q_lens"),
        ("flash_attention", {**LISTS, "q_lens": [], "cache_lens": []}, "q_lens"),
        ("flash_attention", {**LISTS, "batch_size": 3}, "batch_size"),
        ("scale_dynamic_quant", {**TOKENS, "num_tokens": 8, "dst_dtype": "float16"}, "dst_dtype"),
        ("quant_matmul", {**PRODUCT, "dtype": "float8_e5m2", "w_dtype": "float8_e5m2"}, "w_dtype"),
        ("add_rms_norm_dynamic_quant", {**TOKENS, "num_tokens": 8, "output_mode": "both"}, "output_mode"),
        ("gemm", {"arg_type": "default", "dtype": "float32", "dst_dtype": "float16", "M": 1, "K": 1, "N": 1},
         "dst_dtype"),
        ("quant_matmul", {**WIDE_NARROW, "num_tokens": 8, "transpose_o": True}, "transpose_o"),
        ("moe_swiglu", {**TOKENS, "num_tokens": 8, **EXPERTS, "num_experts.topk.ep_size": [[10**9, 2, 4]]},
         "num_experts"),
    ],
)  # fmt: skip
def test_a_value_that_opmark_cannot_measure_is_named(task, point, argument):
    assert f"`{argument}`" in refused(task, point)


QUANTIZING = sorted(name for name in FORMS if name.endswith("dynamic_quant"))


@pytest.mark.parametrize("task", QUANTIZING)
def test_rows_are_rounded_to_the_type_that_the_file_names(task):
    point = {**TOKENS, "num_tokens": 8, **(EXPERTS if task.startswith("moe") else {})}
    if task.startswith("head"):
        point |= {"head_num": 4, "head_dim": 32}
        del point["hidden_size"]
    ids = {}
    for theirs, ours in {"int8": "int8", "float8": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}.items():
        case = read(task, {**point, "dst_dtype": theirs})
        assert case.params.get("quantized_dtype", "int8") == ours
        assert to_bytemicroperf(case).arguments["dst_dtype"] == theirs  # type: ignore[union-attr]
        ids[theirs] = case.id
    assert read(task, point).id == ids["int8"], "int8 is what a file without the argument means"
    assert len(set(ids.values())) == 3


@pytest.mark.parametrize(("dtype", "weights"), [("float8", "float8"), ("float8_e5m2", "float8")])
def test_products_of_float8_name_both_types(dtype, weights):
    point = {**PRODUCT, "dtype": dtype, "w_dtype": weights, "compute_dtype": dtype}
    theirs = to_bytemicroperf(read("quant_matmul", point))
    assert theirs is not None
    assert (theirs.arguments["dtype"], theirs.arguments["w_dtype"]) == (dtype, weights)


@pytest.mark.parametrize(
    "sizes",
    [{"M": 16, "K": 32, "N": 64}, {"arg_type": "llm", "num_tokens": 16, "hidden_size": 32, "new_hidden_size": 64}],
)
@pytest.mark.parametrize(("theirs", "ours"), [("float8", "float8_e4m3fn"), ("float8_e5m2", "float8_e5m2")])
def test_gemm_in_float8_is_a_product_with_scales(sizes, theirs, ours):
    case = read("gemm", {"arg_type": "default", **sizes, "dtype": theirs})
    names = ("num_tokens", "hidden_size", "new_hidden_size", "dtype", "out_dtype")
    assert (case.op, *(case.params[name] for name in names)) == ("quant_matmul", 16, 32, 64, ours, "bfloat16")
    back = to_bytemicroperf(case)
    assert back is not None
    assert (back.op, back.arguments["dtype"]) == ("gemm", theirs)


@pytest.mark.parametrize("task", ["flash_attention", "flash_decoding"])
def test_attention_may_be_of_float8_from_the_queries_on(task):
    types = dict.fromkeys(("dtype", "cache_dtype", "qk_compute_dtype", "pv_compute_dtype"), "float8")
    case = read(task, {**ATTENTION, **types, "dst_dtype": "bfloat16"})
    assert (case.params["dtype"], case.params["cache_dtype"]) == ("float8_e4m3fn", "same")
    theirs = to_bytemicroperf(case)
    assert theirs is not None
    assert (theirs.arguments["dtype"], theirs.arguments["cache_dtype"]) == ("float8", "float8")


PAGED = {**LISTS, "block_size": 4}  # 3 tokens, and 5 + 7


@pytest.mark.parametrize("task", ["flash_attention", "store_kv_cache"])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"block_table": [[0], [0, 1, 2]]}, "page 0 is in it twice"),
        ({"block_table": [[5], [1, 2, 1]]}, "page 1 is in it twice"),
        ({"block_table": [[0]]}, "a row for each of 2 sequences"),
        ({"block_table": [[0], [1, 2]]}, "3 pages of 4 for 12 tokens"),
        ({"block_table": [[0], [1, 2, -1]]}, "3 pages of 4 for 12 tokens"),
        ({"block_table": [0, 1]}, "1 page of 4 for 3 tokens"),
        ({"block_table": "x"}, "a row for each of 2 sequences"),
        ({"kv_lens": [3, 5]}, "expected `[3, 12]`"),
        ({"kv_lens": 12}, "expected `[3, 12]`"),
    ],
)
def test_tables_and_lengths_that_contradict_the_others_are_refused(task, more, says):
    assert says in refused(task, {**PAGED, **more})
    assert f"`{next(iter(more))}`" in refused(task, {**PAGED, **more})


def notes(task: str, point: dict[str, Any]) -> str:
    found = BYTEMICROPERF.read(Path("x.json"), {task: [point]}, 0)
    assert found.problems == ()
    return "\n".join(found.notes)


def test_an_ignored_argument_that_makes_a_difference_is_noted():
    plain = read("flash_attention", PAGED)
    table = {"block_table": [[7, -1, -1], [1, 2, 0]], "kv_lens": [3, 12], "slot_mapping": [0, 1]}
    assert read("flash_attention", {**PAGED, **table}).id == plain.id
    assert "`block_table`, `slot_mapping`: opmark draws the pages itself" in notes(
        "flash_attention", {**PAGED, **table}
    )
    assert "without `block_size`" in notes("flash_attention", {**LISTS, "block_table": [[0], [0]]})
    assert "`trans_w`: the layout of the weight" in notes("quant_group_gemm_reduce_sum",
                                                 {**WIDE_NARROW, "sp_size": 2, "trans_w": [True, False]})  # fmt: skip
    assert notes("flash_attention", PAGED) == ""


@pytest.mark.parametrize("task", ["head_rms_norm", "qk_rms_norm", "add_rms_norm_dynamic_quant"])
def test_norms_have_weights_of_another_type_in_bytemicroperf(task):
    assert "float32 in ByteMicroPerf, bfloat16 here" in notes(task, V3_COMPUTE[task][0])
    if task != "add_rms_norm_dynamic_quant":
        assert notes(task, {**V3_COMPUTE[task][0], "dtype": "float32"}) == ""


def test_a_cache_may_be_of_float8():
    case = read("flash_attention", {**ATTENTION, "cache_dtype": "float8"})
    assert case.params["cache_dtype"] == "float8_e4m3fn"
    assert to_bytemicroperf(case).arguments["cache_dtype"] == "float8"


def test_float8_is_float8_e4m3fn():
    rows = [["float8", "float8", "float8", "bfloat16"]]
    case = read("quant_matmul", {**WIDE_NARROW, "num_tokens": 8, "dtype.w_dtype.compute_dtype.dst_dtype": rows})
    assert case.params["dtype"] == "float8_e4m3fn"
    assert to_bytemicroperf(case).arguments["dtype"] == "float8"
