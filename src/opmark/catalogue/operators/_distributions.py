"""Random distributions: parameters, distribution functions, how each framework draws, and how draws are compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, sqrt
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.plugin import Launch, Param, ParamRule, Params
from opmark.plugin.param import real
from opmark.schema.tensor import FLOATS

# On the CPU, torch draws some distributions only in these types.
WIDE = ("float64", "float32")
# Largest range of consecutive integers that an element type represents exactly.
EXACT = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8}


class Argument(NamedTuple):
    """A parameter of a distribution."""

    name: str
    doc: str
    default: float
    low: float
    """Domain, if the argument is a tensor."""
    high: float

    @property
    def param(self) -> Param:
        return real(self.name, self.doc, self.default)


class Law(NamedTuple):
    name: str
    summary: str
    arguments: tuple[Argument, ...]
    cdf: Callable[..., Any]
    """cdf(x, *arguments) returns the probability of at most x."""
    numpy: Callable[..., Any]
    """numpy(generator, size, *arguments)"""
    torch: Callable[..., Launch]
    """torch(size, keywords of a new tensor, *numbers)"""
    distribution: Callable[..., Any]
    """distribution(torch.distributions, *tensors)"""
    rules: tuple[ParamRule, ...]
    support: Callable[..., Any] = lambda *_: (0.0, inf)
    discrete: bool = False
    dtypes: tuple[str, ...] = FLOATS
    path: str = ""
    aliases: tuple[str, ...] = ()


def _in_place(method: str) -> Callable[..., Launch]:
    """Return a builder for a tensor method that fills the tensor in place."""

    def launch(size: Any, new: Any, *numbers: float) -> Launch:
        import torch

        return lambda: getattr(torch.empty(size, **new), method)(*numbers)

    return launch


def _torch_normal(size: Any, new: Any, mean: float, std: float) -> Launch:
    import torch

    return partial(torch.normal, mean, std, size, **new)


def _torch_poisson(size: Any, new: Any, rate: float) -> Launch:
    import torch

    return partial(torch.poisson, torch.full((), rate, **new).expand(size))


def _by_distribution(distribution: Callable[..., Any]) -> Callable[..., Launch]:
    def launch(size: Any, new: Any, *numbers: float) -> Launch:
        import torch
        import torch.distributions as known

        return partial(distribution(known, *(torch.tensor(number, **new) for number in numbers)).sample, size)

    return launch


def _gamma(known: Any, alpha: Any, scale: Any) -> Any:
    return known.Gamma(alpha, 1 / scale, validate_args=False)


def _negative_binomial(known: Any, k: Any, prob: Any) -> Any:
    """Torch's `probs` is the probability of what we call a failure."""
    return known.NegativeBinomial(k, 1 - prob, validate_args=False)


def _generalized(known: Any, mu: Any, alpha: Any) -> Any:
    return known.NegativeBinomial(1 / alpha, logits=(mu * alpha).log(), validate_args=False)


def _normal_cdf(x: Any, mean: Any, std: Any) -> Any:
    from scipy.special import ndtr

    return ndtr((x - mean) / std)


def _gamma_cdf(x: Any, alpha: Any, scale: Any) -> Any:
    from scipy.special import gammainc

    return gammainc(alpha, x / scale)


def _poisson_cdf(x: Any, rate: Any) -> Any:
    from scipy.special import gammaincc

    return np.where(x < 0, 0.0, gammaincc(np.maximum(x, 0) + 1, rate))


def _negative_binomial_cdf(x: Any, k: Any, prob: Any) -> Any:
    from scipy.special import betainc

    return np.where(x < 0, 0.0, betainc(k, np.maximum(x, 0) + 1, prob))


def _generalized_cdf(x: Any, mu: Any, alpha: Any) -> Any:
    return _negative_binomial_cdf(x, 1 / alpha, 1 / (1 + mu * alpha))


def _numpy_generalized(generator: Any, size: Any, mu: Any, alpha: Any) -> Any:
    return generator.negative_binomial(1 / alpha, 1 / (1 + mu * alpha), size)


def _numpy_gamma(generator: Any, size: Any, alpha: Any, scale: Any) -> Any:
    return generator.gamma(alpha, scale, size)


def _require_positive(*names: str) -> tuple[ParamRule, ...]:
    return tuple(ParamRule(name, f"be above 0 (got {{{name}}})", _above_zero(name)) for name in names)


def _above_zero(name: str) -> Callable[[Params], bool]:
    return lambda p: bool(p[name] > 0)


def _require_exact_counts(name: str, largest: Callable[[Params], float]) -> ParamRule:
    """Rounded counts would no longer come from the requested distribution."""
    return ParamRule(
        name,
        f"keep counts within what {{dtype}} holds exactly (got {{{name}}})",
        lambda p: largest(p) <= EXACT[p["dtype"]],
    )


def _require_variety(name: str, mean: Callable[[Params], float]) -> ParamRule:
    """With a smaller mean almost all values would be zero, and two calls might draw the same."""
    return ParamRule(name, f"make the mean at least 0.1 (got {{{name}}})", lambda p: mean(p) >= 0.1)


def _far_out(mean: float, variance: float) -> float:
    return mean + 12 * sqrt(variance)


MEAN = Argument("mean", "mean of the distribution", 0.0, -1.0, 1.0)
STD = Argument("std", "standard deviation of the distribution", 1.0, 0.5, 2.0)
RATE = Argument("rate", "rate of the distribution", 1.0, 0.5, 4.0)
ALPHA = Argument("alpha", "shape parameter of the distribution", 2.0, 1.0, 4.0)
SCALE = Argument("scale", "scale of the distribution: mean = alpha x scale", 1.0, 0.5, 2.0)

LAWS = (
    Law(
        "uniform", "the uniform distribution",
        (Argument("low", "smallest value", 0.0, 0.0, 1.0), Argument("high", "largest value", 1.0, 2.0, 4.0)),
        cdf=lambda x, low, high: (x - low) / (high - low),
        numpy=lambda generator, size, low, high: generator.uniform(low, high, size),
        torch=_in_place("uniform_"),
        distribution=lambda known, low, high: known.Uniform(low, high, validate_args=False),
        rules=(ParamRule("high", "be above `low` = {low} (got {high})", lambda p: p["low"] < p["high"]),
               ParamRule("high", "be at most 30000 away from 0, like `low`, in float16 (got {low}, {high})",
                    lambda p: p["dtype"] != "float16" or max(abs(p["low"]), abs(p["high"])) <= 30000)),
        support=lambda low, high: (low, high),
        path="torch.Tensor.uniform_", aliases=("uniform", "uniform_", "rand", "rand_like", "random"),
    ),
    Law(
        "normal", "the normal distribution", (MEAN, STD),
        cdf=_normal_cdf,
        numpy=lambda generator, size, mean, std: generator.normal(mean, std, size),
        torch=_torch_normal,
        distribution=lambda known, mean, std: known.Normal(mean, std, validate_args=False),
        rules=_require_positive("std"), support=lambda *_: (-inf, inf),
        path="torch.normal", aliases=("normal", "normal_", "randn", "randn_like", "random_randn"),
    ),
    Law(
        "exponential", "the exponential distribution", (RATE,),
        cdf=lambda x, rate: -np.expm1(-rate * x),
        numpy=lambda generator, size, rate: generator.exponential(1 / rate, size),
        torch=_in_place("exponential_"),
        distribution=lambda known, rate: known.Exponential(rate, validate_args=False),
        rules=_require_positive("rate"),
        path="torch.Tensor.exponential_", aliases=("exponential", "exponential_"),
    ),
    Law(
        "gamma", "the gamma distribution", (ALPHA, SCALE),
        cdf=_gamma_cdf, numpy=_numpy_gamma, torch=_by_distribution(_gamma), distribution=_gamma,
        rules=_require_positive("alpha", "scale"), dtypes=WIDE, path="torch.distributions.Gamma",
    ),
    Law(
        "poisson", "the Poisson distribution", (Argument("rate", "mean of the distribution", 4.0, 1.0, 8.0),),
        cdf=_poisson_cdf,
        numpy=lambda generator, size, rate: generator.poisson(rate, size),
        torch=_torch_poisson,
        distribution=lambda known, rate: known.Poisson(rate, validate_args=False),
        rules=(*_require_positive("rate"), _require_variety("rate", lambda p: float(p["rate"])),
               _require_exact_counts("rate", lambda p: _far_out(p["rate"], p["rate"]))),
        discrete=True, path="torch.poisson", aliases=("poisson",),
    ),
    Law(
        "negative_binomial", "failures before the k-th success",
        (Argument("k", "successes to wait for", 4.0, 2.0, 8.0),
         Argument("prob", "probability of a success", 0.5, 0.375, 0.75)),
        cdf=_negative_binomial_cdf,
        numpy=lambda generator, size, k, prob: generator.negative_binomial(k, prob, size),
        torch=_by_distribution(_negative_binomial), distribution=_negative_binomial,
        rules=(*_require_positive("k", "prob"), ParamRule("prob", "be below 1 (got {prob})", lambda p: p["prob"] < 1),
               _require_variety("k", lambda p: p["k"] * (1 / p["prob"] - 1)),
               _require_exact_counts("k", lambda p: _far_out(p["k"] / p["prob"], p["k"] / p["prob"] ** 2))),
        discrete=True, dtypes=WIDE, path="torch.distributions.NegativeBinomial",
    ),
    Law(
        "generalized_negative_binomial", "the negative binomial distribution of mean mu, variance mu + alpha mu²",
        (Argument("mu", "mean of the distribution", 2.0, 1.0, 4.0),
         Argument("alpha", "variance beyond that of a Poisson distribution, relative to mu²", 0.5, 0.25, 1.0)),
        cdf=_generalized_cdf, numpy=_numpy_generalized,
        torch=_by_distribution(_generalized), distribution=_generalized,
        rules=(*_require_positive("mu", "alpha"), _require_variety("mu", lambda p: float(p["mu"])),
               _require_exact_counts("mu", lambda p: _far_out(p["mu"], p["mu"] + p["alpha"] * p["mu"] ** 2))),
        discrete=True, dtypes=WIDE, path="torch.distributions.NegativeBinomial",
    ),
)  # fmt: skip


# Compare values that every call draws anew by their distribution.

ERRORS = 6.0
_LEVELS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


def expected_uniform() -> Any:
    """Return what `uniformity` returns for values of the right distribution."""
    return np.array([*_LEVELS, 0.5, 0.25, 0.5])


def uniformity(places: Any) -> Any:
    """Return the shares of values below each level, the mean, the mean distance from the middle, and how often a value
    is on the same side of the middle as the next one, which shows patterns."""
    flat = places.reshape(-1)
    n = flat.size
    shares = [snap(float((flat < level).mean()), level, share_error(level, n)) for level in _LEVELS]
    mean = snap(float(flat.mean()), 0.5, 1 / sqrt(12 * n))
    spread = snap(float(np.abs(flat - 0.5).mean()), 0.25, 1 / sqrt(48 * n))
    return np.array([*shares, mean, spread, alternation(flat < 0.5, 0.5)])


def take_windows(array: Any) -> Any:
    """Return the first elements and as many from the middle on: enough to see that draws repeat, at a low price."""
    flat, half = array.reshape(-1), 1 << 13
    middle = flat.size // 2
    return flat if flat.size <= 2 * half else np.concatenate((flat[:half], flat[middle : middle + half]))


def alternation(marks: Any, probability: float) -> float:
    """Return how often neighbouring marks are equal, for marks that are true with this probability."""
    flat = marks.reshape(-1)
    alike = probability**2 + (1 - probability) ** 2
    if flat.size < 2:
        return alike
    # Pairs that share a value vary a little more than independent pairs.
    return snap(float((flat[1:] == flat[:-1]).mean()), alike, 2 * share_error(alike, flat.size - 1))


def share_error(probability: float, n: int) -> float:
    """Return the standard error of a share, a little larger because counts of rare values are not normal."""
    return sqrt(probability * (1 - probability) / n) + 1 / n


def snap(found: float, expected: float, error: float) -> float:
    return expected if abs(found - expected) <= ERRORS * error else found


def refuse_outside(values: Any, shape: tuple[int, ...], low: Any, high: Any, slack: float) -> None:
    """Raise ValueError, which makes a result wrong, for values that cannot be drawn. `slack` allows for rounding."""
    if values.shape != shape:
        raise ValueError(f"shape {values.shape}, expected {shape}")
    if not np.isfinite(values).all():
        raise ValueError("not finite everywhere")
    below, above = values < low - slack * np.abs(low), values > high + slack * np.abs(high)
    if below.any() or above.any():
        raise ValueError(f"{int(below.sum() + above.sum())} of {values.size} values cannot be drawn")


def place_in_step(below: Any, upto: Any) -> Any:
    """Return random places in the steps of a discrete distribution function."""
    return below + generator(1).random(below.shape) * (upto - below)


def generator(use: int = 0) -> Any:
    """Return a NumPy generator whose seed differs from those of inputs, so that values do not correlate with them."""
    return np.random.default_rng((0x6F706D, use))
