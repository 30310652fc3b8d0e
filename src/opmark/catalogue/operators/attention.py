"""Attention: scaled_dot_product_attention, and flash_attention and flash_decoding over a cache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import sqrt
from typing import Any

from opmark.catalogue.operators import _attention as _attend
from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._attention import BLOCK_SIZE, SEQUENCE_RULES, Sequences, sequence_params
from opmark.catalogue.operators._builders import attention, formula, torch
from opmark.catalogue.operators._quantization import Rounded8, as_bytes
from opmark.catalogue.operators.kv_cache import CACHE_DTYPE, cache_dtype, cache_specs, narrow
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, flag, integer, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, FLOATS8, sizeof

DTYPE = dtype(*FLOATS, *FLOATS8, doc="element type; a float8 is multiplied as it is, and the result is bfloat16")


class AttentionTolerance(Rounded8):
    """Caches of 8-bit numbers are exact. Where the queries have 8 bits, the weights of the values are rounded to as
    many, and so may be the result."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        if params["dtype"] not in FLOATS8:
            return super().bounds(dtype, params)
        relative, typical = Tolerance.bounds(self, dtype, params)
        return 2 * relative, 2 * typical


def _result_dtype(p: Params) -> str:
    return "bfloat16" if p["dtype"] in FLOATS8 else str(p["dtype"])


def _kv_heads(p: Params) -> int:
    return int(p["kv_heads"] or p["heads"])


def _inputs(p: Params) -> dict[str, TensorSpec]:
    kv = (p["batch"], _kv_heads(p), p["kv_len"], p["head_dim"])
    return {
        "q": TensorSpec((p["batch"], p["heads"], p["q_len"], p["head_dim"]), p["dtype"]),
        "k": TensorSpec(kv, p["dtype"]),
        "v": TensorSpec(kv, p["dtype"]),
    }


def _pairs(p: Params) -> int:
    """Return the number of pairs of a query and a key that it sees."""
    seen = p["q_len"] * (p["q_len"] + 1) // 2 if p["causal"] else p["q_len"] * p["kv_len"]
    return int(p["batch"] * p["heads"] * seen)


def _cost(p: Params) -> Cost:
    """Count two products of head_dim multiply-adds per pair; the softmax is by convention not counted."""
    specs = _inputs(p)
    written = specs["q"].elements * sizeof(_result_dtype(p))
    return Cost(4 * _pairs(p) * p["head_dim"], nbytes(specs.values()), written)


def _backward_cost(p: Params) -> Cost:
    """Count four products for the gradients and one to recompute the scores; the output and its gradient are read."""
    specs = _inputs(p)
    read = nbytes(specs.values()) + 2 * specs["q"].nbytes
    return Cost(10 * _pairs(p) * p["head_dim"], read, nbytes(specs.values()))


def _attention(p: Params, q: Any, k: Any, v: Any) -> Any:
    seen = np.tri(p["q_len"], p["kv_len"], dtype=bool)[p.get("q_len_at", slice(None))] if p["causal"] else None
    return attention(q, k, v, p["head_dim"] ** -0.5, seen)


def _torch(p: Params, q: Any, k: Any, v: Any) -> Launch:
    from torch.nn.functional import scaled_dot_product_attention

    if p["dtype"] in FLOATS8:
        return partial(_attend.compile_flex(p["head_dim"] ** -0.5, q, k, v, causal=p["causal"]), q, k, v)
    grouped = _kv_heads(p) != p["heads"]
    return partial(scaled_dot_product_attention, q, k, v, is_causal=p["causal"], enable_gqa=grouped)


def _preset(batch: int, heads: int, length: int, head_dim: int) -> dict[str, Any]:
    return {"batch": batch, "heads": heads, "q_len": length, "kv_len": length, "head_dim": head_dim}


SDPA = Operator(
    name="scaled_dot_product_attention",
    summary="softmax(q k' / sqrt(head_dim)) v, for each head",
    category="attention",
    params=(
        size("batch", "sequences"),
        size("heads", "heads of the queries"),
        size("q_len", "queries per sequence"),
        size("kv_len", "keys and values per sequence"),
        size("head_dim", "elements of a head"),
        integer("kv_heads", "heads of keys and values, each shared by a group of query heads; 0: as many as heads",
                0, kind="count"),
        flag("causal", "a query sees no later key"),
        DTYPE,
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_attention,
    # A result is the mean of about kv_len values between -1 and 1.
    tolerance=AttentionTolerance(magnitude=lambda p: (3 * p["kv_len"]) ** -0.5),
    result_dtype=_result_dtype,
    presets={
        "small": _preset(1, 4, 128, 64),
        "typical": _preset(4, 8, 512, 64),
        "large": _preset(4, 16, 2048, 128),
    },
    rules=(
        ParamRule("kv_heads", "divide heads={heads} (got {kv_heads})", lambda p: p["heads"] % _kv_heads(p) == 0),
        ParamRule("causal", "be false unless q_len equals kv_len (got {q_len} and {kv_len})",
             lambda p: not p["causal"] or p["q_len"] == p["kv_len"]),
    ),
    gradients=("q", "k", "v"),
    sample=("q_len",),
    implementations=(
        Implementation("numpy", lambda p, q, k, v: partial(_attention, p, q, k, v)),
        torch(_torch, "torch.nn.functional.scaled_dot_product_attention"),
    ),
    aliases=("sdpa",),
)  # fmt: skip


# Attention over a cache of keys and values, for a prompt (flash_attention) or for one token (flash_decoding).


def _flash_kv_heads(p: Params) -> int:
    return int(p["kv_heads"] or p["q_heads"])


def _fill_kv_heads(p: Params) -> dict[str, Any]:
    """Return the parameters with the number of key heads filled in."""
    return {**p, "kv_heads": _flash_kv_heads(p)}


def _flash_inputs(p: Params) -> dict[str, TensorSpec]:
    shape = (Sequences.of(p).tokens, p["q_heads"], p["head_dim"])
    return {"q": TensorSpec(shape, p["dtype"]), **cache_specs(_fill_kv_heads(p))}


def _flash_cost(p: Params) -> Cost:
    """Count only the cached tokens of each sequence, without unused ends of rows and pages."""
    sequences = Sequences.of(p)
    elements = sequences.tokens * p["q_heads"] * p["head_dim"]
    heads = 2 * _flash_kv_heads(p) * p["head_dim"]
    kv = sum(sequences.kv) * heads * sizeof(cache_dtype(p)) + (heads * sizeof("float32") if narrow(p) else 0)
    pages = sum(sequences.pages) if p["block_size"] else 0
    flops = 4 * sequences.pairs * p["q_heads"] * p["head_dim"]
    read = elements * sizeof(p["dtype"]) + kv + sequences.table_bytes(pages)
    return Cost(flops, read, elements * sizeof(_result_dtype(p)))


def _flash_attention(p: Params, q: Any, block_table: Any = None, **rest: Any) -> Any:
    sequences = Sequences.of(p)

    def rows_of(name: str) -> Any:
        scale = rest[f"{name}_scale"][:, None] if narrow(p) else 1
        return lambda row: _attend.keys_of(sequences, row, rest[f"{name}_cache"], block_table) * scale

    scale = 1 / sqrt(p["head_dim"])
    return _attend.numpy_attention(sequences, q, rows_of("k"), rows_of("v"), scale, p.get("q_len_at"))


_REFERENCE, _OBSERVE = _attend.scale_by_keys_seen(_flash_attention)


def _flash_torch(inner: Any, inner_float8: Any) -> Any:
    """Return a builder; `inner(scale)` and, for queries of 8-bit floats, `inner_float8(scale)` return attention of one
    sequence or several alike."""

    def build(p: Params, q: Any, block_table: Any = None, **rest: Any) -> Launch:
        def part(name: str, keys: Any) -> Any:
            cache = rest[f"{name}_cache"]
            found = keys(as_bytes(cache)).view(cache.dtype)
            if not narrow(p):
                return found
            numbers = found.float() if cache.is_floating_point() else found
            return (numbers * rest[f"{name}_scale"].unsqueeze(1)).to(q.dtype)

        def fetch(keys: Any) -> tuple[Any, Any]:
            return part("k", keys), part("v", keys)

        scaled = (inner_float8 if p["dtype"] in FLOATS8 else inner)(1 / sqrt(p["head_dim"]))
        return _attend.torch_attention(Sequences.of(p), q, block_table, scaled, fetch, _flash_kv_heads(p))

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
            DTYPE,
        ),
        inputs=_flash_inputs,
        cost=_flash_cost,
        reference=_REFERENCE,
        observe=_OBSERVE,
        tolerance=AttentionTolerance(),
        result_dtype=_result_dtype,
        sample=("q_len",),
        presets=presets,
        rules=(
            *SEQUENCE_RULES,
            ParamRule("kv_heads", "divide q_heads={q_heads} (got {kv_heads})",
                 lambda p: p["q_heads"] % _flash_kv_heads(p) == 0),
            ParamRule("cache_dtype", "be same for queries of {dtype} (got {cache_dtype})",
                 lambda p: p["dtype"] not in FLOATS8 or not narrow(p)),
        ),
        partial=True,
        implementations=(
            formula(_flash_attention),
            torch(_flash_torch(_attend.sdpa, _attend.flex_float8), "torch.nn.functional.scaled_dot_product_attention",
                  "sdpa"),
            torch(_flash_torch(_attend.matmul_chain, _attend.chain_float8), name="matmul"),
        ),
        aliases=aliases,
    )  # fmt: skip


FLASH_ATTENTION_OPERATORS = (
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


# rotary_embedding: rotate queries and keys by an angle that grows with their position.

_BASE = 10000.0


def _rope_dim(p: Params) -> int:
    return int(p["rope_dim"] or p["head_dim"] - p["rope_offset"])


def _rotated_heads(p: Params) -> int:
    """Return the number of heads that are rotated: queries and keys, not values."""
    return int(p["q_heads"] + p["kv_heads"])


def _table(p: Params, wave: str, generator: Any) -> Any:
    """Return cos or sin of position x frequency, with the frequencies repeated for both halves."""
    half = _rope_dim(p) // 2
    frequencies = _BASE ** (-np.arange(half) / half)
    angles = np.outer(np.arange(max(Sequences.of(p).kv)), frequencies)
    return np.tile(getattr(np, wave)(angles), 2)


def _rotary_inputs(p: Params) -> dict[str, TensorSpec]:
    sequences = Sequences.of(p)
    table = (max(sequences.kv), _rope_dim(p))
    return {
        "packed_qkv": TensorSpec((sequences.tokens, _rotated_heads(p) + p["kv_heads"], p["head_dim"]), p["dtype"]),
        "cos": TensorSpec(table, p["dtype"], make=partial(_table, p, "cos")),
        "sin": TensorSpec(table, p["dtype"], make=partial(_table, p, "sin")),
    }


def _traffic(p: Params) -> tuple[int, int]:
    """Return the elements of queries and keys, and of both tables at the positions that occur."""
    sequences = Sequences.of(p)
    return sequences.tokens * _rotated_heads(p) * p["head_dim"], 2 * sequences.places_used() * _rope_dim(p)


def _rotary_cost(p: Params) -> Cost:
    """Count two products and a sum for each rotated element."""
    n, table = _traffic(p)
    flops = 3 * Sequences.of(p).tokens * _rotated_heads(p) * _rope_dim(p)
    return Cost(flops, (n + table) * sizeof(p["dtype"]), n * sizeof(p["dtype"]))


def _rotary_backward_cost(p: Params) -> Cost:
    """Count the inverse rotation; the gradient of the values is zero, but it is written."""
    return Cost(_rotary_cost(p).flops, _rotary_cost(p).bytes_read, _rotary_inputs(p)["packed_qkv"].nbytes)


def _rotary(p: Params, packed_qkv: Any, cos: Any, sin: Any) -> Any:
    start, dim = p["rope_offset"], _rope_dim(p)
    places = Sequences.of(p).positions()[1]
    c, s = cos[places][:, None], sin[places][:, None]
    kept = packed_qkv[:, : _rotated_heads(p)]
    x = kept[..., start : start + dim]
    other = np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)
    return np.concatenate([kept[..., :start], x * c + other * s, kept[..., start + dim :]], axis=-1)


def _rotary_torch(p: Params, packed_qkv: Any, cos: Any, sin: Any) -> Launch:
    import torch

    start, dim, heads = p["rope_offset"], _rope_dim(p), _rotated_heads(p)
    places = torch.tensor(Sequences.of(p).positions()[1], device=packed_qkv.device)

    def turn(x: Any) -> Any:
        c, s = cos.index_select(0, places).unsqueeze(1), sin.index_select(0, places).unsqueeze(1)
        other = torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), dim=-1)
        return x * c + other * s

    if dim == p["head_dim"]:
        return lambda: turn(packed_qkv[:, :heads])

    def launch() -> Any:
        kept = packed_qkv[:, :heads]
        turned = turn(kept[..., start : start + dim])
        return torch.cat((kept[..., :start], turned, kept[..., start + dim :]), dim=-1)

    return launch


ROTARY = Operator(
    name="rotary_embedding",
    summary="queries and keys rotated in the planes of elements i and i + rope_dim / 2, by their position",
    category="attention",
    params=(
        *sequence_params(),
        size("q_heads", "heads of the queries"),
        size("kv_heads", "heads of keys, and of values, which are unchanged"),
        size("head_dim", "elements of a head"),
        integer("rope_dim", "elements of a head that are rotated; 0: all from rope_offset on", 0, kind="count"),
        integer("rope_offset", "first element of a head that is rotated", 0, kind="count"),
        dtype(*FLOATS),
    ),
    inputs=_rotary_inputs,
    cost=_rotary_cost,
    backward_cost=_rotary_backward_cost,
    reference=_rotary,
    presets={
        "small": {"batch": 2, "q_len": 32, "q_heads": 8, "kv_heads": 2, "head_dim": 64},
        "typical": {"batch": 4, "q_len": 128, "cache_len": 128, "q_heads": 16, "kv_heads": 4, "head_dim": 128},
        "large": {"batch": 4, "q_len": 4096, "cache_len": 1024, "q_heads": 32, "kv_heads": 8, "head_dim": 128},
    },
    rules=(
        *SEQUENCE_RULES,
        ParamRule("rope_offset",
             "leave room for rope_dim within head_dim={head_dim} (got {rope_offset} and {rope_dim})",
             lambda p: p["rope_offset"] < p["head_dim"] and p["rope_offset"] + _rope_dim(p) <= p["head_dim"]),
        ParamRule("rope_dim", "be even: elements are rotated in pairs (got {rope_dim}; head_dim={head_dim})",
             lambda p: _rope_dim(p) % 2 == 0),
    ),
    gradients=("packed_qkv",),
    partial=True,
    implementations=(formula(_rotary), torch(_rotary_torch)),
    aliases=("rope", "apply_rotary_pos_emb"),
)  # fmt: skip


OPERATORS = (
    SDPA,
    *FLASH_ATTENTION_OPERATORS,
    ROTARY,
)
