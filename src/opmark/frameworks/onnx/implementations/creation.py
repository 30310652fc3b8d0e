"""Random values and dropout.

The nodes have no seed, so every call draws anew and no engine can compute their outputs in advance.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from opmark.frameworks.onnx.implementations._graph import GraphBuilder, element_type, graph
from opmark.plugin import Implementation, Params

_SATURATION = -1.7580993408473766
"""The lower limit of SELU."""


def _uniform(g: GraphBuilder, dtype: str, shape: Any, low: float = 0.0, high: float = 1.0) -> Any:
    drawn = g.RandomUniform(dtype=element_type(dtype), shape=list(shape), low=low, high=high)
    return g.typed(drawn, dtype)


def _normal(g: GraphBuilder, dtype: str, shape: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    drawn = g.RandomNormal(dtype=element_type(dtype), shape=list(shape), mean=mean, scale=std)
    return g.typed(drawn, dtype)


def _exponential(g: GraphBuilder, dtype: str, shape: Any) -> Any:
    """Draw exponential values: minus the logarithm of uniform values that are never zero."""
    return g.Neg(g.Log(g.Sub(1.0, _uniform(g, dtype, shape))))


def _each(p: Params) -> list[int]:
    return [p["draws"], p["distributions"]]


def _sample_uniform(g: GraphBuilder, p: Params, low: str, high: str) -> Any:
    return g.Add(low, g.Mul(g.Sub(high, low), _uniform(g, p["dtype"], _each(p))))


def _sample_normal(g: GraphBuilder, p: Params, mean: str, std: str) -> Any:
    return g.Add(mean, g.Mul(std, _normal(g, p["dtype"], _each(p))))


def _randint(g: GraphBuilder, p: Params) -> Any:
    drawn = g.Floor(_uniform(g, "float64", p["shape"], float(p["low"]), float(p["high"])))
    return g.Cast(drawn, to=p["dtype"])


def _multinomial(g: GraphBuilder, p: Params, weights: str) -> Any:
    return g.typed(g.Multinomial(g.Log(weights), dtype=element_type("int64"), sample_size=p["draws"]), "int64")


def _order(g: GraphBuilder, n: int) -> Any:
    """Return a random permutation: the indices that sort random numbers."""
    return g.TopK(_uniform(g, "float64", [n]), [n], outputs=2, axis=0)[1]


def _randperm(g: GraphBuilder, p: Params) -> Any:
    order = _order(g, p["elements"])
    return order if p["dtype"] == "int64" else g.Cast(order, to=p["dtype"])


def _dropout(g: GraphBuilder, x: str, rate: float) -> Any:
    return g.Dropout(x, rate, g.constant(True, "bool"))


def _bernoulli(g: GraphBuilder, p: Params, x: str) -> Any:
    """Avoid ONNX's Bernoulli: engines without a kernel for it use ONNX's own formula, which draws 1 with probability
    1 - x."""
    return g.Cast(g.Less(g.RandomUniformLike(x), x), to=p["dtype"])


def _drop(*, alpha: bool, channels: bool) -> Implementation:
    """Drop whole channels, or drop to SELU's saturation, which ONNX's Dropout cannot do."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        shape, keep = list(p["shape"]), 1 - p["p"]
        factor, shift, other = 1 / keep, 0.0, 0.0
        if alpha:
            factor = 1 / sqrt(keep * (1 + p["p"] * _SATURATION**2))
            shift = -factor * _SATURATION * p["p"]
            other = factor * _SATURATION + shift
        about = [*shape[:2], *[1] * (len(shape) - 2)] if channels else shape
        dropped = g.Less(_uniform(g, "float32", about), p["p"])
        scaled = g.Mul(x, factor)
        return g.Where(dropped, other, g.Add(scaled, shift) if alpha else scaled)

    return graph(draw)


def _bias_dropout_add(g: GraphBuilder, p: Params, x: str, bias: str, residual: str) -> Any:
    """Write dropout out: ONNX Runtime removes a Dropout from a model even in training mode, unless it comes last."""
    dropped = g.Less(_uniform(g, "float32", p["shape"]), p["p"])
    return g.Add(g.Where(dropped, 0.0, g.Mul(g.Add(x, bias), 1 / (1 - p["p"]))), residual)


IMPLEMENTATIONS = {
    "random_uniform": graph(lambda g, p: _uniform(g, p["dtype"], p["shape"], p["low"], p["high"]),
                            path="onnx.RandomUniform"),
    "random_normal": graph(lambda g, p: _normal(g, p["dtype"], p["shape"], p["mean"], p["std"]),
                           path="onnx.RandomNormal"),
    "random_exponential": graph(lambda g, p: g.Div(_exponential(g, p["dtype"], p["shape"]), p["rate"])),
    "random_randint": graph(_randint),
    "sample_uniform": graph(_sample_uniform),
    "sample_normal": graph(_sample_normal),
    "sample_exponential": graph(lambda g, p, rate: g.Div(_exponential(g, p["dtype"], _each(p)), rate)),
    "bernoulli": graph(_bernoulli),
    "multinomial": graph(_multinomial, path="onnx.Multinomial"),
    "randperm": graph(_randperm),
    "shuffle": graph(lambda g, p, x: g.Gather(x, _order(g, p["shape"][0]))),
    "dropout": graph(lambda g, p, x: _dropout(g, x, p["p"]), path="onnx.Dropout"),
    "alpha_dropout": _drop(alpha=True, channels=False),
    "dropout2d": _drop(alpha=False, channels=True),
    "feature_alpha_dropout": _drop(alpha=True, channels=True),
    "softmax_dropout": graph(lambda g, p, x: _dropout(g, g.Softmax(x, axis=-1), p["p"])),
    "bias_dropout_add": graph(_bias_dropout_add),
}  # fmt: skip
