"""Fused patterns around a convolution: conv_relu, conv_bn, conv_bn_relu.

Batch normalisation is that of inference: with known statistics it is a scale and a shift, which `folded` folds into
the weights of the convolution in advance, as inference with fixed weights does. Therefore weights and statistics are
the same for every seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula
from opmark.operators._fused import compiled, fused, on_cpu, refuse_device, unfused
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import dtype, integer, real, shape, size

NORM = {"gamma": (0.5, 1.5), "beta": (-1.0, 1.0), "mean": (-1.0, 1.0), "var": (0.5, 2.0)}


def _out_image(p: Params) -> tuple[int, int]:
    height, width = (
        (n + 2 * p["padding"] - k) // p["stride"] + 1 for n, k in zip(p["image"], p["kernel"], strict=True)
    )
    return height, width


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
    n = p["batch"] * p["out_channels"] * prod(_out_image(p))
    return Cost((2 * _terms(p) + 1) * n, nbytes(_inputs(p, norm).values()), n * sizeof(p["dtype"]))


def _conv(p: Params, x: Any, weight: Any) -> Any:
    pad, stride = p["padding"], p["stride"]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(p["kernel"]), axis=(2, 3))
    seen = windows[:, :, ::stride, ::stride]
    return np.tensordot(seen, weight, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def _per_channel(vector: Any) -> Any:
    return vector[:, None, None]


def _conv_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return np.maximum(_conv(p, x, weight) + _per_channel(bias), 0)


def _conv_bn(p: Params, x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    scale = gamma / np.sqrt(var + p["eps"])
    return (_conv(p, x, weight) - _per_channel(mean)) * _per_channel(scale) + _per_channel(beta)


def _conv_bn_relu(p: Params, **inputs: Any) -> Any:
    return np.maximum(_conv_bn(p, **inputs), 0)


def _relu_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import conv2d, relu

    stride, padding = p["stride"], p["padding"]
    return lambda x, weight, bias: relu(conv2d(x, weight, bias, stride, padding))


def _bn_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import batch_norm, conv2d

    stride, padding, eps = p["stride"], p["padding"], p["eps"]

    def chain(x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        return batch_norm(conv2d(x, weight, None, stride, padding), mean, var, gamma, beta, False, 0.0, eps)

    return chain


def _bn_relu_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import batch_norm, conv2d, relu

    stride, padding, eps = p["stride"], p["padding"], p["eps"]

    def chain(x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        return relu(batch_norm(conv2d(x, weight, None, stride, padding), mean, var, gamma, beta, False, 0.0, eps))

    return chain


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
    Rule("image", "have two sizes, height x width (got {image})", lambda p: len(p["image"]) == 2),
    Rule("kernel", "have two sizes, height x width (got {kernel})", lambda p: len(p["kernel"]) == 2),
    Rule("kernel", "fit into the padded image {image} (got {kernel})", lambda p: min(_out_image(p)) >= 1),
)
PARAMS = (
    size("batch", "images"),
    size("in_channels", "channels of the input"),
    shape("image", "height x width of the input"),
    size("out_channels", "channels of the output"),
    shape("kernel", "height x width of the kernel", [3, 3]),
    size("stride", "step between two windows", 1),
    integer("padding", "zeros on each side of the image", 1, kind="count"),
)
INFERENCE = "for inference: known statistics are folded into the weights in advance"
EPS = real("eps", "added to the variance before the root", 1e-5, kind="amount")


def _pattern(
    name: str, summary: str, *, reference: Any, chain: Any, native: Any, norm: bool, aliases: tuple[str, ...]
) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        category="fused",
        params=(*PARAMS, *((EPS,) if norm else ()), dtype(*FLOATS)),
        inputs=lambda p: _inputs(p, norm),
        cost=lambda p: _cost(p, norm),
        reference=reference,
        tolerance=sum_of_products(_terms),
        presets={
            "small": _preset(1, 16, 16, 16),
            "typical": _preset(4, 64, 28, 64),
            "large": _preset(32, 128, 56, 128),
        },
        rules=RULES,
        implementations=(
            formula(reference),
            unfused(chain),
            fused(native, "folded" if norm else "fused"),
            compiled(chain),
        ),
        aliases=aliases,
    )


OPERATORS: tuple[Operator, ...] = (
    _pattern("conv_relu", "relu(conv2d(x, weight) + bias)", reference=_conv_relu, chain=_relu_chain,
             native=_native_relu, norm=False, aliases=("conv2d_relu", "ConvReLU2d")),
    _pattern("conv_bn", f"batch_norm(conv2d(x, weight)), {INFERENCE}", reference=_conv_bn, chain=_bn_chain,
             native=_native_bn, norm=True, aliases=("conv2d_bn", "ConvBn2d", "conv_batch_norm")),
    _pattern("conv_bn_relu", f"relu(batch_norm(conv2d(x, weight))), {INFERENCE}", reference=_conv_bn_relu,
             chain=_bn_relu_chain, native=_native_bn_relu, norm=True, aliases=("conv2d_bn_relu", "ConvBnReLU2d")),
)  # fmt: skip
