"""Multi-head latent attention (DeepSeek): keys and values of all heads come from one short vector per token.

The cache holds that vector (kv_lora_rank elements) and the positional part of the key (rope_dim). Decoding works on the
vector itself, with the matrices that would expand it absorbed into queries and output; a prefill expands it to keys and
values first.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from opmark.operators import _attend
from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._sequences import BLOCK_SIZE, SEQUENCE_RULES, Sequences, sequence_params
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, size

_SDPA = "torch.nn.functional.scaled_dot_product_attention"
SHARED = (
    size("heads", "heads of the queries"),
    size("kv_lora_rank", "elements of a token's vector in the cache"),
    size("rope_dim", "elements of the positional part of a key, which all heads share"),
    size("nope_dim", "elements of the rest of a head's key"),
)


def _latent(p: Params) -> TensorSpec:
    """Return the cache [sequence or page, 1, token, vector and positional part]."""
    return Sequences.of(p).cache_spec(1, p["kv_lora_rank"] + p["rope_dim"], p["dtype"])


def _table(p: Params) -> dict[str, TensorSpec]:
    return {"block_table": Sequences.of(p).table_spec()} if p["block_size"] else {}


def _scale(p: Params) -> float:
    """Return the scale, by the length of the keys before the matrices were absorbed."""
    return 1 / sqrt(p["nope_dim"] + p["rope_dim"])


def _cost(p: Params, flops: int, q_dim: int, out_dim: int, weights: int = 0) -> Cost:
    """Count the cached tokens of each sequence, read once for all heads."""
    sequences, nbytes = Sequences.of(p), sizeof(p["dtype"])
    queries = sequences.tokens * p["heads"]
    latent = sum(sequences.kv) * (p["kv_lora_rank"] + p["rope_dim"])
    table = sequences.table_bytes(sum(sequences.pages) if p["block_size"] else 0)
    return Cost(flops, (queries * q_dim + latent + weights) * nbytes + table, queries * out_dim * nbytes)


def _decode_inputs(p: Params) -> dict[str, TensorSpec]:
    shape = (Sequences.of(p).tokens, p["heads"], p["kv_lora_rank"] + p["rope_dim"])
    return {"q": TensorSpec(shape, p["dtype"]), "kv_cache": _latent(p), **_table(p)}


def _decode_cost(p: Params) -> Cost:
    """A score is a product over vector and positional part, a result is a product over the vector."""
    rank, key = p["kv_lora_rank"], p["kv_lora_rank"] + p["rope_dim"]
    return _cost(p, 2 * Sequences.of(p).pairs * p["heads"] * (key + rank), key, rank)


def _decode(p: Params, q: Any, kv_cache: Any, block_table: Any = None) -> Any:
    sequences, rank = Sequences.of(p), p["kv_lora_rank"]

    def keys(row: int) -> Any:
        return _attend.keys_of(sequences, row, kv_cache, block_table)

    return _attend.numpy_attention(sequences, q, keys, lambda row: keys(row)[..., :rank], _scale(p))


_DECODE = _attend.scale_by_keys_seen(_decode)


def _torch_decode(inner: Any) -> Any:
    def build(p: Params, q: Any, kv_cache: Any, block_table: Any = None) -> Launch:
        def fetch(keys: Any) -> tuple[Any, Any]:
            latent = keys(kv_cache)
            return latent, latent[..., : p["kv_lora_rank"]]

        return _attend.torch_attention(Sequences.of(p), q, block_table, inner(_scale(p)), fetch)

    return build


DECODE = Operator(
    name="mla_decode",
    summary="attention of new tokens over a cache of latent vectors, with the expanding matrices absorbed",
    category="attention",
    params=(*sequence_params("decode"), *SHARED, BLOCK_SIZE, dtype(*FLOATS)),
    inputs=_decode_inputs,
    cost=_decode_cost,
    reference=_DECODE[0],
    observe=_DECODE[1],
    presets={
        "small": {"batch": 2, "cache_len": 63, "heads": 8, "kv_lora_rank": 64, "rope_dim": 16, "nope_dim": 32,
                  "block_size": 16},
        "typical": {"batch": 4, "cache_len": 511, "heads": 16, "kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128,
                    "block_size": 64},
        "large": {"batch": 64, "cache_len": 4095, "heads": 128, "kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128,
                  "block_size": 64},
    },
    rules=SEQUENCE_RULES,
    partial=True,
    implementations=(
        formula(_decode),
        torch(_torch_decode(_attend.sdpa), _SDPA, "sdpa"),
        torch(_torch_decode(_attend.matmul_chain), name="matmul"),
    ),
    aliases=("mla", "flash_mla"),
)  # fmt: skip


def _expanded_dim(p: Params) -> int:
    return int(p["heads"] * (p["nope_dim"] + p["v_dim"]))


def _prefill_inputs(p: Params) -> dict[str, TensorSpec]:
    rank = p["kv_lora_rank"]
    return {
        "q": TensorSpec((Sequences.of(p).tokens, p["heads"], p["nope_dim"] + p["rope_dim"]), p["dtype"]),
        "kv_cache": _latent(p),
        # With this bound, keys and values are as large as the vectors that they come from.
        "weight": TensorSpec((_expanded_dim(p), rank), p["dtype"], -(rank**-0.5), rank**-0.5),
        **_table(p),
    }


def _prefill_cost(p: Params) -> Cost:
    """Each vector is expanded once; then a score is a product over a key, a result is a product over a value."""
    sequences, key = Sequences.of(p), p["nope_dim"] + p["rope_dim"]
    weights = _expanded_dim(p) * p["kv_lora_rank"]
    flops = 2 * sum(sequences.kv) * weights + 2 * sequences.pairs * p["heads"] * (key + p["v_dim"])
    return _cost(p, flops, key, p["v_dim"], weights)


def _prefill(p: Params, q: Any, kv_cache: Any, weight: Any, block_table: Any = None) -> Any:
    sequences, rank, nope = Sequences.of(p), p["kv_lora_rank"], p["nope_dim"]

    def expand(row: int) -> tuple[Any, Any]:
        (latent,) = _attend.keys_of(sequences, row, kv_cache, block_table)
        heads = np.swapaxes((latent[:, :rank] @ weight.T).reshape(len(latent), p["heads"], -1), 0, 1)
        place = np.broadcast_to(latent[:, rank:], (p["heads"], len(latent), p["rope_dim"]))
        return np.concatenate([heads[..., :nope], place], axis=-1), heads[..., nope:]

    return _attend.numpy_attention(sequences, q, lambda row: expand(row)[0], lambda row: expand(row)[1], _scale(p))


_PREFILL = _attend.scale_by_keys_seen(_prefill)


def _torch_prefill(inner: Any) -> Any:
    def build(p: Params, q: Any, kv_cache: Any, weight: Any, block_table: Any = None) -> Launch:
        import torch
        from torch.nn.functional import linear

        def fetch(keys: Any) -> tuple[Any, Any]:
            vector, place = keys(kv_cache).split((p["kv_lora_rank"], p["rope_dim"]), dim=-1)
            heads = linear(vector.squeeze(1), weight).unflatten(-1, (p["heads"], -1)).transpose(1, 2)
            nope, value = heads.split((p["nope_dim"], p["v_dim"]), dim=-1)
            return torch.cat((nope, place.expand(-1, p["heads"], -1, -1)), dim=-1), value

        return _attend.torch_attention(Sequences.of(p), q, block_table, inner(_scale(p)), fetch)

    return build


PREFILL = Operator(
    name="mla_prefill",
    summary="latent vectors of the cache expanded to keys and values, and causal attention of new tokens over them",
    category="attention",
    params=(*sequence_params(), *SHARED, size("v_dim", "elements of a head's value"), BLOCK_SIZE, dtype(*FLOATS)),
    inputs=_prefill_inputs,
    cost=_prefill_cost,
    reference=_PREFILL[0],
    observe=_PREFILL[1],
    presets={
        "small": {"batch": 2, "q_len": 32, "heads": 4, "kv_lora_rank": 64, "rope_dim": 16, "nope_dim": 32,
                  "v_dim": 32},
        "typical": {"batch": 1, "q_len": 256, "heads": 8, "kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128,
                    "v_dim": 128},
        "large": {"batch": 1, "q_len": 4096, "heads": 64, "kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128,
                  "v_dim": 128},
    },
    rules=SEQUENCE_RULES,
    partial=True,
    implementations=(
        formula(_prefill),
        torch(_torch_prefill(_attend.sdpa), _SDPA, "sdpa"),
        torch(_torch_prefill(_attend.matmul_chain), name="matmul"),
    ),
)  # fmt: skip

OPERATORS = (DECODE, PREFILL)
