"""store_kv_cache: write the keys and values of new tokens into a linear or paged cache."""

from __future__ import annotations

from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import numpy, torch
from opmark.operators._rounded import LARGEST, MOST, STEPS, accept_either_neighbour
from opmark.operators._sequences import BLOCK_SIZE, SEQUENCE_RULES, Sequences, sequence_params
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import choice, dtype, size

Names = tuple[str, ...]
CACHE_DTYPE = choice("cache_dtype", "int8: integers with one scale per element of each head; same: as dtype",
                     ("same", "int8"), "same")  # fmt: skip


def narrow(p: Params) -> bool:
    return bool(p["cache_dtype"] == "int8")


def cache_dtype(p: Params) -> str:
    return str(p["dtype"] if p["cache_dtype"] == "same" else p["cache_dtype"])


def cache_specs(p: Params) -> dict[str, TensorSpec]:
    """Return both caches, the scales of int8 ones, and the table of pages of paged ones."""
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
    """Count the stored part of the packed tensor and the new tokens' part of the cache; int8 adds a quotient each."""
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
    return accept_either_neighbour(_reference, 0, 1)(p, outputs, **inputs) if narrow(p) else outputs


def _numpy(p: Params, packed_qkv: Any, block_table: Any = None, **rest: Any) -> Launch:
    rows, at = Sequences.of(p).positions()

    def launch() -> Any:
        first, third = _places(p, block_table, rows, at)
        for name in _stored_names(p):
            part = _part(p, name, packed_qkv)
            if narrow(p):
                part = np.clip(np.rint(part / rest[f"{name}_scale"]), -LARGEST, LARGEST)
            rest[f"{name}_cache"][first, :, third] = part
        return rest["k_cache"], rest["v_cache"]

    return launch


def _torch(p: Params, packed_qkv: Any, block_table: Any = None, **rest: Any) -> Launch:
    import torch

    sequences = Sequences.of(p)
    rows, at = (torch.tensor(numbers, device=packed_qkv.device) for numbers in sequences.positions())
    stored = [
        (_part(p, name, packed_qkv), rest[f"{name}_cache"], rest.get(f"{name}_scale")) for name in _stored_names(p)
    ]

    def quantize(part: Any, scale: Any) -> Any:
        return part if scale is None else (part / scale).round().clamp(-LARGEST, LARGEST).to(torch.int8)

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

OPERATORS: tuple[Any, ...] = (STORE,)
