"""Norms of language models: add_rms_norm, head_rms_norm, qk_rms_norm."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, numpy, rms, torch
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, integer, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

EPS = real("eps", "added to the mean square before the root", 1e-5, kind="amount")
TOKENS = (
    size("num_tokens", "tokens of all ranks"),
    size("sp_size", "ranks that share the tokens; one rank's work is measured", 1),
)
HIDDEN = size("hidden_size", "elements of a token")
ENOUGH_TOKENS = ParamRule("sp_size", "be at most num_tokens={num_tokens} (got {sp_size})",
                     lambda p: p["num_tokens"] >= p["sp_size"])  # fmt: skip


def tokens(p: Params) -> int:
    return int(p["num_tokens"] // p["sp_size"])


def long_enough(name: str) -> ParamRule:
    """With fewer elements, the result of normalising would be mostly rounding errors."""
    return ParamRule(name, f"be at least 4 (got {{{name}}})", lambda p: p[name] >= 4)


def _add_inputs(p: Params) -> dict[str, TensorSpec]:
    x = TensorSpec((tokens(p), p["hidden_size"]), p["dtype"])
    return {"x": x, "residual": x, "weight": TensorSpec((p["hidden_size"],), p["dtype"], 0.5, 1.5)}


def _add_cost(p: Params, flops: int, tensors_read: int, vectors_written: int = 0) -> Cost:
    n, hidden, nbytes = tokens(p) * p["hidden_size"], p["hidden_size"], sizeof(p["dtype"])
    return Cost(flops * n, (tensors_read * n + hidden) * nbytes, (2 * n + vectors_written * hidden) * nbytes)


def _add_rms_norm(p: Params, x: Any, residual: Any, weight: Any) -> Any:
    added = x + residual
    return rms(p, added) * weight, added


def _torch_add(p: Params, x: Any, residual: Any, weight: Any) -> Launch:
    from torch.nn.functional import rms_norm

    def launch() -> Any:
        added = x + residual
        return rms_norm(added, (p["hidden_size"],), weight, p["eps"]), added

    return launch


ADD_RMS_NORM = Operator(
    name="add_rms_norm",
    summary="two outputs: x + residual, and the same with unit root mean square and scaled",
    category="normalization",
    params=(*TOKENS, HIDDEN, EPS, dtype(*FLOATS)),
    inputs=_add_inputs,
    # Sum 1; square and sum 2, quotient 1, scale 1.
    cost=lambda p: _add_cost(p, flops=5, tensors_read=2),
    # The gradients of both outputs and the sum are read; the norm's gradient is added to that of the sum.
    backward_cost=lambda p: _add_cost(p, flops=10, tensors_read=3, vectors_written=1),
    reference=_add_rms_norm,
    presets={
        "small": {"num_tokens": 64, "hidden_size": 256},
        "typical": {"num_tokens": 512, "hidden_size": 1024},
        "large": {"num_tokens": 8192, "hidden_size": 4096},
    },
    rules=(ENOUGH_TOKENS, long_enough("hidden_size")),
    gradients=("x", "residual", "weight"),
    implementations=(formula(_add_rms_norm), torch(_torch_add)),
    aliases=("fused_add_rms_norm",),
)


def _norm_heads(p: Params) -> int:
    return int(p["norm_heads"] or p["heads"] - p["norm_start"])


def _head_inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((tokens(p), p["heads"], p["head_dim"]), p["dtype"]),
        "weight": TensorSpec((p["head_dim"],), p["dtype"], 0.5, 1.5),
    }


def _head_cost(p: Params) -> Cost:
    """Count only the heads that are normalised."""
    n, nbytes = tokens(p) * _norm_heads(p) * p["head_dim"], sizeof(p["dtype"])
    return Cost(4 * n, (n + p["head_dim"]) * nbytes, n * nbytes)


def _head_backward_cost(p: Params) -> Cost:
    """Normalised heads and their incoming gradients are read; the zero gradient of the other heads is written too."""
    n, all_of_x = tokens(p) * _norm_heads(p) * p["head_dim"], _head_inputs(p)["x"].nbytes
    weight = p["head_dim"] * sizeof(p["dtype"])
    return Cost(9 * n, 2 * n * sizeof(p["dtype"]) + weight, all_of_x + weight)


def _head_rms_norm(p: Params, x: Any, weight: Any) -> Any:
    return rms(p, x[:, p["norm_start"] : p["norm_start"] + _norm_heads(p)]) * weight


def _torch_head(p: Params, x: Any, weight: Any) -> Launch:
    from torch.nn.functional import rms_norm

    chosen = slice(p["norm_start"], p["norm_start"] + _norm_heads(p))
    return lambda: rms_norm(x[:, chosen], (p["head_dim"],), weight, p["eps"])


HEAD_RMS_NORM = Operator(
    name="head_rms_norm",
    summary="unit root mean square of each head, then scale, for some of the heads of a token",
    category="normalization",
    params=(
        *TOKENS,
        size("heads", "heads of a token"),
        size("head_dim", "elements of a head"),
        integer("norm_start", "first head that is normalised", 0, kind="count"),
        integer("norm_heads", "heads that are normalised; 0: all from norm_start on", 0, kind="count"),
        EPS,
        dtype(*FLOATS),
    ),
    inputs=_head_inputs,
    cost=_head_cost,
    backward_cost=_head_backward_cost,
    reference=_head_rms_norm,
    presets={
        "small": {"num_tokens": 32, "heads": 10, "head_dim": 64, "norm_heads": 8},
        "typical": {"num_tokens": 512, "heads": 20, "head_dim": 128, "norm_heads": 16},
        "large": {"num_tokens": 8192, "heads": 48, "head_dim": 128, "norm_heads": 32},
    },
    rules=(
        ENOUGH_TOKENS,
        ParamRule("norm_heads", "end within the {heads} heads (got {norm_heads} from {norm_start} on)",
             lambda p: p["norm_start"] < p["heads"] and p["norm_start"] + _norm_heads(p) <= p["heads"]),
        long_enough("head_dim"),
    ),
    gradients=("x", "weight"),
    partial=True,
    implementations=(formula(_head_rms_norm), torch(_torch_head, "torch.nn.functional.rms_norm")),
)  # fmt: skip


def _qk_inputs(p: Params) -> dict[str, TensorSpec]:
    width = (p["q_heads"] + p["kv_heads"]) * p["qk_head_dim"] + p["kv_heads"] * p["v_head_dim"]
    # Weights have magnitude 1: repeated in place, others would take elements to denormal numbers, which are slow.
    weight = TensorSpec((p["qk_head_dim"],), p["dtype"], make=partial(_signs, p["qk_head_dim"]))
    return {"packed_qkv": TensorSpec((tokens(p), width), p["dtype"]), "q_weight": weight, "k_weight": weight}


def _signs(n: int, generator: Any) -> Any:
    """Return both signs in random order."""
    return generator.permutation(np.where(np.arange(n) % 2, 1.0, -1.0))


def _qk_cost(p: Params) -> Cost:
    n, nbytes = tokens(p) * (p["q_heads"] + p["kv_heads"]) * p["qk_head_dim"], sizeof(p["dtype"])
    return Cost(4 * n, (n + 2 * p["qk_head_dim"]) * nbytes, n * nbytes)


def _parts(p: Params) -> tuple[tuple[slice, str], ...]:
    """Return the slices of queries and keys in a token, and the names of their weights."""
    end = p["q_heads"] * p["qk_head_dim"]
    return (slice(0, end), "q_weight"), (slice(end, end + p["kv_heads"] * p["qk_head_dim"]), "k_weight")


def _qk_rms_norm(p: Params, packed_qkv: Any, **weights: Any) -> Any:
    result = np.array(packed_qkv)
    for where, name in _parts(p):
        heads = packed_qkv[:, where].reshape(len(packed_qkv), -1, p["qk_head_dim"])
        result[:, where] = (rms(p, heads) * weights[name]).reshape(len(packed_qkv), -1)
    return result


def _numpy_qk(p: Params, packed_qkv: Any, **weights: Any) -> Launch:
    def launch() -> Any:
        for where, name in _parts(p):
            heads = packed_qkv[:, where].reshape(len(packed_qkv), -1, p["qk_head_dim"])
            wide = heads.astype(np.promote_types(heads.dtype, np.float32), copy=False)
            packed_qkv[:, where] = (rms(p, wide) * weights[name]).reshape(len(packed_qkv), -1)
        return packed_qkv

    return launch


def _torch_qk(p: Params, packed_qkv: Any, **weights: Any) -> Launch:
    from torch.nn.functional import rms_norm

    dim = p["qk_head_dim"]
    parts = [(packed_qkv[:, where].unflatten(1, (-1, dim)), weights[name]) for where, name in _parts(p)]

    def launch() -> Any:
        for heads, weight in parts:
            heads.copy_(rms_norm(heads, (dim,), weight, p["eps"]))
        return packed_qkv

    return launch


QK_RMS_NORM = Operator(
    name="qk_rms_norm",
    summary="unit root mean square of each head of queries and keys, in place; values are unchanged",
    category="normalization",
    params=(
        *TOKENS,
        size("q_heads", "heads of the queries"),
        size("kv_heads", "heads of keys, and of values"),
        size("qk_head_dim", "elements of a head of queries and keys"),
        size("v_head_dim", "elements of a head of values"),
        EPS,
        dtype(*FLOATS),
    ),
    inputs=_qk_inputs,
    cost=_qk_cost,
    reference=_qk_rms_norm,
    presets={
        "small": {"num_tokens": 32, "q_heads": 8, "kv_heads": 2, "qk_head_dim": 64, "v_head_dim": 64},
        "typical": {"num_tokens": 512, "q_heads": 16, "kv_heads": 4, "qk_head_dim": 128, "v_head_dim": 128},
        "large": {"num_tokens": 8192, "q_heads": 32, "kv_heads": 8, "qk_head_dim": 128, "v_head_dim": 128},
    },
    rules=(ENOUGH_TOKENS, long_enough("qk_head_dim")),
    mutates=("packed_qkv",),
    partial=True,
    implementations=(numpy(_numpy_qk), torch(_torch_qk, "torch.nn.functional.rms_norm")),
)

OPERATORS = (ADD_RMS_NORM, HEAD_RMS_NORM, QK_RMS_NORM)
