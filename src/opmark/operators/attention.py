"""Attention: scaled_dot_product_attention."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import torch
from opmark.operators._formulas import attention
from opmark.schema import Cost, Implementation, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS
from opmark.schema.param import dtype, flag, integer, size


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
    return Cost(4 * _pairs(p) * p["head_dim"], nbytes(specs.values()), specs["q"].nbytes)


def _backward_cost(p: Params) -> Cost:
    """Count four products for the gradients and one to recompute the scores; the output and its gradient are read."""
    specs = _inputs(p)
    read = nbytes(specs.values()) + 2 * specs["q"].nbytes
    return Cost(10 * _pairs(p) * p["head_dim"], read, nbytes(specs.values()))


def _attention(p: Params, q: Any, k: Any, v: Any) -> Any:
    seen = np.tri(p["q_len"], p["kv_len"], dtype=bool) if p["causal"] else None
    return attention(q, k, v, p["head_dim"] ** -0.5, seen)


def _torch(p: Params, q: Any, k: Any, v: Any) -> Launch:
    from torch.nn.functional import scaled_dot_product_attention

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
        dtype(*FLOATS),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_attention,
    # A result is the mean of about kv_len values between -1 and 1.
    tolerance=Tolerance(magnitude=lambda p: (3 * p["kv_len"]) ** -0.5),
    presets={
        "small": _preset(1, 4, 128, 64),
        "typical": _preset(4, 8, 512, 64),
        "large": _preset(4, 16, 2048, 128),
    },
    rules=(
        Rule("kv_heads", "divide heads={heads} (got {kv_heads})", lambda p: p["heads"] % _kv_heads(p) == 0),
        Rule("causal", "be false unless q_len equals kv_len (got {q_len} and {kv_len})",
             lambda p: not p["causal"] or p["q_len"] == p["kv_len"]),
    ),
    gradients=("q", "k", "v"),
    implementations=(
        Implementation("numpy", lambda p, q, k, v: partial(_attention, p, q, k, v)),
        torch(_torch, "torch.nn.functional.scaled_dot_product_attention"),
    ),
    aliases=("sdpa",),
)  # fmt: skip

OPERATORS = (SDPA,)
