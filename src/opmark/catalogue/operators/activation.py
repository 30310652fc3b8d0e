"""Activations: functions of one element, such as relu, gelu, silu, sigmoid and shrinks; prelu; gated linear units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula, gelu, halves, sigmoid, silu, swiglu, torch
from opmark.catalogue.operators._elementwise import PRESETS, SHAPE, SIGNED_INTS, away_from, pointwise
from opmark.plugin import Implementation, Operator, ParamRule, Params
from opmark.plugin.param import choice, dtype, real, shape
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

WIDE = (-5.0, 5.0)
"""Wide enough to reach every branch of these functions."""

_row = partial(pointwise, category="activation", domains=(WIDE,))


def _functional(name: str, **params: str) -> Any:
    return calls(f"torch.nn.functional.{name}", "x", fixed=None, **params)


# -- relu and similar functions. A comparison does not count as a flop.

ALPHA = real("alpha", "scale of the negative part", 1.0, kind="amount")
POSITIVE_ALPHA = ParamRule("alpha", "be above 0", lambda p: p["alpha"] > 0)


def _selu(p: Params, x: Any) -> Any:
    """The two constants make mean 0 and variance 1 a fixed point (Klambauer et al. 2017)."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


RELU = _row(
    "relu", "x where it is positive, else 0",
    torch="torch.relu", reference=lambda p, x: np.maximum(x, 0), dtypes=(*FLOATS, *SIGNED_INTS), integers=(-60, 60),
    flops=0, backward_flops=0, kinks=(0.0,), aliases=("Activation", "ReLU"),
)  # fmt: skip
RELU6 = _row(
    "relu6", "x clipped to 0..6",
    torch="torch.nn.functional.relu6", reference=lambda p, x: np.clip(x, 0, 6), domains=((-3.0, 9.0),),
    flops=0, backward_flops=0, kinks=(0.0, 6.0), aliases=("ReLU6",),
)  # fmt: skip
LEAKY_RELU = _row(
    "leaky_relu", "x where it is positive, else a fraction of it",
    params=(real("negative_slope", "the fraction", 0.01),),
    torch=_functional("leaky_relu", negative_slope="negative_slope"),
    reference=lambda p, x: np.where(x > 0, x, p["negative_slope"] * x),
    kinks=(0.0,), aliases=("LeakyReLU", "LeakyRelu"),
)  # fmt: skip
ELU = _row(
    "elu", "x where it is positive, else alpha (exp(x) - 1)",
    params=(ALPHA,), torch=_functional("elu", alpha="alpha"),
    reference=lambda p, x: np.where(x > 0, x, p["alpha"] * np.expm1(np.minimum(x, 0))),
    flops=2, backward_flops=2, kinks=(0.0,), aliases=("Elu", "ELU"),
)  # fmt: skip
CELU = _row(
    "celu", "x where it is positive, else alpha (exp(x / alpha) - 1): smooth for every alpha",
    params=(ALPHA,), rules=(POSITIVE_ALPHA,), torch=_functional("celu", alpha="alpha"),
    reference=lambda p, x: np.where(x > 0, x, p["alpha"] * np.expm1(np.minimum(x, 0) / p["alpha"])),
    flops=3, backward_flops=3, kinks=(0.0,), aliases=("CELU",),
)  # fmt: skip
SELU = _row(
    "selu", "scaled elu, with constants that keep mean 0 and variance 1",
    torch="torch.nn.functional.selu", reference=_selu,
    flops=3, backward_flops=3, kinks=(0.0,), aliases=("Selu", "SELU"),
)  # fmt: skip

# -- gelu, silu, mish: smooth.


GELU = pointwise(
    "gelu", "Gaussian error linear unit: x times the normal distribution function of x",
    category="activation", params=(choice("approximate", "exact, or by tanh", ("none", "tanh"), "none"),),
    torch=_functional("gelu", approximate="approximate"), reference=lambda p, x: gelu(x, p["approximate"]),
    flops=5, backward_flops=9, aliases=("GELU",),
)  # fmt: skip
SILU = _row(
    "silu", "x sigmoid(x)",
    torch="torch.nn.functional.silu", reference=lambda p, x: silu(x),
    flops=3, backward_flops=8, aliases=("swish", "Swish", "SiLU"),
)  # fmt: skip
MISH = _row(
    "mish", "x tanh(log(1 + exp(x)))",
    torch="torch.nn.functional.mish", reference=lambda p, x: x * np.tanh(np.log1p(np.exp(x))),
    flops=4, backward_flops=11, aliases=("Mish",),
)  # fmt: skip
# The slope is 1/6 as in all frameworks but MXNet, where it is 0.2: the work is the same.
HARD_SIGMOID = _row(
    "hard_sigmoid", "x / 6 + 1/2 clipped to 0..1: a piecewise linear sigmoid",
    torch="torch.nn.functional.hardsigmoid", reference=lambda p, x: np.clip(x + 3, 0, 6) / 6,
    flops=2, kinks=(-3.0, 3.0), aliases=("hardsigmoid", "HardSigmoid", "Hardsigmoid"),
)  # fmt: skip
HARDSWISH = _row(
    "hardswish", "x hard_sigmoid(x)",
    torch="torch.nn.functional.hardswish", reference=lambda p, x: x * np.clip(x + 3, 0, 6) / 6,
    flops=3, backward_flops=3, kinks=(-3.0, 3.0), aliases=("hard_swish", "Hardswish"),
)  # fmt: skip

# -- sigmoid and similar functions.

BETA = real("beta", "sharpness: the larger, the closer to relu", 1.0, kind="amount")
LINEAR_FROM = 20.0
"""For larger beta x, torch returns x instead of softplus(x)."""


def _softplus(p: Params, x: Any) -> Any:
    scaled = p["beta"] * x
    return np.where(scaled > LINEAR_FROM, x, np.log1p(np.exp(np.minimum(scaled, LINEAR_FROM))) / p["beta"])


SIGMOID = _row(
    "sigmoid", "1 / (1 + exp(-x))",
    torch="torch.sigmoid", reference=lambda p, x: sigmoid(x),
    flops=3, backward_flops=3, aliases=("Sigmoid", "LogisticRegressionOutput"),
)  # fmt: skip
LOG_SIGMOID = _row(
    "log_sigmoid", "log(1 / (1 + exp(-x)))",
    torch="torch.nn.functional.logsigmoid", reference=lambda p, x: -np.logaddexp(0, -x),
    flops=3, backward_flops=4, aliases=("logsigmoid", "LogSigmoid"),
)  # fmt: skip
SOFTPLUS = _row(
    "softplus", "log(1 + exp(beta x)) / beta",
    params=(BETA,), rules=(ParamRule("beta", "be above 0", lambda p: p["beta"] > 0),),
    torch=_functional("softplus", beta="beta"), reference=_softplus,
    flops=4, backward_flops=5, aliases=("softrelu", "SoftReLU", "Softplus"),
)  # fmt: skip
SOFTSIGN = _row(
    "softsign", "x / (1 + |x|)",
    torch="torch.nn.functional.softsign", reference=lambda p, x: x / (1 + np.abs(x)),
    flops=2, backward_flops=3, kinks=(0.0,), aliases=("Softsign",),
)  # fmt: skip
TANHSHRINK = _row(
    "tanhshrink", "x - tanh(x)",
    torch="torch.nn.functional.tanhshrink", reference=lambda p, x: x - np.tanh(x),
    flops=2, backward_flops=3, aliases=("Tanhshrink",),
)  # fmt: skip

# -- functions with kinks at parameters: hardtanh, shrinks, threshold.

LAMBDA = real("lambd", "values no further from zero than this become zero", 0.5, kind="amount")


def _with_kinks(operator: Operator, kinks: Callable[[Params], Sequence[float]]) -> Operator:
    """Give an operator whose parameters place its kinks data on both sides of them and away from them.

    At a kink frameworks differ, since some round the parameter to the type of x before they compare.
    """

    def inputs(p: Params) -> dict[str, TensorSpec]:
        bound = max(WIDE[1], *(2 * abs(kink) for kink in kinks(p)))
        make = partial(_avoid_kinks, kinks(p), bound, tuple(p["shape"]))
        return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], -bound, bound, make=make)}

    return replace(operator, inputs=inputs, direction=away_from(kinks))


_BLOCK = 1 << 16
"""Values that stay in the cache of a core."""


def _avoid_kinks(kinks: Sequence[float], bound: float, shape: tuple[int, ...], generator: Any) -> Any:
    """Return uniform values, but move those within 2 % of a kink a little towards zero."""
    x = generator.uniform(-bound, bound, shape)
    values = x.reshape(-1)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        for kink in kinks:
            margin = 0.02 * max(abs(kink), 0.1)
            block[np.abs(block - kink) < margin] = kink - 2 * margin * (1 if kink > 0 else -1)
    return x


HARDTANH = _with_kinks(_row(
    "hardtanh", "x clipped to an interval",
    params=(real("min_val", "the lower value", -1.0), real("max_val", "the upper value", 1.0)),
    rules=(ParamRule("max_val", "be above min_val={min_val} (got {max_val})", lambda p: p["max_val"] > p["min_val"]),),
    torch=_functional("hardtanh", min_val="min_val", max_val="max_val"),
    reference=lambda p, x: np.clip(x, p["min_val"], p["max_val"]),
    flops=0, backward_flops=0, aliases=("Hardtanh",),
), lambda p: (p["min_val"], p["max_val"]))  # fmt: skip
SOFTSHRINK = _with_kinks(_row(
    "softshrink", "x moved towards zero by lambd, and zero within",
    params=(LAMBDA,), torch=_functional("softshrink", lambd="lambd"),
    reference=lambda p, x: np.sign(x) * np.maximum(np.abs(x) - p["lambd"], 0),
    backward_flops=0, aliases=("Softshrink",),
), lambda p: (-p["lambd"], p["lambd"]))  # fmt: skip
HARDSHRINK = _with_kinks(_row(
    "hardshrink", "x where it is further from zero than lambd, else zero",
    params=(LAMBDA,), torch=_functional("hardshrink", lambd="lambd"),
    reference=lambda p, x: np.where(np.abs(x) > p["lambd"], x, 0),
    flops=0, backward_flops=0, aliases=("Hardshrink",),
), lambda p: (-p["lambd"], p["lambd"]))  # fmt: skip
THRESHOLD = _with_kinks(_row(
    "threshold", "x where it is above a threshold, else a fixed value",
    params=(real("threshold", "the threshold", 0.5), real("value", "replacement for the other values", -1.0)),
    torch=_functional("threshold", threshold="threshold", value="value"),
    reference=lambda p, x: np.where(x > p["threshold"], x, p["value"]),
    flops=0, backward_flops=0, aliases=("Threshold",),
), lambda p: (p["threshold"],))  # fmt: skip

# -- prelu has one slope per channel.


def _slope(x: Any, weight: Any) -> Any:
    return weight.reshape(-1, *[1] * (x.ndim - 2))


def _prelu_inputs(p: Params) -> dict[str, TensorSpec]:
    x = TensorSpec(tuple(p["shape"]), p["dtype"], *WIDE)
    return {"x": x, "weight": TensorSpec((p["shape"][1],), p["dtype"], 0.1, 0.5)}


def _prelu_cost(p: Params) -> Cost:
    n, nbytes = prod(p["shape"]), sizeof(p["dtype"])
    return Cost(n, (n + p["shape"][1]) * nbytes, n * nbytes)


def _prelu_backward(p: Params) -> Cost:
    """The gradient of x is the slope times the incoming one, that of the slope the sum of x times the incoming one."""
    n, slopes, nbytes = prod(p["shape"]), p["shape"][1], sizeof(p["dtype"])
    return Cost(3 * n, (2 * n + slopes) * nbytes, (n + slopes) * nbytes)


def _prelu(p: Params, x: Any, weight: Any) -> Any:
    return np.where(x > 0, x, _slope(x, weight) * x)


PRELU = Operator(
    name="prelu",
    summary="x where it is positive, else x times the slope of its channel",
    category="activation",
    params=(replace(SHAPE, doc="shape of x; channels are the second axis"), dtype(*FLOATS)),
    inputs=_prelu_inputs,
    cost=_prelu_cost,
    backward_cost=_prelu_backward,
    reference=_prelu,
    presets={**PRESETS, "typical": {"shape": [32, 16, 64, 64]}, "large": {"shape": [64, 64, 112, 112]}},
    rules=(ParamRule("shape", "have at least 2 axes, of which the second is the channels (got {shape})",
                lambda p: len(p["shape"]) >= 2),),
    gradients=("x", "weight"),
    direction=away_from((0.0,)),
    implementations=(formula(_prelu), calls("torch.nn.functional.prelu", "x", "weight")),
    aliases=("PRelu", "PReLU"),
)  # fmt: skip
"""Found by the registry."""


# Gated linear units: one half of a row, activated, times the other half.


def _cost(flops: int) -> Callable[[Params], Cost]:
    """Return a cost function: two elements are read and `flops` computed per output element."""

    def cost(p: Params) -> Cost:
        out, size = prod(p["shape"]) // 2, sizeof(p["dtype"])
        return Cost(flops * out, 2 * out * size, out * size)

    return cost


def _backward_cost(flops: int) -> Callable[[Params], Cost]:
    """Return a cost function: x and the incoming gradient are read, the gradient of x is written."""

    def cost(p: Params) -> Cost:
        out, size = prod(p["shape"]) // 2, sizeof(p["dtype"])
        return Cost(flops * out, 3 * out * size, 2 * out * size)

    return cost


def _gate_reference(activate: Callable[[Any], Any]) -> Callable[..., Any]:
    def reference(p: Params, x: Any) -> Any:
        gate, value = halves(x)
        return activate(gate) * value

    return reference


def torch_gated(activation: str) -> Callable[[Any], Any]:
    """Return a gated unit with torch's activation of that name."""
    from torch.nn import functional

    activate = getattr(functional, activation)

    def call(x: Any) -> Any:
        gate, value = x.chunk(2, dim=-1)
        return activate(gate) * value

    return call


def _in_torch(activation: str) -> Implementation:
    return torch(lambda p, x: partial(torch_gated(activation), x))


def _gated_row(name: str, summary: str, reference: Any, torch: Implementation, flops: int, backward_flops: int,
         aliases: tuple[str, ...], **more: Any) -> Operator:  # fmt: skip
    return Operator(
        name=name,
        summary=summary,
        category="activation",
        params=(shape("shape", "shape of x; its last axis holds two halves, the result is one half as long"),
                dtype(*FLOATS)),
        inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"], -3.0, 3.0)},
        cost=_cost(flops),
        backward_cost=_backward_cost(backward_flops),
        reference=reference,
        presets={
            "small": {"shape": [64, 512]},
            "typical": {"shape": [1024, 2048]},
            "large": {"shape": [8192, 8192]},
        },
        rules=(ParamRule("shape", "have an even last axis (got {shape})", lambda p: p["shape"][-1] % 2 == 0),),
        gradients=("x",),
        implementations=(formula(reference), torch),
        aliases=aliases,
        **more,
    )  # fmt: skip


# The gate is the second half in glu, as in torch, and the first half in the other three, as in the fused kernels of
# language models (`silu_and_mul`). Flops per output are those of the activation and of the product; backwards those of
# the activation's gradient, and of one or two products for each half.
GLU = _gated_row(
    "glu", "first half times sigmoid of the second half",
    lambda p, x: halves(x)[0] * sigmoid(halves(x)[1]), calls("torch.nn.functional.glu", "x"), 4, 8, ("GLU",),
)  # fmt: skip
# The `swiglu` of ByteMicroPerf's first generation is silu(x) x of one tensor, so it is not this operator.
SWIGLU = _gated_row(
    "swiglu", "silu of the first half (gate) times the second half (value)",
    lambda p, x: swiglu(x), _in_torch("silu"), 4, 11, ("SwiGLU", "silu_and_mul"),
)  # fmt: skip
GEGLU = _gated_row(
    "geglu", "gelu of the first half (gate) times the second half (value)",
    _gate_reference(gelu), _in_torch("gelu"), 6, 12, ("GEGLU", "gelu_and_mul"),
)  # fmt: skip
REGLU = _gated_row(
    "reglu", "relu of the first half (gate) times the second half (value)",
    _gate_reference(lambda x: np.maximum(x, 0)), _in_torch("relu"), 1, 2, ("ReGLU",), direction=away_from((0.0,)),
)  # fmt: skip

GATED_OPERATORS = (GLU, SWIGLU, GEGLU, REGLU)
"""Found by the registry."""


OPERATORS = (
    RELU,
    RELU6,
    LEAKY_RELU,
    PRELU,
    ELU,
    CELU,
    SELU,
    GELU,
    SILU,
    MISH,
    HARD_SIGMOID,
    HARDSWISH,
    SIGMOID,
    LOG_SIGMOID,
    SOFTPLUS,
    SOFTSIGN,
    TANHSHRINK,
    HARDTANH,
    SOFTSHRINK,
    HARDSHRINK,
    THRESHOLD,
    *GATED_OPERATORS,
)
