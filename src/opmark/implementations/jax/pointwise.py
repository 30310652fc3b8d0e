"""Element-wise operators: arithmetic, functions, comparisons, bits, casts."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from opmark.implementations._rows import calls
from opmark.implementations.jax._modules import jnp, row
from opmark.schema import Params

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
