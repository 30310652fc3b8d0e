"""Operators that write their result over x. With this data, repeated calls keep values finite and normal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from opmark.catalogue.operators import _builders
from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls
from opmark.catalogue.operators._elementwise import (
    PLAIN,
    POSITIVE,
    SIGNED,
    SIGNED_INTS,
    Data,
    Domain,
    binary,
    pointwise,
)
from opmark.catalogue.operators.binary import DIVIDEND, DIVISOR, NUMBERS, UPPER
from opmark.catalogue.operators.unary import ENDS, ENDS_IN_ORDER
from opmark.plugin import Implementation, Launch, Operator, Params
from opmark.plugin.registry import resolve
from opmark.schema.tensor import FLOATS

# Minus one and one: their powers neither grow nor vanish. Integers include zero.
UNIT = Data((-1.0, 3.0), integers=(-1, 2), step=2.0)


def _write_to_x(path: str) -> Implementation:
    """Make an implementation that calls NumPy's function with x as output."""

    def build(p: Params, x: Any, **others: Any) -> Launch:
        return partial(resolve(path), x, *others.values(), out=x)

    return _builders.numpy(build, path)


def _assign_operator(
    name: str,
    sign: str,
    method: str,
    numpy: str,
    aliases: Sequence[str],
    *,
    x: Data = PLAIN,
    y: Data = PLAIN,
    dtypes: Sequence[str] = FLOATS,
) -> Operator:
    """Make an operator x = x (sign) y."""
    return binary(
        name,
        f"x {sign}= y, over x",
        torch=f"torch.Tensor.{method}",
        numpy=_write_to_x(numpy),
        reference=lambda p, x, y: resolve(numpy)(x, y),
        category="in-place",
        x=x,
        y=y,
        dtypes=dtypes,
        gradients=(),
        mutates=("x",),
        aliases=(method, *aliases),
    )


ASSIGNMENTS = (
    # A growing float ends where adding y no longer changes it; an integer wraps around.
    _assign_operator("iadd", "+", "add_", "numpy.add", ("IAdd", "torch.add_"), dtypes=NUMBERS),
    _assign_operator("isub", "-", "sub_", "numpy.subtract", ("ISub", "subtract_"), x=UPPER, dtypes=NUMBERS),
    _assign_operator("imul", "·", "mul_", "numpy.multiply", ("IMul", "multiply_"), x=Data(integers=(-60, 60)), y=UNIT,
             dtypes=(*FLOATS, *SIGNED_INTS)),
    _assign_operator("idiv", "/", "div_", "numpy.divide", ("IDiv", "divide_"), y=UNIT),
    _assign_operator("imod", "mod ", "remainder_", "numpy.remainder", ("IMod",), x=DIVIDEND, y=DIVISOR, dtypes=NUMBERS),
    _assign_operator("ipow", "to the power of ", "pow_", "numpy.power", ("IPow",), x=Data((0.5, 2.0)), y=UNIT),
)  # fmt: skip


def _replace_x(
    name: str,
    summary: str,
    numpy: str | Implementation,
    *,
    torch: Implementation | None = None,
    domain: Domain = SIGNED,
    flops: int = 1,
    **more: Any,
) -> Operator:
    """Make an operator x = f(x). `numpy` is NumPy's function for it, or an implementation."""
    return pointwise(
        name,
        f"{summary}, over x",
        torch=torch or f"torch.{name}",
        numpy=_write_to_x(numpy) if isinstance(numpy, str) else numpy,
        reference=more.pop("reference", None) or (lambda p, x: resolve(str(numpy))(x)),
        category="in-place",
        domains=(domain,),
        flops=flops,
        gradients=(),
        mutates=("x",),
        **more,
    )


def _numpy_relu(p: Params, x: Any) -> Launch:
    return partial(np.maximum, x, x.dtype.type(0), out=x)


def _numpy_clamp(p: Params, x: Any) -> Launch:
    return partial(np.clip, x, x.dtype.type(p["low"]), x.dtype.type(p["high"]), out=x)


def _numpy_sigmoid(p: Params, x: Any) -> Launch:
    """Compute it step by step: no single NumPy function writes it to float16."""
    one = x.dtype.type(1)

    def launch() -> Any:
        np.negative(x, out=x)
        np.exp(x, out=x)
        np.add(x, one, out=x)
        return np.reciprocal(x, out=x)

    return launch


# Repeated, these functions converge to one value, unlike in real use, so the summary mentions it.
SETTLES = " (repeated calls work on converged values)"

FUNCTIONS = (
    _replace_x("relu_", "max(x, 0)", _builders.numpy(_numpy_relu), reference=lambda p, x: np.maximum(x, 0), flops=0),
    _replace_x("sigmoid_", "1 / (1 + exp(-x))" + SETTLES, _builders.numpy(_numpy_sigmoid), flops=3, domain=(-3.0, 3.0),
              reference=lambda p, x: 1 / (1 + np.exp(-x))),
    _replace_x("tanh_", "hyperbolic tangent", "numpy.tanh", domain=(-3.0, 3.0)),
    _replace_x("clamp_", "x clipped to a range", _builders.numpy(_numpy_clamp, "numpy.clip"),
              torch=calls("torch.clamp_", "x", min="low", max="high"), params=ENDS, rules=ENDS_IN_ORDER, flops=0,
              reference=lambda p, x: np.clip(x, p["low"], p["high"]), aliases=("clip_", "torch.clamp_")),
    _replace_x("abs_", "|x|", "numpy.abs", aliases=("absolute_",)),
    _replace_x("neg_", "-x", "numpy.negative", aliases=("negative_",)),
    _replace_x("sqrt_", "square root of x" + SETTLES, "numpy.sqrt", domain=POSITIVE),
    _replace_x("cos_", "cosine" + SETTLES, "numpy.cos", domain=(-3.0, 3.0)),
    _replace_x("round_", "nearest integer, halves to even", "numpy.rint", domain=(-100.0, 100.0)),
)  # fmt: skip

OPERATORS = (*ASSIGNMENTS, *FUNCTIONS)
