"""Densities of distributions, by jax.scipy.stats where it has them with these parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.implementations.jax._modules import jnp, row, special
from opmark.schema import Implementation, Params


def _density(logarithm: Callable[..., Any], path: str = "") -> Implementation:
    def call(p: Params, sample: Any, **parameters: Any) -> Any:
        found = logarithm(sample, *parameters.values())
        return found if p["log"] else jnp.exp(found)

    return row(call, path)


def _normal(x: Any, mean: Any, std: Any) -> Any:
    from jax.scipy.stats import norm

    return norm.logpdf(x, mean, std)


def _exponential(x: Any, rate: Any) -> Any:
    from jax.scipy.stats import expon

    return expon.logpdf(x, scale=1 / rate)


def _gamma(x: Any, alpha: Any, rate: Any) -> Any:
    from jax.scipy.stats import gamma

    return gamma.logpdf(x, alpha, scale=1 / rate)


def _poisson(x: Any, rate: Any) -> Any:
    return special.xlogy(x, rate) - rate - special.gammaln(x + 1)


def _negative_binomial(x: Any, k: Any, prob: Any) -> Any:
    known = special.gammaln(x + k) - special.gammaln(x + 1) - special.gammaln(k)
    return known + special.xlogy(k, prob) + special.xlog1py(x, -prob)


def _generalized(x: Any, mu: Any, alpha: Any) -> Any:
    return _negative_binomial(x, 1 / alpha, 1 / (1 + mu * alpha))


def _uniform(x: Any, low: Any, high: Any) -> Any:
    from jax.scipy.stats import uniform

    return uniform.logpdf(x, low, high - low)


def _dirichlet(x: Any, alpha: Any) -> Any:
    known = special.gammaln(alpha.sum(-1)) - special.gammaln(alpha).sum(-1)
    return special.xlogy(alpha - 1, x).sum(-1) + known


IMPLEMENTATIONS = {
    "random_pdf_normal": _density(_normal, "jax.scipy.stats.norm.logpdf"),
    "random_pdf_exponential": _density(_exponential, "jax.scipy.stats.expon.logpdf"),
    "random_pdf_gamma": _density(_gamma, "jax.scipy.stats.gamma.logpdf"),
    "random_pdf_poisson": _density(_poisson),
    "random_pdf_negative_binomial": _density(_negative_binomial),
    "random_pdf_generalized_negative_binomial": _density(_generalized),
    "random_pdf_uniform": _density(_uniform, "jax.scipy.stats.uniform.logpdf"),
    "random_pdf_dirichlet": _density(_dirichlet),
}
