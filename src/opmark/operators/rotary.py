"""rotary_embedding: rotate queries and keys by an angle that grows with their position."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._sequences import SEQUENCE_RULES, Sequences, sequence_params
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, integer, size

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


def _inputs(p: Params) -> dict[str, TensorSpec]:
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


def _cost(p: Params) -> Cost:
    """Count two products and a sum for each rotated element."""
    n, table = _traffic(p)
    flops = 3 * Sequences.of(p).tokens * _rotated_heads(p) * _rope_dim(p)
    return Cost(flops, (n + table) * sizeof(p["dtype"]), n * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Count the inverse rotation; the gradient of the values is zero, but it is written."""
    return Cost(_cost(p).flops, _cost(p).bytes_read, _inputs(p)["packed_qkv"].nbytes)


def _rotary(p: Params, packed_qkv: Any, cos: Any, sin: Any) -> Any:
    start, dim = p["rope_offset"], _rope_dim(p)
    places = Sequences.of(p).positions()[1]
    c, s = cos[places][:, None], sin[places][:, None]
    kept = packed_qkv[:, : _rotated_heads(p)]
    x = kept[..., start : start + dim]
    other = np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)
    return np.concatenate([kept[..., :start], x * c + other * s, kept[..., start + dim :]], axis=-1)


def _torch(p: Params, packed_qkv: Any, cos: Any, sin: Any) -> Launch:
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
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_rotary,
    presets={
        "small": {"batch": 2, "q_len": 32, "q_heads": 8, "kv_heads": 2, "head_dim": 64},
        "typical": {"batch": 4, "q_len": 128, "cache_len": 128, "q_heads": 16, "kv_heads": 4, "head_dim": 128},
        "large": {"batch": 4, "q_len": 4096, "cache_len": 1024, "q_heads": 32, "kv_heads": 8, "head_dim": 128},
    },
    rules=(
        *SEQUENCE_RULES,
        Rule("rope_offset", "leave room for rope_dim within head_dim={head_dim} (got {rope_offset} and {rope_dim})",
             lambda p: p["rope_offset"] < p["head_dim"] and p["rope_offset"] + _rope_dim(p) <= p["head_dim"]),
        Rule("rope_dim", "be even: elements are rotated in pairs (got {rope_dim}; head_dim={head_dim})",
             lambda p: _rope_dim(p) % 2 == 0),
    ),
    gradients=("packed_qkv",),
    partial=True,
    implementations=(formula(_rotary), torch(_torch)),
    aliases=("rope", "apply_rotary_pos_emb"),
)  # fmt: skip

OPERATORS = (ROTARY,)
