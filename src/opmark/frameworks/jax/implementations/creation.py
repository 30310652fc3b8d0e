"""New tensors without data, densities of distributions, random values and dropout."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from opmark.frameworks.implementation import calls
from opmark.frameworks.jax.implementations._modules import jnp, nn, random, row, special, wide
from opmark.plugin import Function, Implementation, Params, TensorSlot
from opmark.schema.tensor import is_float


def _full(p: Params) -> Any:
    return jnp.full(p["shape"], p["value"], p["dtype"])


def _arange(p: Params) -> Any:
    """End half a step after the last element, so that rounding cannot add or drop an element."""
    start, step = p["start"], p["step"]
    if not is_float(p["dtype"]):
        start, step = int(start), int(step)
    stop = start + step * (p["elements"] - 1) + (step / 2 if is_float(p["dtype"]) else (1 if step > 0 else -1))
    return jnp.arange(start, stop, step, dtype=p["dtype"])


def _logspace(p: Params) -> Any:
    """Compute in at least float32: 16-bit exponents would lose most digits of the powers."""
    wide = jnp.promote_types(p["dtype"], "float32")
    return jnp.logspace(p["start"], p["stop"], p["elements"], dtype=wide).astype(p["dtype"])


# Densities of distributions, by jax.scipy.stats where it has them with these parameters.


def _density(logarithm: Callable[..., Any], path: str = "") -> Implementation:
    def call(p: Params, sample: Any, **parameters: Any) -> Any:
        found = logarithm(sample, *parameters.values())
        return found if p["log"] else jnp.exp(found)

    return row(call, path)


def _normal_density(x: Any, mean: Any, std: Any) -> Any:
    from jax.scipy.stats import norm

    return norm.logpdf(x, mean, std)


def _exponential_density(x: Any, rate: Any) -> Any:
    from jax.scipy.stats import expon

    return expon.logpdf(x, scale=1 / rate)


def _gamma_density(x: Any, alpha: Any, rate: Any) -> Any:
    from jax.scipy.stats import gamma

    return gamma.logpdf(x, alpha, scale=1 / rate)


def _poisson_density(x: Any, rate: Any) -> Any:
    return special.xlogy(x, rate) - rate - special.gammaln(x + 1)


def _negative_binomial_density(x: Any, k: Any, prob: Any) -> Any:
    known = special.gammaln(x + k) - special.gammaln(x + 1) - special.gammaln(k)
    return known + special.xlogy(k, prob) + special.xlog1py(x, -prob)


def _generalized_density(x: Any, mu: Any, alpha: Any) -> Any:
    return _negative_binomial_density(x, 1 / alpha, 1 / (1 + mu * alpha))


def _uniform_density(x: Any, low: Any, high: Any) -> Any:
    from jax.scipy.stats import uniform

    return uniform.logpdf(x, low, high - low)


def _dirichlet(x: Any, alpha: Any) -> Any:
    known = special.gammaln(alpha.sum(-1)) - special.gammaln(alpha).sum(-1)
    return special.xlogy(alpha - 1, x).sum(-1) + known


# Random values and dropout. JAX has no hidden generator: a call takes a key and returns the next one.

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

        return Function(call, tuple(tensors.values()), (TensorSlot(random.PRNGKey(0)),))

    return Implementation("jax", build, path=path)


def _draw_uniform(key: Any, shape: Any, dtype: Any, low: Any, high: Any) -> Any:
    return random.uniform(key, shape, dtype, low, high)


def _draw_normal(key: Any, shape: Any, dtype: Any, mean: Any, std: Any) -> Any:
    return mean + std * random.normal(key, shape, dtype)


def _draw_exponential(key: Any, shape: Any, dtype: Any, rate: Any) -> Any:
    return random.exponential(key, shape, dtype) / rate


def _draw_gamma(key: Any, shape: Any, dtype: Any, alpha: Any, scale: Any) -> Any:
    return random.gamma(key, alpha, shape, dtype) * scale


def _draw_poisson(key: Any, shape: Any, dtype: Any, rate: Any) -> Any:
    return random.poisson(key, jnp.asarray(rate, jnp.promote_types(dtype, "float32")), shape).astype(dtype)


def _draw_negative_binomial(key: Any, shape: Any, dtype: Any, k: Any, prob: Any) -> Any:
    """Draw from a Poisson distribution whose rate is drawn from a gamma distribution."""
    first, second = random.split(key)
    return random.poisson(second, random.gamma(first, k, shape, dtype) * (1 - prob) / prob, shape).astype(dtype)


def _draw_generalized(key: Any, shape: Any, dtype: Any, mu: Any, alpha: Any) -> Any:
    return _draw_negative_binomial(key, shape, dtype, 1 / alpha, 1 / (1 + mu * alpha))


_LAWS: dict[str, tuple[Callable[..., Any], tuple[str, ...], str]] = {
    "uniform": (_draw_uniform, ("low", "high"), "jax.random.uniform"),
    "normal": (_draw_normal, ("mean", "std"), "jax.random.normal"),
    "exponential": (_draw_exponential, ("rate",), "jax.random.exponential"),
    "gamma": (_draw_gamma, ("alpha", "scale"), "jax.random.gamma"),
    "poisson": (_draw_poisson, ("rate",), "jax.random.poisson"),
    "negative_binomial": (_draw_negative_binomial, ("k", "prob"), ""),
    "generalized_negative_binomial": (_draw_generalized, ("mu", "alpha"), ""),
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
    "zeros": calls("jax.numpy.zeros", shape="shape", dtype="dtype"),
    "ones": calls("jax.numpy.ones", shape="shape", dtype="dtype"),
    "full": row(_full, "jax.numpy.full"),
    "arange": row(_arange, "jax.numpy.arange"),
    "linspace": calls("jax.numpy.linspace", start="start", stop="stop", num="elements", dtype="dtype"),
    "logspace": row(_logspace, "jax.numpy.logspace"),
    "eye": calls("jax.numpy.eye", N="rows", M="columns", dtype="dtype"),
    "random_pdf_normal": _density(_normal_density, "jax.scipy.stats.norm.logpdf"),
    "random_pdf_exponential": _density(_exponential_density, "jax.scipy.stats.expon.logpdf"),
    "random_pdf_gamma": _density(_gamma_density, "jax.scipy.stats.gamma.logpdf"),
    "random_pdf_poisson": _density(_poisson_density),
    "random_pdf_negative_binomial": _density(_negative_binomial_density),
    "random_pdf_generalized_negative_binomial": _density(_generalized_density),
    "random_pdf_uniform": _density(_uniform_density, "jax.scipy.stats.uniform.logpdf"),
    "random_pdf_dirichlet": _density(_dirichlet),
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
