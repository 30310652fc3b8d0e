"""ByteMicroPerf's operators of language models and of mixtures of experts: tokens, heads, caches, experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opmark.importers.bytemicroperf.attention import CacheDtype, KeyHeads, Lengths, Pages
from opmark.importers.bytemicroperf.basic import ROWS, has
from opmark.importers.bytemicroperf.fields import Constant, Dtype, Field, Only, TokenRows, Unused, Value, Word
from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.values import FEW, Arguments, dtype_of

FLOAT = Dtype(default="bfloat16")
SP_SIZE = Value("sp_size", optional=True)
TOKENS = (Value("num_tokens"), SP_SIZE)
HIDDEN = Value("hidden_size")
NEW_HIDDEN = Value("new_hidden_size")
TO_INT8 = Only("dst_dtype", value="int8", exported=True)
SAME_RESULT = Only("dst_dtype", default_dtype="bfloat16")

NARROW = (
    Dtype(default="int8"),
    Only("w_dtype", exported=True, default_dtype="int8"),
    Only("compute_dtype", exported=True, default_dtype="int8"),
    Dtype("dst_dtype", "out_dtype", "bfloat16"),
)
"""Element types of products of 8-bit numbers."""

EXPERTS = Value("num_experts", most=FEW)
TOPK = Value("topk", most=FEW)
ROUTING: tuple[Field, ...] = (
    Value("num_tokens"), EXPERTS, TOPK, Value("ep_size", optional=True, most=FEW),
    Value("ep_rank", kind="count", optional=True, also=("rank",)), Constant("routing", "balanced"),
    Only("num_shared_experts", value=0), Unused(("world_size", "dp_size")),
)  # fmt: skip
"""Tokens are distributed to the experts in turn, rank after rank, as in ByteMicroPerf."""
ALL_TOKENS = Unused(("sp_size",))
"""These operators work on the tokens of all ranks, so that `sp_size` changes nothing."""
COMBINE = (SP_SIZE, Value("sp_rank", kind="count", optional=True), Value("res_scale", kind="float", optional=True))

MODE = Word("attn_mode", "mode", also=("mode",),
            words={"prefill": "prefill", "decode": "decode", "prefill_session_cache": "prefill"})  # fmt: skip
Q_HEADS, HEAD_DIM = Value("q_head_num", "q_heads"), Value("head_dim")
ALIKE = (Only("unbalance_q", value=0), Only("unbalance_cache", value=0), Unused(("random_seed",)))
"""Random lengths are not imported: ByteMicroPerf's lists of lengths are."""
SEQUENCES = (MODE, Lengths(), *ALIKE)
ATTENTION = (
    *SEQUENCES, Q_HEADS, KeyHeads(), HEAD_DIM, Pages(), FLOAT, CacheDtype(), *(Only(name, default_dtype="bfloat16") for
    name in ("compute_dtype", "qk_compute_dtype", "pv_compute_dtype", "dst_dtype")), Only("is_causal", value=True),
)  # fmt: skip


@dataclass(frozen=True)
class NormWeights(Field):
    """ByteMicroPerf keeps the weights of a norm in float32 whatever the dtype of the tokens is."""

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}

    def remark(self, given: Arguments) -> str:
        dtype = dtype_of("dtype", given.get("dtype", FLOAT.default))
        return "" if dtype == "float32" else f"the weights of the norm are float32 in ByteMicroPerf, {dtype} here"


def _llm(task: str, *fields: Field, op: str = "", exported: bool = True, note: str = "") -> Form:
    return Form(task, op or task, fields, arg_type="llm", exported=exported, note=note)


FORMS = (
    _llm("scale_dynamic_quant", *TOKENS, HIDDEN, FLOAT, TO_INT8),
    _llm("add_rms_norm", *TOKENS, HIDDEN, FLOAT, SAME_RESULT),
    _llm("add_rms_norm_dynamic_quant", *TOKENS, HIDDEN, Value("add_residual", kind="bool", optional=True),
         Word("output_mode", words={"none": "none", "res": "res", "norm": "norm"}), FLOAT, TO_INT8, NormWeights()),
    _llm("head_rms_norm", *TOKENS, Value("total_head_num", "heads"), HEAD_DIM,
         Value("norm_head_start", "norm_start", kind="count", optional=True),
         Value("norm_head_num", "norm_heads", kind="count", optional=True), FLOAT, SAME_RESULT, NormWeights()),
    _llm("head_rms_norm_dynamic_quant", *TOKENS, Value("head_num", "heads", also=("total_head_num",)), HEAD_DIM,
         FLOAT, TO_INT8),
    _llm("qk_rms_norm", *TOKENS, Q_HEADS, Value("kv_head_num", "kv_heads"), Value("qk_head_dim", also=("head_dim",)),
         Value("v_head_dim", also=("head_dim",)), FLOAT, SAME_RESULT, NormWeights()),
    _llm("rotary_embedding", *SEQUENCES, Q_HEADS, Value("kv_head_num", "kv_heads"), HEAD_DIM,
         Value("rope_offset", kind="count", optional=True), Value("rope_dim", kind="count", optional=True),
         Unused(("block_size", "block_table", "slot_mapping")), FLOAT, SAME_RESULT),
    _llm("store_kv_cache", *SEQUENCES, Q_HEADS, Value("kv_head_num", "kv_heads"), HEAD_DIM, Pages(),
         Word("store_mode", words={"both": "both", "k": "k", "v": "v"}), CacheDtype(also=("dst_dtype",)), FLOAT,
         Only("quant_mode", value="static")),
    _llm("store_paged_kv_cache", *SEQUENCES, Q_HEADS, Value("kv_head_num", "kv_heads"), HEAD_DIM, Pages(),
         Word("store_mode", words={"both": "both", "k": "k", "v": "v"}), CacheDtype(also=("dst_dtype",)), FLOAT,
         op="store_kv_cache", exported=False),
    _llm("flash_attention", *ATTENTION),
    _llm("flash_attention_session_cache", *ATTENTION, op="flash_attention", exported=False),
    _llm("flash_decoding", *ATTENTION),
    _llm("quant_matmul", *TOKENS, HIDDEN, NEW_HIDDEN, Value("has_bias", kind="bool", optional=True), *NARROW,
         Only("transpose_o", value=False)),
    _llm("moe_quant_matmul", *TOKENS, HIDDEN, NEW_HIDDEN, Value("has_bias", kind="bool", optional=True), *NARROW,
         op="quant_matmul", exported=False),
    _llm("quant_group_gemm_reduce_sum", Value("num_tokens"), Value("sp_size"), HIDDEN, NEW_HIDDEN, *NARROW,
         Unused(("trans_w",), "the layout of the weight here is [new_hidden_size, hidden_size]")),
    Form("swiglu", "swiglu", (TokenRows(2), FLOAT, SAME_RESULT), has("num_tokens"), "llm"),
    Form("swiglu", "swiglu", (ROWS, Dtype()), exported=False,
         note="swiglu of the first generation is silu(x) x; here the same number of elements is a gate and a value"),
    _llm("swiglu_dynamic_quant", *TOKENS, HIDDEN, FLOAT, TO_INT8),
    _llm("moe_gating_gemm", *TOKENS, HIDDEN, EXPERTS, FLOAT, Only("compute_dtype", value="float32"),
         Only("dst_dtype", value="float32", exported=True)),
    _llm("moe_softmax_topk", *TOKENS, EXPERTS, TOPK,
         Word("compute_mode", words={"pre-softmax": "pre-softmax", "post-softmax": "post-softmax"}),
         Dtype(default="float32"), Unused(("hidden_size",))),
    _llm("moe_scatter_dynamic_quant", *ROUTING, HIDDEN, FLOAT, TO_INT8, ALL_TOKENS),
    _llm("moe_quant_group_gemm", *ROUTING, HIDDEN, NEW_HIDDEN, *NARROW, ALL_TOKENS),
    _llm("moe_quant_group_gemm_combine", *ROUTING, *COMBINE, HIDDEN, NEW_HIDDEN, *NARROW),
    _llm("moe_swiglu", *ROUTING, HIDDEN, FLOAT, SAME_RESULT, ALL_TOKENS),
    _llm("moe_swiglu_dynamic_quant", *ROUTING, HIDDEN, FLOAT, TO_INT8, ALL_TOKENS),
    _llm("moe_gather", *ROUTING, *COMBINE, HIDDEN, FLOAT, SAME_RESULT),
)  # fmt: skip
