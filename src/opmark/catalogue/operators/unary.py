"""Element-wise functions of one tensor: powers, exponentials, trigonometry, special functions, rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _builders
from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls
from opmark.catalogue.operators._elementwise import POSITIVE, PRESETS, SHAPE, SIGNED_INTS, Domain, pointwise
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, real
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS, is_float, sizeof

TURN: Domain = (-3.0, 3.0)
"""Nearly a full period."""
AROUND_ONE: Domain = (0.5, 2.0)
"""Range in which slopes of negative powers are similar: in 16 bits, a few steep elements would dwarf the others."""
BELOW_ONE: Domain = (-0.875, 0.875)
"""For functions that are defined between -1 and 1."""


def _scipy(name: str) -> Any:
    """Return a reference by SciPy, which is imported when it is called."""

    def reference(p: Params, x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return reference


# torch has no function for these three, so they are composed of others.


def _torch_gamma(p: Params, x: Any) -> Launch:
    return lambda: x.lgamma().exp()


def _torch_cbrt(p: Params, x: Any) -> Launch:
    return lambda: x.sign() * x.abs().pow(1 / 3)


def _torch_rcbrt(p: Params, x: Any) -> Launch:
    return lambda: x.sign() * x.abs().pow(-1 / 3)


ARITHMETIC = (
    pointwise("abs", "|x|", torch="torch.abs", numpy="numpy.abs", dtypes=(*FLOATS, *SIGNED_INTS), integers=(-60, 60),
              kinks=(0.0,), aliases=("absolute",)),
    pointwise("negative", "-x", torch="torch.neg", numpy="numpy.negative", dtypes=(*FLOATS, *SIGNED_INTS),
              integers=(-60, 60), backward_reads=1, aliases=("neg", "Negative")),
    # The gradient is zero almost everywhere, so there is no backward phase.
    pointwise("sign", "-1, 0 or 1", torch="torch.sign", numpy="numpy.sign", dtypes=(*FLOATS, *SIGNED_INTS),
              integers=(-2, 3), special=(0.0, -0.0), flops=0, gradients=(), aliases=("sgn",)),
    pointwise("identity", "a copy of x in new memory", torch="torch.clone", numpy="numpy.copy",
              dtypes=(*FLOATS, *INTS), flops=0, gradient_view=True,
              # MXNet's regression outputs have their loss only in the gradient; forwards they are a copy.
              aliases=("clone", "BlockGrad", "stop_gradient", "make_loss", "LinearRegressionOutput",
                       "MAERegressionOutput", "SVMOutput")),
    pointwise("reciprocal", "1 / x", torch="torch.reciprocal", numpy="numpy.reciprocal", domains=(AROUND_ONE,),
              backward_flops=3),
    pointwise("square", "x²", torch="torch.square", numpy="numpy.square", dtypes=(*FLOATS, *SIGNED_INTS),
              integers=(-11, 12), backward_flops=2, aliases=("Square",)),
    pointwise("sqrt", "square root of x", torch="torch.sqrt", numpy="numpy.sqrt", domains=(POSITIVE,),
              backward_flops=2, aliases=("Sqrt",)),
    # The derivative is the third power of a rounded result.
    pointwise("rsqrt", "1 / square root of x", torch="torch.rsqrt", reference=lambda p, x: 1 / np.sqrt(x), flops=2,
              domains=(AROUND_ONE,), backward_flops=4, tolerance=Tolerance(gradient_factor=1.5)),
    pointwise("cbrt", "cube root of x", torch=_builders.torch(_torch_cbrt), numpy="numpy.cbrt", domains=(AROUND_ONE,),
              backward_flops=3),
    pointwise("rcbrt", "1 / cube root of x", torch=_builders.torch(_torch_rcbrt), flops=2, domains=(AROUND_ONE,),
              reference=lambda p, x: 1 / np.cbrt(x), backward_flops=3),
)  # fmt: skip

EXPONENTIAL = (
    pointwise("exp", "e to the power of x", torch="torch.exp", numpy="numpy.exp", aliases=("Exp",)),
    pointwise("exp2", "2 to the power of x", torch="torch.exp2", numpy="numpy.exp2", backward_flops=2),
    pointwise("expm1", "e to the power of x, minus 1", torch="torch.expm1", numpy="numpy.expm1", backward_flops=2),
    pointwise("log", "natural logarithm", torch="torch.log", numpy="numpy.log", domains=(POSITIVE,), aliases=("Log",)),
    pointwise("log2", "logarithm to base 2", torch="torch.log2", numpy="numpy.log2", domains=(POSITIVE,),
              backward_flops=2),
    pointwise("log10", "logarithm to base 10", torch="torch.log10", numpy="numpy.log10", domains=(POSITIVE,),
              backward_flops=2),
    pointwise("log1p", "natural logarithm of 1 + x", torch="torch.log1p", numpy="numpy.log1p", domains=((-0.5, 2.0),),
              backward_flops=2),
    pointwise("logit", "natural logarithm of x / (1 - x)", torch="torch.logit", reference=_scipy("logit"), flops=3,
              domains=((0.125, 0.875),), backward_flops=3),
)  # fmt: skip

TRIGONOMETRY = (
    pointwise("sin", "sine", torch="torch.sin", numpy="numpy.sin", domains=(TURN,), backward_flops=2),
    pointwise("cos", "cosine", torch="torch.cos", numpy="numpy.cos", domains=(TURN,), backward_flops=3),
    pointwise("tan", "tangent", torch="torch.tan", numpy="numpy.tan", backward_flops=3),
    pointwise("arcsin", "inverse sine", torch="torch.arcsin", numpy="numpy.arcsin", domains=(BELOW_ONE,),
              backward_flops=4, aliases=("asin",)),
    pointwise("arccos", "inverse cosine", torch="torch.arccos", numpy="numpy.arccos", domains=(BELOW_ONE,),
              backward_flops=4, aliases=("acos",)),
    pointwise("arctan", "inverse tangent", torch="torch.arctan", numpy="numpy.arctan", domains=(TURN,),
              backward_flops=3, aliases=("atan",)),
    pointwise("sinh", "hyperbolic sine", torch="torch.sinh", numpy="numpy.sinh", backward_flops=2),
    pointwise("cosh", "hyperbolic cosine", torch="torch.cosh", numpy="numpy.cosh", backward_flops=2),
    pointwise("tanh", "hyperbolic tangent", torch="torch.tanh", numpy="numpy.tanh", domains=(TURN,), backward_flops=3,
              aliases=("Tanh",)),
    pointwise("arcsinh", "inverse hyperbolic sine", torch="torch.arcsinh", numpy="numpy.arcsinh", domains=(TURN,),
              backward_flops=4, aliases=("asinh",)),
    pointwise("arccosh", "inverse hyperbolic cosine", torch="torch.arccosh", numpy="numpy.arccosh",
              domains=((1.5, 4.0),), backward_flops=4, aliases=("acosh",)),
    pointwise("arctanh", "inverse hyperbolic tangent", torch="torch.arctanh", numpy="numpy.arctanh",
              domains=(BELOW_ONE,), backward_flops=3, aliases=("atanh",)),
    pointwise("degrees", "radians to degrees", torch="torch.rad2deg", numpy="numpy.degrees", domains=(TURN,),
              backward_reads=1, aliases=("rad2deg",)),
    pointwise("radians", "degrees to radians", torch="torch.deg2rad", numpy="numpy.radians", domains=((-10.0, 10.0),),
              backward_reads=1, aliases=("deg2rad",)),
    # The derivative is a difference of rounded terms, which nearly cancel close to zero and depend on a rounded πx far
    # from it.
    pointwise("sinc", "sin(πx) / πx", torch="torch.sinc", numpy="numpy.sinc", domains=((0.3125, 1.0),), flops=3,
              backward_flops=8, tolerance=Tolerance(gradient_factor=1.5)),
)  # fmt: skip

SPECIAL = (
    pointwise("erf", "error function", torch="torch.erf", reference=_scipy("erf"), backward_flops=4),
    pointwise("erfc", "1 minus the error function", torch="torch.erfc", reference=_scipy("erfc"), backward_flops=4),
    pointwise("erfinv", "inverse of the error function", torch="torch.erfinv", reference=_scipy("erfinv"),
              domains=(BELOW_ONE,), backward_flops=4),
    pointwise("gamma", "gamma function; by its logarithm where a framework has only that",
              torch=_builders.torch(_torch_gamma), reference=_scipy("gamma"), domains=((0.5, 4.0),), backward_flops=3,
              backward_reads=3),
    pointwise("gammaln", "logarithm of the gamma function", torch="torch.lgamma", reference=_scipy("gammaln"),
              domains=((0.5, 4.0),), backward_flops=2, aliases=("lgamma", "log_gamma")),
    pointwise("digamma", "derivative of gammaln", torch="torch.digamma", reference=_scipy("digamma"),
              domains=((0.5, 4.0),), backward_flops=2, aliases=("psi",)),
)  # fmt: skip


ENDS = (real("low", "lower end of the range", -0.5), real("high", "upper end of the range", 0.5))
ENDS_IN_ORDER = (ParamRule("low", "not be above high={high} (got {low})", lambda p: p["low"] <= p["high"]),)


def _numpy_clip(p: Params, x: Any) -> Launch:
    return partial(np.clip, x, x.dtype.type(p["low"]), x.dtype.type(p["high"]))


def with_nan(p: Params) -> dict[str, TensorSpec]:
    """Return x with NaN in an eighth of the elements."""
    size = tuple(p["shape"])

    def make(generator: Any) -> Any:
        values = 2 * generator.random(size, "float32") - 1
        values[generator.random(size, "float32") < 1 / 8] = np.nan
        return values

    return {"x": TensorSpec(size, p["dtype"], make=make)}


NAN_TO_NUM = pointwise(
    "nan_to_num",
    "x with NaN replaced by zero and infinity by large numbers",
    torch="torch.nan_to_num",
    numpy="numpy.nan_to_num",
    flops=0,
    backward_flops=0,
)

REPAIR = (
    pointwise("clip", "x clipped to a range",
              torch=calls("torch.clamp", "x", min="low", max="high"), numpy=_builders.numpy(_numpy_clip, "numpy.clip"),
              reference=lambda p, x: np.clip(x, p["low"], p["high"]), params=ENDS, rules=ENDS_IN_ORDER,
              kinks=lambda p: (p["low"], p["high"]), flops=0, backward_flops=0, aliases=("clamp",)),
    replace(NAN_TO_NUM, inputs=with_nan),
)  # fmt: skip

UNARY_OPERATORS = (*ARITHMETIC, *EXPONENTIAL, *TRIGONOMETRY, *SPECIAL, *REPAIR)


# cast: the same values in another element type.


def _inputs(p: Params) -> dict[str, TensorSpec]:
    """Return values that both types can hold, apart from their fraction."""
    low, high = (-1.0, 1.0) if is_float(p["dtype"]) and is_float(p["to"]) else (0, 60)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], low, high)}


def _cost(p: Params) -> Cost:
    n = prod(p["shape"])
    return Cost(0, n * sizeof(p["dtype"]), n * sizeof(p["to"]))


def _backward_cost(p: Params) -> Cost:
    n = prod(p["shape"])
    return Cost(0, n * sizeof(p["to"]), n * sizeof(p["dtype"]))


def _numpy(p: Params, x: Any) -> Launch:
    to = np.dtype(p["to"])
    return lambda: x.astype(to)


def _torch(p: Params, x: Any) -> Launch:
    import torch

    to = getattr(torch, p["to"])
    return lambda: x.to(to, copy=True)


CAST = Operator(
    name="cast",
    summary="the same values in another element type; always a copy",
    category="element-wise",
    params=(
        SHAPE,
        dtype(*FLOATS, *INTS, doc="element type to convert from"),
        dtype(*FLOATS, *INTS, name="to", default="bfloat16", doc="element type to convert to"),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    # An integer drops the fraction; the tolerance covers the rounding of a shorter float.
    reference=lambda p, x: x if is_float(p["to"]) else np.trunc(x),
    result_dtype=lambda p: str(p["to"]),
    trivial=lambda p: bool(p["to"] == p["dtype"]),  # the gradient is the incoming one
    presets=PRESETS,
    gradients=("x",),
    implementations=(_builders.numpy(_numpy), _builders.torch(_torch, path="torch.Tensor.to")),
    aliases=("Cast", "amp_cast", "amp_multicast", "astype", "to"),
)


# Rounding to integers. These are step functions without a useful gradient.

WIDE: Domain = (-100.0, 100.0)
"""Wide enough for many integers; in a wider range, most bfloat16 values would already be integers."""


# Whole numbers and halves, and the numbers just below 0.5 and 1 in each type, which `floor(x + 0.5)` gets wrong.
EDGES = tuple(
    sign * edge
    for sign in (1, -1)
    for edge in (*(n / 2 for n in range(40)), *(near - 2.0**-k for near in (0.5, 1.0) for k in (9, 12, 25, 54)))
)


def _rounding(name: str, summary: str, aliases: Sequence[str] = (), **implementations: Any) -> Operator:
    return pointwise(
        name,
        summary,
        torch=f"torch.{name}",
        domains=(WIDE,),
        special=EDGES,
        gradients=(),
        aliases=aliases,
        **(implementations or {"numpy": f"numpy.{name}"}),
    )


ROUNDING_OPERATORS = (
    _rounding("ceil", "smallest integer that is not below x"),
    _rounding("floor", "largest integer that is not above x"),
    _rounding("trunc", "x without its fraction", ("fix",)),
    _rounding("round", "nearest integer, halves to even", ("rint",)),
    _rounding("frac", "the fraction of x, with its sign", reference=lambda p, x: x - np.trunc(x)),
)


OPERATORS = (
    *UNARY_OPERATORS,
    CAST,
    *ROUNDING_OPERATORS,
)
