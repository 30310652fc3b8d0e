"""Random values and dropout. JAX has no hidden generator: a call takes a key and returns the next one."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from opmark.implementations.jax._modules import jnp, nn, random, wide
from opmark.interfaces import Function, Held
from opmark.schema import Implementation, Params

# The lower limit of SELU: -alpha times its scale.
_SATURATION = -1.7580993408473766


def _random(function: Callable[..., Any], path: str = "") -> Implementation:
    """Make an implementation from function(p, key, **inputs). The call splits the key, as a training step does."""

    def build(p: Params, **tensors: Any) -> Function:
        names = tuple(tensors)

        def call(*values: Any) -> Any:
            *given, key = values
            now, following = random.split(key)
            return function(p, now, **dict(zip(names, given, strict=True))), (following,)

        return Function(call, tuple(tensors.values()), (Held(random.PRNGKey(0)),))

    return Implementation("jax", build, path=path)


def _uniform(key: Any, shape: Any, dtype: Any, low: Any, high: Any) -> Any:
    return random.uniform(key, shape, dtype, low, high)


def _normal(key: Any, shape: Any, dtype: Any, mean: Any, std: Any) -> Any:
    return mean + std * random.normal(key, shape, dtype)


def _exponential(key: Any, shape: Any, dtype: Any, rate: Any) -> Any:
    return random.exponential(key, shape, dtype) / rate


def _gamma(key: Any, shape: Any, dtype: Any, alpha: Any, scale: Any) -> Any:
    return random.gamma(key, alpha, shape, dtype) * scale


def _poisson(key: Any, shape: Any, dtype: Any, rate: Any) -> Any:
    return random.poisson(key, jnp.asarray(rate, jnp.promote_types(dtype, "float32")), shape).astype(dtype)


def _negative_binomial(key: Any, shape: Any, dtype: Any, k: Any, prob: Any) -> Any:
    """Draw from a Poisson distribution whose rate is drawn from a gamma distribution."""
    first, second = random.split(key)
    return random.poisson(second, random.gamma(first, k, shape, dtype) * (1 - prob) / prob, shape).astype(dtype)


def _generalized(key: Any, shape: Any, dtype: Any, mu: Any, alpha: Any) -> Any:
    return _negative_binomial(key, shape, dtype, 1 / alpha, 1 / (1 + mu * alpha))


_LAWS: dict[str, tuple[Callable[..., Any], tuple[str, ...], str]] = {
    "uniform": (_uniform, ("low", "high"), "jax.random.uniform"),
    "normal": (_normal, ("mean", "std"), "jax.random.normal"),
    "exponential": (_exponential, ("rate",), "jax.random.exponential"),
    "gamma": (_gamma, ("alpha", "scale"), "jax.random.gamma"),
    "poisson": (_poisson, ("rate",), "jax.random.poisson"),
    "negative_binomial": (_negative_binomial, ("k", "prob"), ""),
    "generalized_negative_binomial": (_generalized, ("mu", "alpha"), ""),
}


def _by_numbers(law: Callable[..., Any], names: tuple[str, ...], path: str) -> Implementation:
    return _random(lambda p, key: law(key, tuple(p["shape"]), p["dtype"], *(p[name] for name in names)), path)


def _by_tensors(law: Callable[..., Any], names: tuple[str, ...], path: str) -> Implementation:
    def call(p: Params, key: Any, **tensors: Any) -> Any:
        return law(key, (p["draws"], p["distributions"]), p["dtype"], *(tensors[name] for name in names))

    return _random(call, path)


def _bernoulli(p: Params, key: Any, x: Any) -> Any:
    return random.bernoulli(key, wide(x)).astype(x.dtype)


def _multinomial(p: Params, key: Any, weights: Any) -> Any:
    scores = jnp.log(wide(weights))
    return random.categorical(key, scores, axis=-1, shape=(p["draws"], p["rows"])).T.astype("int64")


def _keep_mask(key: Any, x: Any, p: float, *, channels: bool = False) -> Any:
    """Return where elements are kept."""
    return random.bernoulli(key, 1 - p, x.shape[:2] + (1,) * (x.ndim - 2) if channels else x.shape)


def _dropout(key: Any, x: Any, p: float, *, channels: bool = False) -> Any:
    return jnp.where(_keep_mask(key, x, p, channels=channels), x / (1 - p), 0)


def _alpha_dropout(key: Any, x: Any, p: float, *, channels: bool = False) -> Any:
    """Drop elements so that mean 0 and variance 1 stay."""
    factor = 1 / sqrt((1 - p) * (1 + p * _SATURATION**2))
    kept = jnp.where(_keep_mask(key, x, p, channels=channels), x, _SATURATION)
    return factor * kept - factor * _SATURATION * p


def _bias_dropout_add(p: Params, key: Any, x: Any, bias: Any, residual: Any) -> Any:
    return residual + _dropout(key, x + bias, p["p"])


IMPLEMENTATIONS = {
    **{f"random_{name}": _by_numbers(*law) for name, law in _LAWS.items()},
    **{f"sample_{name}": _by_tensors(*law) for name, law in _LAWS.items()},
    "random_randint": _random(
        lambda p, key: random.randint(key, tuple(p["shape"]), p["low"], p["high"], p["dtype"]), "jax.random.randint"
    ),
    "bernoulli": _random(_bernoulli, "jax.random.bernoulli"),
    "multinomial": _random(_multinomial, "jax.random.categorical"),
    "randperm": _random(
        lambda p, key: random.permutation(key, jnp.arange(p["elements"], dtype=p["dtype"])), "jax.random.permutation"
    ),
    "shuffle": _random(lambda p, key, x: random.permutation(key, x), "jax.random.permutation"),
    "dropout": _random(lambda p, key, x: _dropout(key, x, p["p"])),
    "dropout2d": _random(lambda p, key, x: _dropout(key, x, p["p"], channels=True)),
    "alpha_dropout": _random(lambda p, key, x: _alpha_dropout(key, x, p["p"])),
    "feature_alpha_dropout": _random(lambda p, key, x: _alpha_dropout(key, x, p["p"], channels=True)),
    "softmax_dropout": _random(lambda p, key, x: _dropout(key, nn.softmax(x, axis=-1), p["p"])),
    "bias_dropout_add": _random(_bias_dropout_add),
}
