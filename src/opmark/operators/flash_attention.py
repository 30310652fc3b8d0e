"""Attention over a cache of keys and values, for a prompt (flash_attention) or for one token (flash_decoding)."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from opmark.operators import _attend
from opmark.operators._build import formula, torch
from opmark.operators._sequences import BLOCK_SIZE, SEQUENCE_RULES, Sequences, sequence_params
from opmark.operators.kv_cache import CACHE_DTYPE, cache_dtype, cache_specs, narrow
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, integer, size


def _kv_heads(p: Params) -> int:
    return int(p["kv_heads"] or p["q_heads"])


def _fill_kv_heads(p: Params) -> dict[str, Any]:
    """Return the parameters with the number of key heads filled in."""
    return {**p, "kv_heads": _kv_heads(p)}


def _inputs(p: Params) -> dict[str, TensorSpec]:
    shape = (Sequences.of(p).tokens, p["q_heads"], p["head_dim"])
    return {"q": TensorSpec(shape, p["dtype"]), **cache_specs(_fill_kv_heads(p))}


def _cost(p: Params) -> Cost:
    """Count only the cached tokens of each sequence, without unused ends of rows and pages."""
    sequences = Sequences.of(p)
    q = sequences.tokens * p["q_heads"] * p["head_dim"] * sizeof(p["dtype"])
    heads = 2 * _kv_heads(p) * p["head_dim"]
    kv = sum(sequences.kv) * heads * sizeof(cache_dtype(p)) + (heads * sizeof("float32") if narrow(p) else 0)
    pages = sum(sequences.pages) if p["block_size"] else 0
    flops = 4 * sequences.pairs * p["q_heads"] * p["head_dim"]
    return Cost(flops, q + kv + sequences.table_bytes(pages), q)


def _attention(p: Params, q: Any, block_table: Any = None, **rest: Any) -> Any:
    sequences = Sequences.of(p)

    def rows_of(name: str) -> Any:
        scale = rest[f"{name}_scale"][:, None] if narrow(p) else 1
        return lambda row: _attend.keys_of(sequences, row, rest[f"{name}_cache"], block_table) * scale

    return _attend.numpy_attention(sequences, q, rows_of("k"), rows_of("v"), 1 / sqrt(p["head_dim"]))


_REFERENCE, _OBSERVE = _attend.scale_by_keys_seen(_attention)


def _torch(inner: Any) -> Any:
    def build(p: Params, q: Any, block_table: Any = None, **rest: Any) -> Launch:
        def part(name: str, keys: Any) -> Any:
            found = keys(rest[f"{name}_cache"])
            return (found * rest[f"{name}_scale"].unsqueeze(1)).to(q.dtype) if narrow(p) else found

        def fetch(keys: Any) -> tuple[Any, Any]:
            return part("k", keys), part("v", keys)

        scaled = inner(1 / sqrt(p["head_dim"]))
        return _attend.torch_attention(Sequences.of(p), q, block_table, scaled, fetch)

    return build


PREFILL = {
    "small": {"batch": 2, "q_len": 64, "q_heads": 4, "kv_heads": 2, "head_dim": 64},
    "typical": {"batch": 1, "q_len": 512, "cache_len": 512, "q_heads": 8, "kv_heads": 2, "head_dim": 128},
    "large": {"batch": 1, "q_len": 4096, "cache_len": 4096, "q_heads": 32, "kv_heads": 8, "head_dim": 128},
}
DECODE = {
    "small": {"batch": 2, "cache_len": 63, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "block_size": 16},
    "typical": {"batch": 4, "cache_len": 1023, "q_heads": 16, "kv_heads": 4, "head_dim": 128, "block_size": 16},
    "large": {"batch": 32, "cache_len": 4095, "q_heads": 32, "kv_heads": 8, "head_dim": 128, "block_size": 64},
}


def _over_cache(
    name: str, summary: str, mode: str, presets: Mapping[str, Mapping[str, Any]], aliases: tuple[str, ...]
) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        category="attention",
        params=(
            *sequence_params(mode),
            size("q_heads", "heads of the queries"),
            integer("kv_heads", "heads of keys and values, each shared by a group of query heads; 0: as many as "
                    "q_heads", 0, kind="count"),
            size("head_dim", "elements of a head"),
            BLOCK_SIZE,
            CACHE_DTYPE,
            dtype(*FLOATS),
        ),
        inputs=_inputs,
        cost=_cost,
        reference=_REFERENCE,
        observe=_OBSERVE,
        presets=presets,
        rules=(
            *SEQUENCE_RULES,
            Rule("kv_heads", "divide q_heads={q_heads} (got {kv_heads})",
                 lambda p: p["q_heads"] % _kv_heads(p) == 0),
        ),
        partial=True,
        implementations=(
            formula(_attention),
            torch(_torch(_attend.sdpa), "torch.nn.functional.scaled_dot_product_attention", "sdpa"),
            torch(_torch(_attend.matmul_chain), name="matmul"),
        ),
        aliases=aliases,
    )  # fmt: skip


OPERATORS = (
    _over_cache(
        "flash_attention",
        "causal attention of new tokens over a linear or paged cache that already holds their keys and values",
        "prefill",
        PREFILL,
        ("flash_attention_session_cache", "prefill_attention", "paged_attention_prefill"),
    ),
    _over_cache(
        "flash_decoding",
        "attention of one new token per sequence over a linear or paged cache",
        "decode",
        DECODE,
        ("decode_attention", "paged_attention", "flash_attention_decode"),
    ),
)
