"""Caches of keys and values: store_kv_cache writes new tokens into one, and multi-head latent attention reads it."""

from __future__ import annotations

from math import sqrt
from typing import Any

from opmark.catalogue.operators import _attention
from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._attention import BLOCK_SIZE, SEQUENCE_RULES, Sequences, sequence_params
from opmark.catalogue.operators._builders import formula, numpy, torch
from opmark.catalogue.operators._quantization import (
    LARGEST,
    MOST,
    STEPS,
    Rounded8,
    accept_either_neighbour,
    as_bytes,
    round_to,
)
from opmark.plugin import Launch, Operator, Params
from opmark.plugin.param import choice, dtype, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, FLOATS8, sizeof

Names = tuple[str, ...]
CACHE_DTYPE = choice("cache_dtype", "8-bit numbers with one scale per element of each head; same: as dtype",
                     ("same", "int8", *FLOATS8), "same")  # fmt: skip


def narrow(p: Params) -> bool:
    return bool(p["cache_dtype"] != "same")


def cache_dtype(p: Params) -> str:
    return str(p["dtype"] if p["cache_dtype"] == "same" else p["cache_dtype"])


def cache_specs(p: Params) -> dict[str, TensorSpec]:
    """Return both caches, the scales of 8-bit ones, and the table of pages of paged ones."""
    sequences, heads, dim = Sequences.of(p), p["kv_heads"], p["head_dim"]
    low, high = (-MOST, MOST + 1) if narrow(p) else (-1.0, 1.0)
    cache = sequences.cache_spec(heads, dim, cache_dtype(p), low, high)
    specs = {"k_cache": cache, "v_cache": cache}
    if narrow(p):
        specs |= dict.fromkeys(("k_scale", "v_scale"), TensorSpec((heads, dim), "float32", *STEPS))
    return specs | ({"block_table": sequences.table_spec()} if p["block_size"] else {})


def _inputs(p: Params) -> dict[str, TensorSpec]:
    shape = (Sequences.of(p).tokens, p["q_heads"] + 2 * p["kv_heads"], p["head_dim"])
    return {"packed_qkv": TensorSpec(shape, p["dtype"]), **cache_specs(p)}


def _stored_names(p: Params) -> Names:
    return ("k", "v") if p["store_mode"] == "both" else (p["store_mode"],)


def _cost(p: Params) -> Cost:
    """Count the stored part of the packed tensor and the new tokens' part of the cache; 8 bits add a quotient each."""
    sequences, scale = Sequences.of(p), p["kv_heads"] * p["head_dim"]
    n = len(_stored_names(p)) * sequences.tokens * scale
    scales = len(_stored_names(p)) * scale * sizeof("float32") if narrow(p) else 0
    pages = sequences.new_pages if p["block_size"] else 0
    return Cost(
        n if narrow(p) else 0,
        n * sizeof(p["dtype"]) + scales + sequences.table_bytes(pages),
        n * sizeof(cache_dtype(p)),
    )


def _part(p: Params, name: str, packed: Any) -> Any:
    """Return the keys or values of the packed tensor: queries come first, then keys, then values."""
    start = p["q_heads"] + (p["kv_heads"] if name == "v" else 0)
    return packed[:, start : start + p["kv_heads"]]


def _places(p: Params, block_table: Any, rows: Any, at: Any) -> tuple[Any, Any]:
    """Return the first and third index into a cache for each new token."""
    if not p["block_size"]:
        return rows, at
    return block_table[rows, at // p["block_size"]], at % p["block_size"]


def _reference(p: Params, packed_qkv: Any, block_table: Any = None, **rest: Any) -> Any:
    """Return the new caches; 8-bit values are not rounded, as rounding half a step to either side is right."""
    first, third = _places(p, block_table, *Sequences.of(p).positions())
    caches = {name: np.array(rest[f"{name}_cache"], np.float64) for name in ("k", "v")}
    for name in _stored_names(p):
        part = _part(p, name, packed_qkv)
        caches[name][first, :, third] = part / rest[f"{name}_scale"] if narrow(p) else part
    return caches["k"], caches["v"]


def _observe(p: Params, outputs: Any, **inputs: Any) -> Any:
    observe = accept_either_neighbour(_reference, 0, 1, kind=cache_dtype)
    return observe(p, outputs, **inputs) if narrow(p) else outputs


def _numpy(p: Params, packed_qkv: Any, block_table: Any = None, **rest: Any) -> Launch:
    rows, at = Sequences.of(p).positions()

    def launch() -> Any:
        first, third = _places(p, block_table, rows, at)
        for name in _stored_names(p):
            part = _part(p, name, packed_qkv)
            if narrow(p):
                part = np.clip(np.rint(part / rest[f"{name}_scale"]), -LARGEST["int8"], LARGEST["int8"])
            rest[f"{name}_cache"][first, :, third] = part
        return rest["k_cache"], rest["v_cache"]

    return launch


def _torch(p: Params, packed_qkv: Any, block_table: Any = None, **rest: Any) -> Launch:
    import torch

    sequences = Sequences.of(p)
    rows, at = (torch.tensor(numbers, device=packed_qkv.device) for numbers in sequences.positions())
    stored = [
        (_part(p, name, packed_qkv), as_bytes(rest[f"{name}_cache"]), rest.get(f"{name}_scale"))
        for name in _stored_names(p)
    ]

    def quantize(part: Any, scale: Any) -> Any:
        return part if scale is None else as_bytes(round_to(part / scale, cache_dtype(p)))

    def store_by_position() -> Any:
        first, third = _places(p, block_table, rows, at)
        for part, cache, scale in stored:
            cache[first, :, third] = quantize(part, scale)
        return rest["k_cache"], rest["v_cache"]

    def store_as_block() -> Any:
        start, count = sequences.cache[0], sequences.q[0]
        for part, cache, scale in stored:
            block = quantize(part, scale).unflatten(0, (-1, count)).transpose(1, 2)
            cache[:, :, start : start + count].copy_(block)
        return rest["k_cache"], rest["v_cache"]

    return store_as_block if sequences.alike and not p["block_size"] else store_by_position


STORE = Operator(
    name="store_kv_cache",
    summary="keys and values of new tokens, from packed queries, keys and values, into the cache",
    category="attention",
    params=(
        *sequence_params(),
        size("q_heads", "heads of the queries, which are not stored"),
        size("kv_heads", "heads of keys, and of values"),
        size("head_dim", "elements of a head"),
        BLOCK_SIZE,
        choice("store_mode", "what is stored", ("both", "k", "v"), "both"),
        CACHE_DTYPE,
        dtype(*FLOATS),
    ),
    inputs=_inputs,
    cost=_cost,
    reference=_reference,
    observe=_observe,
    result_dtype=cache_dtype,
    tolerance=Rounded8(),
    presets={
        "small": {"batch": 2, "q_len": 16, "cache_len": 20, "q_heads": 8, "kv_heads": 2, "head_dim": 64},
        "typical": {"batch": 4, "q_len": 256, "cache_len": 256, "q_heads": 16, "kv_heads": 4, "head_dim": 128,
                    "block_size": 16},
        "large": {"batch": 8, "q_len": 2048, "cache_len": 2048, "q_heads": 32, "kv_heads": 8, "head_dim": 128,
                  "block_size": 64},
    },
    rules=SEQUENCE_RULES,
    mutates=("k_cache", "v_cache"),
    partial=True,
    implementations=(numpy(_numpy), torch(_torch)),
    aliases=("store_paged_kv_cache", "reshape_and_cache"),
)  # fmt: skip


# Multi-head latent attention (DeepSeek): keys and values of all heads come from one short vector per token.

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


def _mla_cost(p: Params, flops: int, q_dim: int, out_dim: int, weights: int = 0) -> Cost:
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
    return _mla_cost(p, 2 * Sequences.of(p).pairs * p["heads"] * (key + rank), key, rank)


def _decode(p: Params, q: Any, kv_cache: Any, block_table: Any = None) -> Any:
    sequences, rank = Sequences.of(p), p["kv_lora_rank"]

    def keys(row: int) -> Any:
        return _attention.keys_of(sequences, row, kv_cache, block_table)

    def values(row: int) -> Any:
        return keys(row)[..., :rank]

    return _attention.numpy_attention(sequences, q, keys, values, _scale(p), p.get("q_len_at"))


_DECODE = _attention.scale_by_keys_seen(_decode)


def _torch_decode(inner: Any) -> Any:
    def build(p: Params, q: Any, kv_cache: Any, block_table: Any = None) -> Launch:
        def fetch(keys: Any) -> tuple[Any, Any]:
            latent = keys(kv_cache)
            return latent, latent[..., : p["kv_lora_rank"]]

        return _attention.torch_attention(Sequences.of(p), q, block_table, inner(_scale(p)), fetch, 1)

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
    sample=("q_len",),
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
        torch(_torch_decode(_attention.sdpa), _SDPA, "sdpa"),
        torch(_torch_decode(_attention.matmul_chain), name="matmul"),
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
    return _mla_cost(p, flops, key, p["v_dim"], weights)


def _prefill(p: Params, q: Any, kv_cache: Any, weight: Any, block_table: Any = None) -> Any:
    sequences, rank, nope = Sequences.of(p), p["kv_lora_rank"], p["nope_dim"]

    def expand(row: int) -> tuple[Any, Any]:
        (latent,) = _attention.keys_of(sequences, row, kv_cache, block_table)
        heads = np.swapaxes((latent[:, :rank] @ weight.T).reshape(len(latent), p["heads"], -1), 0, 1)
        place = np.broadcast_to(latent[:, rank:], (p["heads"], len(latent), p["rope_dim"]))
        return np.concatenate([heads[..., :nope], place], axis=-1), heads[..., nope:]

    keys, values = lambda row: expand(row)[0], lambda row: expand(row)[1]
    return _attention.numpy_attention(sequences, q, keys, values, _scale(p), p.get("q_len_at"))


_PREFILL = _attention.scale_by_keys_seen(_prefill)


def _torch_prefill(inner: Any) -> Any:
    def build(p: Params, q: Any, kv_cache: Any, weight: Any, block_table: Any = None) -> Launch:
        import torch
        from torch.nn.functional import linear

        def fetch(keys: Any) -> tuple[Any, Any]:
            vector, place = keys(kv_cache).split((p["kv_lora_rank"], p["rope_dim"]), dim=-1)
            heads = linear(vector.squeeze(1), weight).unflatten(-1, (p["heads"], -1)).transpose(1, 2)
            nope, value = heads.split((p["nope_dim"], p["v_dim"]), dim=-1)
            return torch.cat((nope, place.expand(-1, p["heads"], -1, -1)), dim=-1), value

        return _attention.torch_attention(Sequences.of(p), q, block_table, inner(_scale(p)), fetch, p["heads"])

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
    sample=("q_len",),
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
        torch(_torch_prefill(_attention.sdpa), _SDPA, "sdpa"),
        torch(_torch_prefill(_attention.matmul_chain), name="matmul"),
    ),
)  # fmt: skip


OPERATORS: tuple[Any, ...] = (
    STORE,
    DECODE,
    PREFILL,
)
