"""Fused patterns around a product or a normalisation: linear_relu, linear_gelu, linear_add, add_layer_norm,
matmul_softmax_matmul."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.operators import _numpy as np
from opmark.operators._build import formula
from opmark.operators._formulas import attention, gelu, layer_norm
from opmark.operators._fused import compiled, fused, on_cpu, refuse_device, unfused
from opmark.schema import Cost, Launch, Operator, Param, Params, Rule, TensorSpec, Tolerance
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import choice, dtype, real, shape, size

LINEAR_PARAMS = (size("M", "rows of x"), size("N", "features out"), size("K", "features in"))
LINEAR_PRESETS = {
    "small": {"M": 64, "N": 64, "K": 64},
    "typical": {"M": 512, "N": 1024, "K": 512},
    "large": {"M": 8192, "N": 8192, "K": 4096},
}
ROW_PRESETS = {
    "small": {"shape": [64, 256]},
    "typical": {"shape": [1024, 1024]},
    "large": {"shape": [8192, 4096]},
}


def _linear_inputs(p: Params, third: tuple[int, ...], name: str) -> dict[str, TensorSpec]:
    x, weight = TensorSpec((p["M"], p["K"]), p["dtype"]), TensorSpec((p["N"], p["K"]), p["dtype"])
    return {"x": x, "weight": weight, name: TensorSpec(third, p["dtype"])}


def _linear_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return np.maximum(x @ weight.T + bias, 0)


def _linear_gelu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return gelu(x @ weight.T + bias, p["approximate"])


def _relu_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import linear, relu

    return lambda x, weight, bias: relu(linear(x, weight, bias))


def _gelu_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import gelu, linear

    kind = p["approximate"]
    return lambda x, weight, bias: gelu(linear(x, weight, bias), approximate=kind)


def _native_linear(p: Params, x: Any, weight: Any, bias: Any) -> Launch:
    """Build a launch of oneDNN's or cuBLASLt's product with the activation as an epilogue."""
    import torch

    refuse_device(x, "linear layer with an activation")
    kind = p.get("approximate")
    if on_cpu(x):
        call = torch.ops.mkldnn._linear_pointwise
        return partial(call, x, weight, bias, "gelu" if kind else "relu", [], kind or "")
    if kind == "none":
        raise Unsupported("on cuda, torch's fused linear layer has only the tanh approximation of gelu")
    if kind and x.dtype == torch.float64:
        raise Unsupported("on cuda, torch's fused linear layer computes gelu only in float32 precision")
    return partial(torch.ops.aten._addmm_activation, bias, x, weight.t(), use_gelu=bool(kind))


def _linear(name: str, summary: str, *, reference: Any, chain: Any, flops: int, params: tuple[Param, ...] = (),
            aliases: tuple[str, ...]) -> Operator:  # fmt: skip
    """Make a linear layer with an activation of `flops` operations per element."""

    def inputs(p: Params) -> dict[str, TensorSpec]:
        return _linear_inputs(p, (p["N"],), "bias")

    def cost(p: Params) -> Cost:
        n = p["M"] * p["N"]
        return Cost((2 * p["K"] + 1 + flops) * n, nbytes(inputs(p).values()), n * sizeof(p["dtype"]))

    return Operator(
        name=name,
        summary=summary,
        category="fused",
        params=(*LINEAR_PARAMS, *params, dtype(*FLOATS)),
        inputs=inputs,
        cost=cost,
        reference=reference,
        tolerance=sum_of_products(lambda p: int(p["K"]) + 1),
        presets=LINEAR_PRESETS,
        implementations=(formula(reference), unfused(chain), fused(_native_linear), compiled(chain)),
        aliases=aliases,
    )


APPROXIMATE = choice("approximate", "how gelu is computed: exactly, or by a tanh", ("none", "tanh"), "none")


def _linear_add(p: Params, x: Any, weight: Any, other: Any) -> Any:
    return other + x @ weight.T


def _add_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import linear

    return lambda x, weight, other: linear(x, weight) + other


def _native_add(p: Params, x: Any, weight: Any, other: Any) -> Launch:
    from torch import addmm

    return partial(addmm, other, x, weight.t())


LINEAR_ADD = Operator(
    name="linear_add",
    summary="other[M,N] + x[M,K] weight[N,K]ᵀ, as at the end of a residual block",
    category="fused",
    params=(*LINEAR_PARAMS, dtype(*FLOATS)),
    inputs=lambda p: _linear_inputs(p, (p["M"], p["N"]), "other"),
    cost=lambda p: Cost(
        (2 * p["K"] + 1) * p["M"] * p["N"],
        (p["M"] * p["K"] + p["N"] * p["K"] + p["M"] * p["N"]) * sizeof(p["dtype"]),
        p["M"] * p["N"] * sizeof(p["dtype"]),
    ),
    reference=_linear_add,
    tolerance=sum_of_products(lambda p: int(p["K"]) + 1),
    presets=LINEAR_PRESETS,
    implementations=(formula(_linear_add), unfused(_add_chain), fused(_native_add), compiled(_add_chain)),
    aliases=("fc_sum", "linear_sum"),
)


def _row_specs(p: Params, tensors: tuple[str, ...], vectors: tuple[str, ...]) -> dict[str, TensorSpec]:
    full = {name: TensorSpec(tuple(p["shape"]), p["dtype"]) for name in tensors}
    return full | {name: TensorSpec((p["shape"][-1],), p["dtype"], 0.5, 1.5) for name in vectors}


def _add_layer_norm(p: Params, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return layer_norm(p, x + residual, weight, bias)


def _norm_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import layer_norm

    size, eps = (p["shape"][-1],), p["eps"]
    return lambda x, residual, weight, bias: layer_norm(x + residual, size, weight, bias, eps)


def _norm_inputs(p: Params) -> dict[str, TensorSpec]:
    return _row_specs(p, ("x", "residual"), ("weight", "bias"))


ADD_LAYER_NORM = Operator(
    name="add_layer_norm",
    summary="layer_norm(x + residual) along the last axis",
    category="fused",
    params=(
        shape("shape", "shape of x and residual; the last axis is normalised"),
        real("eps", "added to the variance before the root", 1e-5, kind="amount"),
        dtype(*FLOATS),
    ),
    inputs=_norm_inputs,
    # 1 for the sum and 7 for layer_norm.
    cost=lambda p: Cost(8 * prod(p["shape"]), nbytes(_norm_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
    reference=_add_layer_norm,
    presets=ROW_PRESETS,
    rules=(Rule("shape", "have at least 4 elements along the last axis (got {shape})", lambda p: p["shape"][-1] >= 4),),
    implementations=(formula(_add_layer_norm), unfused(_norm_chain), compiled(_norm_chain)),
    aliases=("SkipLayerNormalization", "add_layernorm"),
)


def _attention(p: Params, q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, p["head_dim"] ** -0.5)


def _attention_chain(p: Params) -> Callable[..., Any]:
    from torch import softmax

    scale = p["head_dim"] ** -0.5
    return lambda q, k, v: softmax(q @ k.transpose(-1, -2) * scale, -1) @ v


def _native_attention(p: Params, q: Any, k: Any, v: Any) -> Launch:
    from torch.nn.functional import scaled_dot_product_attention

    return partial(scaled_dot_product_attention, q, k, v)


def _attention_inputs(p: Params) -> dict[str, TensorSpec]:
    spec = TensorSpec((p["batch"], p["heads"], p["length"], p["head_dim"]), p["dtype"])
    return {"q": spec, "k": spec, "v": spec}


def _attention_preset(batch: int, heads: int, length: int, head_dim: int) -> dict[str, int]:
    return {"batch": batch, "heads": heads, "length": length, "head_dim": head_dim}


ATTENTION = Operator(
    name="matmul_softmax_matmul",
    summary="softmax(q k' / sqrt(head_dim)) v: the chain behind attention",
    category="fused",
    params=(
        size("batch", "sequences"),
        size("heads", "heads"),
        size("length", "queries, keys and values per sequence"),
        size("head_dim", "elements of a head"),
        dtype(*FLOATS),
    ),
    inputs=_attention_inputs,
    # Two products; the softmax is by convention not counted.
    cost=lambda p: Cost(
        4 * p["batch"] * p["heads"] * p["length"] ** 2 * p["head_dim"],
        nbytes(_attention_inputs(p).values()),
        _attention_inputs(p)["q"].nbytes,
    ),
    reference=_attention,
    # A result is the mean of `length` values between -1 and 1.
    tolerance=Tolerance(magnitude=lambda p: (3 * p["length"]) ** -0.5),
    presets={
        "small": _attention_preset(1, 2, 64, 32),
        "typical": _attention_preset(2, 8, 256, 64),
        "large": _attention_preset(4, 16, 2048, 128),
    },
    implementations=(
        formula(_attention),
        unfused(_attention_chain),
        fused(_native_attention),
        compiled(_attention_chain),
    ),
    aliases=("attention_chain", "unfused_attention"),
)

OPERATORS: tuple[Operator, ...] = (
    _linear("linear_relu", "relu(x weightᵀ + bias)", reference=_linear_relu, chain=_relu_chain, flops=0,
            aliases=("linear_bias_relu", "LinearReLU")),
    _linear("linear_gelu", "gelu(x weightᵀ + bias)", reference=_linear_gelu, chain=_gelu_chain, flops=5,
            params=(APPROXIMATE,), aliases=("linear_bias_gelu", "LinearGELU")),
    LINEAR_ADD,
    ADD_LAYER_NORM,
    ATTENTION,
)  # fmt: skip
