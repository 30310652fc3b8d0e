"""Dropout in its variants: elements or whole channels; set to zero, or to the negative saturation of SELU.

A call drops random elements. Therefore the check is that kept and dropped elements have the right values, that the
right share of elements is dropped, and that neighbours are dropped independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod, sqrt
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import numpy as by_numpy
from opmark.catalogue.operators._builders import numpy as in_numpy
from opmark.catalogue.operators._builders import softmax
from opmark.catalogue.operators._builders import torch as in_torch
from opmark.catalogue.operators._distributions import alternation, generator, share_error, snap, take_windows
from opmark.catalogue.operators._fusion import compiled, unfused
from opmark.catalogue.operators.fusion import ROW_PRESETS
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, real, shape
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof

# The lower limit of SELU.
SATURATION = -1.7580993408473766
# Values of x are away from zero, so that dropped elements differ from kept ones.
LOWEST = 0.5


class DropoutKind(NamedTuple):
    alpha: bool
    """Dropped elements become SELU's saturation, and the result is scaled to keep mean 0 and variance 1."""
    channels: bool
    """Whole channels are dropped, not elements."""

    def affine(self, p: Params) -> tuple[float, float, float]:
        """Return (factor, shift, value of a dropped element): a kept x becomes factor x + shift."""
        keep = 1.0 - p["p"]
        if not self.alpha:
            return 1 / keep, 0.0, 0.0
        factor = 1 / sqrt(keep * (1 + p["p"] * SATURATION**2))
        shift = -factor * SATURATION * p["p"]
        return factor, shift, factor * SATURATION + shift

    def decisions(self, p: Params) -> tuple[int, ...]:
        """Return the shape of the random decisions: one per element or one per channel."""
        full = tuple(p["shape"])
        return full[:2] + (1,) * (len(full) - 2) if self.channels else full

    def reference(self, p: Params, x: Any) -> Any:
        factor, shift, _ = self.affine(p)
        return factor * x + shift, _due_statistics(p)

    def observe(self, p: Params, output: Any, x: Any) -> Any:
        if output.shape != x.shape:
            raise ValueError(f"shape {output.shape}, expected {x.shape}")
        factor, shift, other = self.affine(p)
        return _compare_dropped(p, output, factor * x + shift, other, self.dropped(p, output))

    def dropped(self, p: Params, output: Any) -> Any:
        """Return which elements or channels are dropped."""
        factor, shift, other = self.affine(p)
        first = (slice(None), slice(None)) + (slice(0, 1),) * (output.ndim - 2)
        # Half-way between the value of dropped elements and the smallest kept one.
        marks: Any = (output[first] if self.channels else output) < (other + factor * LOWEST + shift) / 2
        return marks

    def observe_gradients(self, p: Params, gradients: Any, seeds: Any, x: Any) -> Any:
        found, seed = gradients[0], seeds[0]
        expected = self.affine(p)[0] * seed
        if found.shape != seed.shape:
            return [(found, expected)]
        dropped = (found == 0) & (seed != 0)
        if self.channels:
            dropped = (found == 0).all(axis=tuple(range(2, found.ndim)), keepdims=True)
        return list(
            zip(_compare_dropped(p, found, expected, 0.0, dropped), (expected, _due_statistics(p)), strict=True)
        )

    def cost(self, p: Params) -> Cost:
        """Count the scale, and for the alpha variant the shift; drawing random numbers is not counted."""
        n = prod(p["shape"])
        nbytes = n * sizeof(p["dtype"])
        return Cost((2 if self.alpha else 1) * n, nbytes, nbytes)

    def backward_cost(self, p: Params) -> Cost:
        """The incoming gradient and a bool per decision are read."""
        n = prod(p["shape"])
        nbytes = n * sizeof(p["dtype"])
        return Cost(n, nbytes + prod(self.decisions(p)), nbytes)

    def numpy(self, p: Params, x: Any) -> Launch:
        drawing = generator()
        factor, shift, other = (x.dtype.type(value) for value in self.affine(p))

        def launch() -> Any:
            dropped = drawing.random(self.decisions(p), np.float32) < p["p"]
            return np.where(dropped, other, factor * x + shift)

        return launch


def _compare_dropped(p: Params, found: Any, kept: Any, other: float, dropped: Any) -> tuple[Any, Any]:
    """Return (values with dropped elements replaced by the expected ones, statistics of the dropped ones)."""
    restored = np.where(dropped, found - other + kept, found)
    share = snap(float(dropped.mean()), p["p"], share_error(p["p"], dropped.size))
    return restored, np.array([share, alternation(dropped, p["p"])])


def _due_statistics(p: Params) -> Any:
    return np.array([p["p"], p["p"] ** 2 + (1 - p["p"]) ** 2])


def _row(name: str, summary: str, path: str, aliases: Sequence[str], *, alpha: bool, channels: bool) -> Operator:
    kind = DropoutKind(alpha, channels)
    return Operator(
        name=name,
        summary=summary,
        category="regularization",
        params=(
            shape("shape", "shape of x" + ("; its first two axes are samples and channels" if channels else "")),
            real("p", f"probability that {'a channel' if channels else 'an element'} is dropped", 0.5, kind="amount"),
            dtype(*FLOATS),
        ),
        inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"], LOWEST, 1.5)},
        cost=kind.cost,
        backward_cost=kind.backward_cost,
        reference=kind.reference,
        observe=kind.observe,
        draws=lambda p, output, x: take_windows(kind.dropped(p, output)),
        trivial=lambda p: bool(p["p"] == 0),
        observe_gradients=kind.observe_gradients,
        presets=CHANNELS if channels else ELEMENTS,
        rules=(BELOW_ONE, *((RANK,) if channels else ())),
        gradients=("x",),
        implementations=(in_numpy(kind.numpy), in_torch(_torch(path), path)),
        result="random",
        aliases=tuple(aliases),
    )


ELEMENTS = {
    "small": {"shape": [256, 256]},
    "typical": {"shape": [2048, 2048]},
    "large": {"shape": [8192, 4096]},
}
CHANNELS = {
    "small": {"shape": [8, 64, 8, 8]},
    "typical": {"shape": [32, 64, 32, 32]},
    "large": {"shape": [64, 256, 56, 56]},
}
BELOW_ONE = ParamRule("p", "be below 1, or all elements would be dropped (got {p})", lambda p: p["p"] < 1)
RANK = ParamRule("shape", "have 3 to 5 axes: samples, channels and 1 to 3 of space (got {shape})",
            lambda p: 3 <= len(p["shape"]) <= 5)  # fmt: skip


def _torch(path: str) -> Any:
    def build(p: Params, x: Any) -> Launch:
        function = resolve(path.replace("2d", f"{len(p['shape']) - 2}d"))
        return partial(function, x, p["p"], True)

    return build


DROPOUT_OPERATORS = (
    _row(
        "dropout", "x with random elements set to zero and the others scaled up", "torch.nn.functional.dropout",
        ("Dropout",), alpha=False, channels=False,
    ),
    _row(
        "alpha_dropout", "x with random elements set to SELU's saturation; keeps mean 0 and variance 1",
        "torch.nn.functional.alpha_dropout", ("AlphaDropout",), alpha=True, channels=False,
    ),
    _row(
        "dropout2d", "x with random channels set to zero and the others scaled up",
        "torch.nn.functional.dropout2d",
        ("Dropout2d", "dropout1d", "dropout3d", "Dropout1d", "Dropout3d", "feature_dropout", "spatial_dropout"),
        alpha=False, channels=True,
    ),
    _row(
        "feature_alpha_dropout", "x with random channels set to SELU's saturation",
        "torch.nn.functional.feature_alpha_dropout", ("FeatureAlphaDropout",), alpha=True, channels=True,
    ),
)  # fmt: skip


# Fused patterns with dropout: softmax_dropout, bias_dropout_add.

P = real("p", "probability that an element is dropped", 0.1, kind="amount")


def _statistics(p: Params) -> Any:
    return np.array([p["p"], p["p"] ** 2 + (1 - p["p"]) ** 2])


def _observe_dropped(p: Params, dropped: Any) -> Any:
    share = snap(float(dropped.mean()), p["p"], share_error(p["p"], dropped.size))
    return np.array([share, alternation(dropped, p["p"])])


def _observe_softmax(p: Params, output: Any, x: Any) -> Any:
    if output.shape != x.shape:
        raise ValueError(f"shape {output.shape}, expected {x.shape}")
    return np.where(output == 0, softmax(x) / (1 - p["p"]), output), _observe_dropped(p, output == 0)


def _numpy_softmax_dropout(p: Params, x: Any) -> Launch:
    drawing, factor = generator(), 1 / (1 - p["p"])

    def launch() -> Any:
        kept = drawing.random(x.shape, np.float32) >= p["p"]
        return (softmax(x.astype(np.float32) if x.dtype == np.float16 else x) * kept * factor).astype(x.dtype)

    return launch


def _softmax_dropout_chain(p: Params) -> Callable[..., Any]:
    from torch import softmax
    from torch.nn.functional import dropout

    rate = p["p"]
    return lambda x: dropout(softmax(x, -1), rate, True)


def _one_pass(flops: int, nbytes: int) -> Cost:
    return Cost(flops, nbytes, nbytes)


def _softmax_dropout_backward(p: Params) -> Cost:
    """Count 1 for the scale and 4 for softmax; its result, the incoming gradient and a bool per element are read."""
    n = prod(p["shape"])
    whole = n * sizeof(p["dtype"])
    return Cost(5 * n, 2 * whole + n, whole)


# Elements of a row whose gradients are asked what was dropped, and the incoming gradient below which rounding hides it.
_ASKED, _CLEAR = 3, 0.25


def _observe_softmax_gradient(p: Params, gradients: Any, seeds: Any, x: Any) -> Any:
    """Find out what was dropped, and compute the gradient with that.

    An element has gradient s (g - c): s is its softmax, g its incoming gradient, scaled, or 0 where it was dropped, and
    c the sum of s g over its row. So each element tells c in two ways, as kept and as dropped, of which one is right;
    c tells of all others whether they were dropped. The c that explains a row best counts.
    """
    found, seed, factor = gradients[0], seeds[0], 1 / (1 - p["p"])
    best, least, kept = np.zeros(x.shape), np.full(x.shape[:-1], np.inf), np.ones(x.shape, bool)
    if found.shape != x.shape or not np.isfinite(found).all():
        return [(found, best)]
    shares, incoming = softmax(x), factor * seed
    ratio = found / shares
    asked = np.argsort(-shares, axis=-1)[..., :_ASKED]
    for i in range(asked.shape[-1]):
        at = asked[..., i : i + 1]
        for if_kept in (incoming, np.zeros_like(incoming)):
            common = np.take_along_axis(if_kept - ratio, at, -1)
            guess = np.abs(ratio + common - incoming) < np.abs(ratio + common)
            passed = np.where(guess, incoming, 0.0)
            expected = shares * (passed - (shares * passed).sum(axis=-1, keepdims=True))
            error = np.square(found - expected).sum(axis=-1)
            better = error < least
            least = np.where(better, error, least)
            best, kept = (np.where(better[..., None], new, old) for new, old in ((expected, best), (guess, kept)))
    clear = ~kept[np.abs(seed) > _CLEAR]
    share = snap(float(clear.mean()), p["p"], share_error(p["p"], clear.size)) if clear.size else p["p"]
    return [(found, best), (np.array([share]), np.array([p["p"]]))]


SOFTMAX_DROPOUT = Operator(
    name="softmax_dropout",
    summary="dropout(softmax(x)) along the last axis",
    category="fused",
    params=(shape("shape", "shape of x"), P, dtype(*FLOATS)),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
    # 4 for softmax and 1 for the scale.
    cost=lambda p: _one_pass(5 * prod(p["shape"]), prod(p["shape"]) * sizeof(p["dtype"])),
    backward_cost=_softmax_dropout_backward,
    gradients=("x",),
    reference=lambda p, x: (softmax(x) / (1 - p["p"]), _statistics(p)),
    observe=_observe_softmax,
    observe_gradients=_observe_softmax_gradient,
    draws=lambda p, output, x: take_windows(output == 0),
    presets=ROW_PRESETS,
    rules=(BELOW_ONE,),
    result="random",
    implementations=(
        by_numpy(_numpy_softmax_dropout),
        unfused(_softmax_dropout_chain),
        compiled(_softmax_dropout_chain),
    ),
)


def _bias_inputs(p: Params) -> dict[str, TensorSpec]:
    """Return x and bias above 0.5, so that dropped elements differ from kept ones."""
    full, row = tuple(p["shape"]), (p["shape"][-1],)
    high = {name: TensorSpec(size, p["dtype"], 0.5, 1.5) for name, size in (("x", full), ("bias", row))}
    return {**high, "residual": TensorSpec(full, p["dtype"])}


def _keep_all(p: Params, x: Any, bias: Any, residual: Any) -> Any:
    return residual + (x + bias) / (1 - p["p"])


def _observe_bias(p: Params, output: Any, x: Any, bias: Any, residual: Any) -> Any:
    if output.shape != x.shape:
        raise ValueError(f"shape {output.shape}, expected {x.shape}")
    dropped = output - residual < 0.5
    added = (x + bias) / (1 - p["p"])
    return np.where(dropped, output + added, output), _observe_dropped(p, dropped)


def _numpy_bias_dropout_add(p: Params, x: Any, bias: Any, residual: Any) -> Launch:
    drawing, factor = generator(), x.dtype.type(1 / (1 - p["p"]))
    return lambda: residual + (x + bias) * factor * (drawing.random(x.shape, np.float32) >= p["p"])


def _bias_chain(p: Params) -> Callable[..., Any]:
    from torch.nn.functional import dropout

    rate = p["p"]
    return lambda x, bias, residual: dropout(x + bias, rate, True) + residual


def _observe_bias_gradients(p: Params, gradients: Any, seeds: Any, x: Any, bias: Any, residual: Any) -> Any:
    """Compare that of x as for a dropout; the bias has the sums of what x has."""
    of_x, of_bias = gradients
    axes = tuple(range(of_x.ndim - 1))
    return [*DropoutKind(False, False).observe_gradients(p, [of_x], seeds, x), (of_bias, of_x.sum(axis=axes))]


def _bias_backward(p: Params) -> Cost:
    """Count the scale and the sum for the bias; the incoming gradient and a bool per element are read."""
    x, bias, _ = _bias_inputs(p).values()
    return Cost(2 * x.elements, x.nbytes + x.elements, x.nbytes + bias.nbytes)


BIAS_DROPOUT_ADD = Operator(
    name="bias_dropout_add",
    summary="residual + dropout(x + bias), as between the layers of a transformer",
    category="fused",
    params=(shape("shape", "shape of x and residual; the bias is as long as the last axis"), P, dtype(*FLOATS)),
    inputs=_bias_inputs,
    cost=lambda p: Cost(3 * prod(p["shape"]), nbytes(_bias_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
    backward_cost=_bias_backward,
    # The gradient of the residual is the incoming one.
    gradients=("x", "bias"),
    observe_gradients=_observe_bias_gradients,
    reference=lambda p, **inputs: (_keep_all(p, **inputs), _statistics(p)),
    observe=_observe_bias,
    draws=lambda p, output, x, bias, residual: take_windows(output - residual < LOWEST),
    presets=ROW_PRESETS,
    rules=(BELOW_ONE,),
    result="random",
    implementations=(by_numpy(_numpy_bias_dropout_add), unfused(_bias_chain), compiled(_bias_chain)),
    aliases=("BiasDropoutAdd", "dropout_add"),
)

FUSED_DROPOUT_OPERATORS: tuple[Operator, ...] = (SOFTMAX_DROPOUT, BIAS_DROPOUT_ADD)


OPERATORS: tuple[Operator, ...] = (
    *DROPOUT_OPERATORS,
    *FUSED_DROPOUT_OPERATORS,
)
