"""Element-wise operators, and activations, gated units and softmax, by jax.nn where it has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from opmark.frameworks.implementation import calls
from opmark.frameworks.jax.implementations._modules import jnp, nn, row
from opmark.plugin import Implementation, Params

_NN = {
    **{name: f"jax.nn.{name}" for name in (
        "relu", "relu6", "selu", "silu", "mish", "hard_sigmoid", "sigmoid", "log_sigmoid", "glu",
    )},
    "hardswish": "jax.nn.hard_swish",
    "softsign": "jax.nn.soft_sign",
}  # fmt: skip


def _prelu(p: Params, x: Any, weight: Any) -> Any:
    """Compute prelu with one slope per channel, which is the second axis."""
    slope = weight.reshape(weight.shape + (1,) * (x.ndim - 2))
    return jnp.where(x > 0, x, slope * x)


def _gelu(p: Params, x: Any) -> Any:
    return nn.gelu(x, approximate=p["approximate"] == "tanh")


def _hardtanh(p: Params, x: Any) -> Any:
    return nn.hard_tanh(x) if (p["min_val"], p["max_val"]) == (-1, 1) else jnp.clip(x, p["min_val"], p["max_val"])


def _softshrink(p: Params, x: Any) -> Any:
    return jnp.sign(x) * nn.relu(jnp.abs(x) - p["lambd"])


def _gated_unit(activate: Callable[[Any], Any]) -> Implementation:
    def call(p: Params, x: Any) -> Any:
        gate, value = jnp.split(x, 2, axis=-1)
        return activate(gate) * value

    return row(call)


# Element-wise operators: arithmetic, functions, comparisons, bits, casts.

_ONE = {
    **{name: f"jax.numpy.{name}" for name in (
        "abs", "negative", "sign", "reciprocal", "square", "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2",
        "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh",
        "arccosh", "arctanh", "degrees", "radians", "sinc", "nan_to_num", "ceil", "floor", "trunc", "round",
        "logical_not", "bitwise_not", "isnan", "isinf", "isfinite", "zeros_like", "ones_like",
    )},
    **{name: f"jax.scipy.special.{name}" for name in ("erf", "erfc", "erfinv", "gamma", "gammaln", "digamma", "logit")},
    "identity": "jax.numpy.copy",
    "rsqrt": "jax.lax.rsqrt",
}  # fmt: skip

_TWO = {
    **{name: f"jax.numpy.{name}" for name in (
        "floor_divide", "fmod", "power", "hypot", "logaddexp", "maximum", "minimum", "equal", "not_equal", "greater",
        "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
        "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    )},
    "add": "jax.numpy.add",
    "sub": "jax.numpy.subtract",
    "mul": "jax.numpy.multiply",
    "div": "jax.numpy.divide",
    "mod": "jax.numpy.remainder",
    "atan2": "jax.numpy.arctan2",
}  # fmt: skip


def _cast(p: Params, x: Any) -> Any:
    return jnp.astype(x, p["to"])


IMPLEMENTATIONS = {
    **{name: calls(path, "x") for name, path in _NN.items()},
    "leaky_relu": calls("jax.nn.leaky_relu", "x", negative_slope="negative_slope"),
    "prelu": row(_prelu),
    "elu": calls("jax.nn.elu", "x", alpha="alpha"),
    "celu": calls("jax.nn.celu", "x", alpha="alpha"),
    "gelu": row(_gelu, "jax.nn.gelu"),
    "softplus": row(lambda p, x: nn.softplus(p["beta"] * x) / p["beta"], "jax.nn.softplus"),
    "tanhshrink": row(lambda p, x: x - jnp.tanh(x)),
    "hardtanh": row(_hardtanh, "jax.nn.hard_tanh"),
    "softshrink": row(_softshrink),
    "hardshrink": row(lambda p, x: jnp.where(jnp.abs(x) > p["lambd"], x, 0)),
    "threshold": row(lambda p, x: jnp.where(x > p["threshold"], x, p["value"])),
    "swiglu": _gated_unit(lambda x: nn.silu(x)),
    "geglu": _gated_unit(lambda x: nn.gelu(x, approximate=False)),
    "reglu": _gated_unit(lambda x: nn.relu(x)),
    "softmax": calls("jax.nn.softmax", "x", axis="axis"),
    "log_softmax": calls("jax.nn.log_softmax", "x", axis="axis"),
    "softmin": row(lambda p, x: nn.softmax(-x, axis=p["axis"]), "jax.nn.softmax"),
    "masked_softmax": row(lambda p, x, mask: nn.softmax(x, axis=p["axis"], where=mask), "jax.nn.softmax"),
    **{name: calls(path, "x") for name, path in _ONE.items()},
    **{name: calls(path, "x", "y") for name, path in _TWO.items()},
    "rcbrt": row(lambda p, x: 1 / jnp.cbrt(x)),
    "frac": row(lambda p, x: x - jnp.trunc(x)),
    "clip": calls("jax.numpy.clip", "x", min="low", max="high"),
    "full_like": calls("jax.numpy.full_like", "x", fill_value="value"),
    "lerp": row(lambda p, x, y: x + p["weight"] * (y - x)),
    "addcmul": row(lambda p, x, y, z: x + p["value"] * y * z),
    "addcdiv": row(lambda p, x, y, z: x + p["value"] * y / z),
    "add_n": row(lambda p, **terms: reduce(add, terms.values())),
    "cast": row(_cast, "jax.numpy.astype"),
    "where": calls("jax.numpy.where", "condition", "x", "y"),
    "masked_fill": row(lambda p, x, mask: jnp.where(mask, p["value"], x), "jax.numpy.where"),
}
