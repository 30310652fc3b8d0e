"""Fused patterns around a product, a normalisation or a convolution, as compilers fuse them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import attention, formula, gelu, layer_norm
from opmark.catalogue.operators._fusion import compiled, fused, on_cpu, refuse_device, unfused
from opmark.catalogue.operators.channel_norm import EPS, MOMENTUM, MOMENTUM_IS_A_SHARE, TRAINING, batch_norm, numpy_norm
from opmark.errors import Unsupported
from opmark.plugin import Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.operator import sum_of_products
from opmark.plugin.param import choice, dtype, flag, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof

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


# While gradients are checked, a factor between -1 and 1 moves by at most this much, and so does a product of two.
_MOVED = 1e-4


def _away_from_zero(p: Params, sums: Any, tolerance: Tolerance) -> Any:
    """Return which sums of products in front of a relu keep their sign where factors move a little or are rounded."""
    rounding = tolerance.bounds(p["dtype"], p)[1] * tolerance.magnitude(p)
    return np.abs(sums) > _MOVED * tolerance.terms(p) + rounding


def _linear_inputs(p: Params, third: tuple[int, ...], name: str) -> dict[str, TensorSpec]:
    x, weight = TensorSpec((p["M"], p["K"]), p["dtype"]), TensorSpec((p["N"], p["K"]), p["dtype"])
    return {"x": x, "weight": weight, name: TensorSpec(third, p["dtype"])}


LINEAR_TOLERANCE = sum_of_products(lambda p: int(p["K"]) + 1)


def _linear_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return np.maximum(x @ weight.T + bias, 0)


def _smooth_linear_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return _away_from_zero(p, x @ weight.T + bias, LINEAR_TOLERANCE)


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


FOR_INFERENCE = "torch's kernel with an activation is for inference, and has no gradient"


def _linear(name: str, summary: str, *, reference: Any, chain: Any, flops: int, backward_flops: int, smooth: Any = None,
            params: tuple[Param, ...] = (), aliases: tuple[str, ...]) -> Operator:  # fmt: skip
    """Make a linear layer with an activation of `flops` operations per element, and `backward_flops` backwards."""

    def inputs(p: Params) -> dict[str, TensorSpec]:
        return _linear_inputs(p, (p["N"],), "bias")

    def cost(p: Params) -> Cost:
        n = p["M"] * p["N"]
        return Cost((2 * p["K"] + 1 + flops) * n, nbytes(inputs(p).values()), n * sizeof(p["dtype"]))

    def backward_cost(p: Params) -> Cost:
        """Count two products and a sum for the bias; what the activation had as its input is read too."""
        x, weight, bias = inputs(p).values()
        n = p["M"] * p["N"]
        read = x.nbytes + weight.nbytes + 2 * n * sizeof(p["dtype"])
        return Cost((4 * p["K"] + 1 + backward_flops) * n, read, nbytes((x, weight, bias)))

    return Operator(
        name=name,
        summary=summary,
        category="fused",
        params=(*LINEAR_PARAMS, *params, dtype(*FLOATS)),
        inputs=inputs,
        cost=cost,
        backward_cost=backward_cost,
        gradients=("x", "weight", "bias"),
        smooth=smooth,
        reference=reference,
        tolerance=LINEAR_TOLERANCE,
        presets=LINEAR_PRESETS,
        implementations=(
            formula(reference),
            unfused(chain),
            fused(_native_linear, no_gradient=FOR_INFERENCE),
            compiled(chain),
        ),
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

    return lambda: addmm(other, x, weight.t())  # a view that is made before has no way back to the weight


def _linear_add_backward(p: Params) -> Cost:
    x, weight, other = _linear_inputs(p, (p["M"], p["N"]), "other").values()
    return Cost(4 * p["K"] * other.elements, nbytes((x, weight, other)), x.nbytes + weight.nbytes)


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
    backward_cost=_linear_add_backward,
    # The gradient of the addend is the incoming one.
    gradients=("x", "weight"),
    reference=_linear_add,
    tolerance=LINEAR_TOLERANCE,
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


def _norm_backward(p: Params) -> Cost:
    """Count 12 flops per element, as for layer_norm; the sum that was normalised is read."""
    x, _, weight, bias = _norm_inputs(p).values()
    return Cost(12 * x.elements, 2 * x.nbytes + weight.nbytes, nbytes((x, weight, bias)))


ADD_LAYER_NORM = Operator(
    name="add_layer_norm",
    summary="layer_norm(x + residual) along the last axis",
    category="fused",
    params=(
        shape("shape", "shape of x and residual; the last axis is normalised"),
        EPS,
        dtype(*FLOATS),
    ),
    inputs=_norm_inputs,
    # 1 for the sum and 7 for layer_norm.
    cost=lambda p: Cost(8 * prod(p["shape"]), nbytes(_norm_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
    backward_cost=_norm_backward,
    # The gradient of the residual is that of x.
    gradients=("x", "weight", "bias"),
    reference=_add_layer_norm,
    presets=ROW_PRESETS,
    rules=(
        ParamRule("shape", "have at least 4 elements along the last axis (got {shape})", lambda p: p["shape"][-1] >= 4),
    ),
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


def _attention_backward(p: Params) -> Cost:
    """Count four products for the gradients and one to recompute the scores; the output and its gradient are read."""
    q, k, v = _attention_inputs(p).values()
    return Cost(10 * q.elements * p["length"], 5 * q.nbytes, nbytes((q, k, v)))


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
    backward_cost=_attention_backward,
    gradients=("q", "k", "v"),
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


# Fused patterns around a convolution: conv_relu, conv_bn, conv_bn_relu.

NORM = {"gamma": (0.5, 1.5), "beta": (-1.0, 1.0), "mean": (-1.0, 1.0), "var": (0.5, 2.0)}


def _out_image(p: Params) -> tuple[int, int]:
    height, width = (
        (n + 2 * p["padding"] - k) // p["stride"] + 1 for n, k in zip(p["image"], p["kernel"], strict=True)
    )
    return height, width


def _outputs(p: Params) -> int:
    return int(p["batch"] * p["out_channels"] * prod(_out_image(p)))


def _terms(p: Params) -> int:
    """Return the number of products that are added up for one output element."""
    return int(p["in_channels"] * prod(p["kernel"]))


def _constant(size: tuple[int, ...], p: Params, low: float, high: float, seed: int) -> TensorSpec:
    """Return values that do not depend on the seed of the task."""
    return TensorSpec(size, p["dtype"], low, high, lambda _: np.random.default_rng(seed).uniform(low, high, size))


def _inputs(p: Params, norm: bool) -> dict[str, TensorSpec]:
    x = TensorSpec((p["batch"], p["in_channels"], *p["image"]), p["dtype"])
    weight, vector = (p["out_channels"], p["in_channels"], *p["kernel"]), (p["out_channels"],)
    if not norm:
        return {"x": x, "weight": TensorSpec(weight, p["dtype"]), "bias": TensorSpec(vector, p["dtype"])}
    statistics = {name: _constant(vector, p, *domain, seed) for seed, (name, domain) in enumerate(NORM.items(), 1)}
    return {"x": x, "weight": _constant(weight, p, -1.0, 1.0, 0), **statistics}


def _cost(p: Params, norm: bool) -> Cost:
    """Count the products and a shift of each output; the scale is folded into the weights."""
    n, read = _outputs(p), nbytes(_inputs(p, norm).values())
    if norm and p.get("training"):  # 7 flops and new statistics, as for batch_norm
        return Cost((2 * _terms(p) + 7) * n, read, (n + 2 * p["out_channels"]) * sizeof(p["dtype"]))
    return Cost((2 * _terms(p) + 1) * n, read, n * sizeof(p["dtype"]))


def _backward_cost(p: Params, norm: bool) -> Cost:
    """Count two convolutions, a sum for the bias, or what batch_norm has backwards. What the convolution had as its
    result is read, for the sign or to be normalised again."""
    n, kind, specs = _outputs(p), sizeof(p["dtype"]), _inputs(p, norm)
    vector = p["out_channels"] * kind
    images = specs["x"].nbytes + specs["weight"].nbytes
    if not norm:
        return Cost((4 * _terms(p) + 1) * n, images + 2 * n * kind, images + vector)
    flops, vectors = (9, 1) if p.get("training") else (6, 3)
    return Cost((4 * _terms(p) + flops) * n, images + 2 * n * kind + vectors * vector, images + 2 * vector)


def _conv(p: Params, x: Any, weight: Any) -> Any:
    pad, stride = p["padding"], p["stride"]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(p["kernel"]), axis=(2, 3))
    seen = windows[:, :, ::stride, ::stride]
    return np.tensordot(seen, weight, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def _per_channel(vector: Any) -> Any:
    return vector[:, None, None]


# A normalised batch has values of about 1, whatever the convolution has.
CONV_TOLERANCE = sum_of_products(_terms)
NORM_TOLERANCE = Tolerance(_terms, lambda p: 1.0 if p.get("training") else CONV_TOLERANCE.magnitude(p))


def _conv_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return np.maximum(_conv(p, x, weight) + _per_channel(bias), 0)


def _smooth_conv_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return _away_from_zero(p, _conv(p, x, weight) + _per_channel(bias), CONV_TOLERANCE)


TRAINING_PARAMS = (flag("training", TRAINING, later=True), replace(MOMENTUM, later=True))


def _with_norm_defaults(p: Params) -> Params:
    """Return the parameters with `training` and `momentum`, which a case has only where they are not the defaults."""
    return {**{param.name: param.default for param in TRAINING_PARAMS}, **p}


def _conv_bn(p: Params, x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    return batch_norm(_with_norm_defaults(p), _conv(p, x, weight), gamma, beta, mean, var)


def _conv_bn_relu(p: Params, **inputs: Any) -> Any:
    found = _conv_bn(p, **inputs)
    return (np.maximum(found[0], 0), *found[1:]) if p.get("training") else np.maximum(found, 0)


def _smooth_conv_bn_relu(p: Params, x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    """Compare what the normalisation shifts, in units of what the convolution adds up."""
    convolved = _conv(p, x, weight)
    normal = batch_norm(_with_norm_defaults(p), convolved, gamma, beta, mean, var)
    spread = convolved.var(axis=(0, 2, 3)) if p.get("training") else var
    sums = (normal[0] if p.get("training") else normal) / _per_channel(gamma / np.sqrt(spread + p["eps"]))
    return _away_from_zero(p, sums, CONV_TOLERANCE)


def _conv_relu_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import conv2d, relu

    stride, padding = p["stride"], p["padding"]
    return lambda x, weight, bias: relu(conv2d(x, weight, bias, stride, padding))


def _bn_chain(p: Params, relu: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    from torch.nn.functional import batch_norm, conv2d

    norm = _with_norm_defaults(p)
    window, training = (p["stride"], p["padding"]), norm["training"]
    how = training, norm["momentum"], norm["eps"]

    def chain(x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        normal = batch_norm(conv2d(x, weight, None, *window), mean, var, gamma, beta, *how)
        result = relu(normal) if relu else normal
        return (result, mean, var) if training else result

    return chain


def _bn_relu_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import relu

    return _bn_chain(p, relu)


def _native_relu(p: Params, x: Any, weight: Any, bias: Any) -> Launch:
    """Build a launch of oneDNN's or cuDNN's convolution, which applies relu before writing."""
    import torch

    refuse_device(x, "convolution with relu")
    stride, padding, one = [p["stride"]] * 2, [p["padding"]] * 2, [1, 1]
    if on_cpu(x):
        call = torch.ops.mkldnn._convolution_pointwise
        return partial(call, x, weight, bias, padding, stride, one, 1, "relu", [], "")
    return partial(torch.cudnn_convolution_relu, x, weight, bias, stride, padding, one, 1)


def _fold(p: Params, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> tuple[Any, Any]:
    """Fold the normalisation into weight and bias of the convolution, in float64, then round."""
    if p.get("training"):
        raise Unsupported("the statistics of a batch, which training uses, cannot be folded into the weights")
    scale = gamma.double() / (var.double() + p["eps"]).sqrt()
    bias = beta.double() - mean.double() * scale
    return (weight.double() * scale[:, None, None, None]).to(weight.dtype), bias.to(weight.dtype)


def _native_bn(p: Params, x: Any, **rest: Any) -> Launch:
    from torch.nn.functional import conv2d

    return partial(conv2d, x, *_fold(p, **rest), p["stride"], p["padding"])


def _native_bn_relu(p: Params, x: Any, **rest: Any) -> Launch:
    return _native_relu(p, x, *_fold(p, **rest))


def _preset(batch: int, channels: int, image: int, out: int) -> dict[str, Any]:
    return {"batch": batch, "in_channels": channels, "image": [image, image], "out_channels": out}


RULES = (
    ParamRule("image", "have two sizes, height x width (got {image})", lambda p: len(p["image"]) == 2),
    ParamRule("kernel", "have two sizes, height x width (got {kernel})", lambda p: len(p["kernel"]) == 2),
    ParamRule("kernel", "fit into the padded image {image} (got {kernel})", lambda p: min(_out_image(p)) >= 1),
)
NORM_RULES = (
    ParamRule("training", "be false where a channel of the result has fewer than 4 elements",
              lambda p: not p.get("training") or _outputs(p) // p["out_channels"] >= 4),
    MOMENTUM_IS_A_SHARE,
)  # fmt: skip
PARAMS = (
    size("batch", "images"),
    size("in_channels", "channels of the input"),
    shape("image", "height x width of the input"),
    size("out_channels", "channels of the output"),
    shape("kernel", "height x width of the kernel", [3, 3]),
    size("stride", "step between two windows", 1),
    integer("padding", "zeros on each side of the image", 1, kind="count"),
)
INFERENCE = "for inference, where statistics are folded into the weights in advance, or in training"
FOLDED = "weights into which statistics are folded in advance are for inference, and have no gradient"
NORM_PARAMS = (*TRAINING_PARAMS, EPS)


def _pattern(
    name: str, summary: str, *, reference: Any, chain: Any, native: Any, norm: bool, smooth: Any = None,
    aliases: tuple[str, ...],
) -> Operator:  # fmt: skip
    return Operator(
        name=name,
        summary=summary,
        category="fused",
        params=(*PARAMS, *(NORM_PARAMS if norm else ()), dtype(*FLOATS)),
        inputs=lambda p: _inputs(p, norm),
        cost=lambda p: _cost(p, norm),
        backward_cost=lambda p: _backward_cost(p, norm),
        gradients=("x", "weight", "gamma", "beta") if norm else ("x", "weight", "bias"),
        mutates=("mean", "var") if norm else (),
        smooth=smooth,
        reference=reference,
        tolerance=NORM_TOLERANCE if norm else CONV_TOLERANCE,
        presets={
            "small": _preset(1, 16, 16, 16),
            "typical": _preset(4, 64, 28, 64),
            "large": _preset(32, 128, 56, 128),
        },
        rules=(*RULES, *NORM_RULES) if norm else RULES,
        implementations=(
            numpy_norm(reference, "mean", "var") if norm else formula(reference),
            unfused(chain),
            fused(native, "folded", FOLDED) if norm else fused(native, no_gradient=FOR_INFERENCE),
            compiled(chain),
        ),
        aliases=aliases,
    )


FUSED_CONV_OPERATORS: tuple[Operator, ...] = (
    _pattern("conv_relu", "relu(conv2d(x, weight) + bias)", reference=_conv_relu, chain=_conv_relu_chain,
             native=_native_relu, norm=False, smooth=_smooth_conv_relu, aliases=("conv2d_relu", "ConvReLU2d")),
    _pattern("conv_bn", f"batch_norm(conv2d(x, weight)), {INFERENCE}", reference=_conv_bn, chain=_bn_chain,
             native=_native_bn, norm=True, aliases=("conv2d_bn", "ConvBn2d", "conv_batch_norm")),
    _pattern("conv_bn_relu", f"relu(batch_norm(conv2d(x, weight))), {INFERENCE}", reference=_conv_bn_relu,
             chain=_bn_relu_chain, native=_native_bn_relu, norm=True, smooth=_smooth_conv_bn_relu,
             aliases=("conv2d_bn_relu", "ConvBnReLU2d")),
)  # fmt: skip


OPERATORS: tuple[Operator, ...] = (
    _linear(
        "linear_relu",
        "relu(x weightᵀ + bias)",
        reference=_linear_relu,
        chain=_relu_chain,
        flops=0,
        backward_flops=0,
        smooth=_smooth_linear_relu,
        aliases=("linear_bias_relu", "LinearReLU"),
    ),
    _linear(
        "linear_gelu",
        "gelu(x weightᵀ + bias)",
        reference=_linear_gelu,
        chain=_gelu_chain,
        flops=5,
        backward_flops=9,
        params=(APPROXIMATE,),
        aliases=("linear_bias_gelu", "LinearGELU"),
    ),
    LINEAR_ADD,
    ADD_LAYER_NORM,
    ATTENTION,
    *FUSED_CONV_OPERATORS,
)
