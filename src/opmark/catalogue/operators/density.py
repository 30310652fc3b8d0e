"""Densities of distributions at given points, or their logarithms: random_pdf_*."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log, pi
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, repeat_block
from opmark.catalogue.operators._builders import torch as in_torch
from opmark.plugin import Launch, Operator, Params, Tolerance
from opmark.plugin.param import dtype, flag, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import sizeof

# 16-bit types are too imprecise: a logarithm of 5 is known to 1 % in bfloat16, so the density only to 5 %.
WIDE = ("float64", "float32")
LOG = flag("log", "the logarithm of the density, as training needs it")


class Density(NamedTuple):
    """A distribution whose density is computed."""

    name: str
    summary: str
    parameters: dict[str, tuple[float, float]]
    """Domain of each parameter. Parameters differ by distribution; all points of a distribution share them."""
    log_density: Callable[..., Any]
    """log_density(points, *parameters), computed by SciPy."""
    distribution: Callable[..., Any]
    """distribution(torch.distributions, *parameters)"""
    path: str
    flops: int
    """Flops per point, for the logarithm."""
    setup: int
    """Flops per distribution, independent of the number of points."""
    points: Callable[..., Any] | None = None
    """points(generator, count), if uniform values from the domain do not suffice."""
    domain: tuple[float, float] = (0.125, 3.0)
    smooth: bool = True
    """Whether the points have a gradient: counts have none."""
    gradient_factor: float = 1.0


def _result(p: Params, logarithm: Any) -> Any:
    return logarithm if p["log"] else np.exp(logarithm)


def _counts(high: int) -> Callable[..., Any]:
    return lambda generator, n: generator.integers(0, high, n)


def _inputs(row: Density) -> Callable[[Params], dict[str, TensorSpec]]:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        full = (p["distributions"], p["points"])
        make = repeat_block(full, p["dtype"], row.points) if row.points else None
        sample = TensorSpec(full, p["dtype"], *row.domain, make=make)
        given = {
            name: TensorSpec((p["distributions"], 1), p["dtype"], *domain) for name, domain in row.parameters.items()
        }
        return {"sample": sample, **given}

    return inputs


def _torch(row: Density) -> Any:
    def build(p: Params, sample: Any, **parameters: Any) -> Launch:
        import torch.distributions as known

        def logarithm() -> Any:
            return row.distribution(known, *parameters.values()).log_prob(sample)

        return logarithm if p["log"] else lambda: logarithm().exp()

    return in_torch(build, row.path)


def _cost(row: Density, p: Params) -> Cost:
    n, given, nbytes = p["distributions"] * p["points"], p["distributions"] * len(row.parameters), sizeof(p["dtype"])
    flops = (row.flops + (not p["log"])) * n + row.setup * p["distributions"]
    return Cost(flops, (n + given) * nbytes, n * nbytes)


def _backward_cost(row: Density, p: Params) -> Cost:
    """Points, parameters and the incoming gradient are read. Each gradient takes about as many flops as the density;
    gradients of the parameters are added up over the points."""
    n, given, nbytes = p["distributions"] * p["points"], p["distributions"] * len(row.parameters), sizeof(p["dtype"])
    flops = row.flops * n * (len(row.parameters) + row.smooth) + len(row.parameters) * n
    return Cost(flops, (2 * n + given) * nbytes, (row.smooth * n + given) * nbytes)


def _density(row: Density) -> Operator:
    def reference(p: Params, sample: Any, **parameters: Any) -> Any:
        return _result(p, row.log_density(sample, *parameters.values()))

    return Operator(
        name=f"random_pdf_{row.name}",
        summary=row.summary,
        category="density",
        params=(
            size("distributions", "number of distributions with different parameters"),
            size("points", "points at which each density is computed"),
            LOG,
            dtype(*WIDE),
        ),
        inputs=_inputs(row),
        cost=partial(_cost, row),
        backward_cost=partial(_backward_cost, row),
        reference=reference,
        presets={
            "small": {"distributions": 64, "points": 256},
            "typical": {"distributions": 1024, "points": 1024},
            "large": {"distributions": 8192, "points": 4096},
        },
        gradients=(*(("sample",) if row.smooth else ()), *row.parameters),
        implementations=(formula(reference), _torch(row)),
        tolerance=Tolerance(gradient_factor=row.gradient_factor),
        aliases=(f"pdf_{row.name}",),
    )


def _normal(x: Any, mean: Any, std: Any) -> Any:
    return -np.square((x - mean) / std) / 2 - np.log(std) - log(2 * pi) / 2


def _gamma(x: Any, alpha: Any, rate: Any) -> Any:
    from scipy.special import gammaln, xlogy

    return xlogy(alpha, rate) + xlogy(alpha - 1, x) - rate * x - gammaln(alpha)


def _poisson(x: Any, rate: Any) -> Any:
    from scipy.special import gammaln, xlogy

    return xlogy(x, rate) - rate - gammaln(x + 1)


def _negative_binomial(x: Any, k: Any, prob: Any) -> Any:
    from scipy.special import gammaln, xlog1py, xlogy

    return gammaln(x + k) - gammaln(x + 1) - gammaln(k) + xlogy(k, prob) + xlog1py(x, -prob)


def _generalized(x: Any, mu: Any, alpha: Any) -> Any:
    return _negative_binomial(x, 1 / alpha, 1 / (1 + mu * alpha))


# Logarithms of the gamma function nearly cancel: terms of up to 20 leave about 3. For the density itself, that times
# the error of a few last places is within the tolerance of a single operation; its gradients have derivatives of them.
_CANCELS = 8.0

ROWS = (
    Density(
        "normal", "density of the normal distribution", {"mean": (-1.0, 1.0), "std": (0.5, 2.0)}, _normal,
        lambda known, mean, std: known.Normal(mean, std, validate_args=False), "torch.distributions.Normal",
        flops=6, setup=2, domain=(-3.0, 3.0),
    ),
    Density(
        "exponential", "density of the exponential distribution", {"rate": (0.5, 4.0)},
        lambda x, rate: np.log(rate) - rate * x,
        lambda known, rate: known.Exponential(rate, validate_args=False), "torch.distributions.Exponential",
        flops=2, setup=1,
    ),
    Density(
        "gamma", "density of the gamma distribution", {"alpha": (1.5, 4.0), "rate": (0.5, 2.0)}, _gamma,
        lambda known, alpha, rate: known.Gamma(alpha, rate, validate_args=False), "torch.distributions.Gamma",
        flops=6, setup=3, gradient_factor=2.0,
    ),
    Density(
        "poisson", "probability of a count under the Poisson distribution", {"rate": (1.0, 8.0)}, _poisson,
        lambda known, rate: known.Poisson(rate, validate_args=False), "torch.distributions.Poisson",
        flops=5, setup=1, points=_counts(16), domain=(0, 16), smooth=False, gradient_factor=_CANCELS,
    ),
    Density(
        "negative_binomial", "probability of a number of failures before the k-th success",
        {"k": (2.0, 8.0), "prob": (0.375, 0.75)}, _negative_binomial,
        lambda known, k, prob: known.NegativeBinomial(k, 1 - prob, validate_args=False),
        "torch.distributions.NegativeBinomial",
        flops=9, setup=4, points=_counts(16), domain=(0, 16), smooth=False, gradient_factor=_CANCELS,
    ),
    Density(
        "generalized_negative_binomial",
        "probability of a count under the negative binomial distribution of mean mu, variance mu + alpha mu²",
        {"mu": (1.0, 4.0), "alpha": (0.25, 1.0)}, _generalized,
        lambda known, mu, alpha: known.NegativeBinomial(1 / alpha, logits=(mu * alpha).log(), validate_args=False),
        "torch.distributions.NegativeBinomial",
        flops=9, setup=8, points=_counts(16), domain=(0, 16), smooth=False, gradient_factor=_CANCELS,
    ),
    Density(
        # Points lie inside all intervals: at the ends, the density jumps.
        "uniform", "density of the uniform distribution", {"low": (-1.0, 0.0), "high": (2.0, 3.0)},
        lambda x, low, high: np.where((x >= low) & (x < high), -np.log(high - low), -np.inf),
        lambda known, low, high: known.Uniform(low, high, validate_args=False), "torch.distributions.Uniform",
        flops=0, setup=2, domain=(0.125, 1.875), smooth=False,
    ),
)  # fmt: skip


def _dirichlet_inputs(p: Params) -> dict[str, TensorSpec]:
    rows, points, k = p["distributions"], p["points"], p["categories"]
    return {
        "sample": TensorSpec((rows, points, k), p["dtype"], 0.0, 1.0, make=_shares((rows, points, k), p["dtype"])),
        "alpha": TensorSpec((rows, 1, k), p["dtype"], 0.5, 3.0),
    }


def _shares(full: tuple[int, ...], name: str) -> Callable[[Any], Any]:
    """Return positive numbers that add up to 1, none so small that its logarithm becomes extreme."""

    def make(generator: Any) -> Any:
        weights = repeat_block(full, name, lambda g, n: g.uniform(0.2, 1.0, n))(generator)
        weights /= weights.sum(axis=-1, keepdims=True)
        return weights

    return make


def _dirichlet(p: Params, sample: Any, alpha: Any) -> Any:
    from scipy.special import gammaln

    logarithm = ((alpha - 1) * np.log(sample)).sum(axis=-1) + gammaln(alpha.sum(axis=-1)) - gammaln(alpha).sum(axis=-1)
    return _result(p, logarithm)


def _torch_dirichlet(p: Params, sample: Any, alpha: Any) -> Launch:
    from torch.distributions import Dirichlet

    def logarithm() -> Any:
        return Dirichlet(alpha, validate_args=False).log_prob(sample)

    return logarithm if p["log"] else lambda: logarithm().exp()


def _dirichlet_cost(p: Params) -> Cost:
    """Count a logarithm, a difference, a product and a sum per number; gamma functions only occur per parameter."""
    n, given = p["distributions"] * p["points"], p["distributions"] * p["categories"]
    nbytes = sizeof(p["dtype"])
    flops = 4 * n * p["categories"] + 3 * given + (2 + (not p["log"])) * n
    return Cost(flops, (n * p["categories"] + given) * nbytes, n * nbytes)


def _dirichlet_backward(p: Params) -> Cost:
    n, given = p["distributions"] * p["points"], p["distributions"] * p["categories"]
    nbytes = sizeof(p["dtype"])
    both = n * p["categories"] + given
    return Cost(6 * n * p["categories"] + 2 * given, (both + n) * nbytes, both * nbytes)


DIRICHLET = Operator(
    name="random_pdf_dirichlet",
    summary="density of the Dirichlet distribution",
    category="density",
    params=(
        size("distributions", "number of distributions with different parameters"),
        size("points", "points at which each density is computed"),
        size("categories", "numbers of a point; they add up to 1"),
        # For a few dozen categories, the density itself is beyond the range of float32.
        flag("log", "the logarithm of the density, as training needs it", default=True),
        dtype(*WIDE),
    ),
    inputs=_dirichlet_inputs,
    cost=_dirichlet_cost,
    backward_cost=_dirichlet_backward,
    reference=_dirichlet,
    presets={
        "small": {"distributions": 16, "points": 64, "categories": 8},
        "typical": {"distributions": 256, "points": 256, "categories": 16},
        "large": {"distributions": 1024, "points": 1024, "categories": 32},
    },
    gradients=("sample", "alpha"),
    implementations=(formula(_dirichlet), in_torch(_torch_dirichlet, "torch.distributions.Dirichlet")),
    tolerance=Tolerance(terms=lambda p: int(p["categories"]), gradient_factor=_CANCELS),
    aliases=("pdf_dirichlet",),
)

OPERATORS = (*(_density(row) for row in ROWS), DIRICHLET)
