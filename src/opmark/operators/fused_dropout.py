"""Fused patterns with dropout: softmax_dropout, bias_dropout_add.

A call drops random elements. Therefore the check compares the kept elements and their share.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import numpy as by_numpy
from opmark.operators._drawn import alternation, generator, share_error, snap
from opmark.operators._formulas import softmax
from opmark.operators._fused import compiled, unfused
from opmark.operators.fused import ROW_PRESETS
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, real, shape

P = real("p", "probability that an element is dropped", 0.1, kind="amount")
BELOW_ONE = Rule("p", "be below 1, or all elements would be dropped (got {p})", lambda p: p["p"] < 1)


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


SOFTMAX_DROPOUT = Operator(
    name="softmax_dropout",
    summary="dropout(softmax(x)) along the last axis",
    category="fused",
    params=(shape("shape", "shape of x"), P, dtype(*FLOATS)),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
    # 4 for softmax and 1 for the scale.
    cost=lambda p: _one_pass(5 * prod(p["shape"]), prod(p["shape"]) * sizeof(p["dtype"])),
    reference=lambda p, x: (softmax(x) / (1 - p["p"]), _statistics(p)),
    observe=_observe_softmax,
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


BIAS_DROPOUT_ADD = Operator(
    name="bias_dropout_add",
    summary="residual + dropout(x + bias), as between the layers of a transformer",
    category="fused",
    params=(shape("shape", "shape of x and residual; the bias is as long as the last axis"), P, dtype(*FLOATS)),
    inputs=_bias_inputs,
    cost=lambda p: Cost(3 * prod(p["shape"]), nbytes(_bias_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
    reference=lambda p, **inputs: (_keep_all(p, **inputs), _statistics(p)),
    observe=_observe_bias,
    presets=ROW_PRESETS,
    rules=(BELOW_ONE,),
    result="random",
    implementations=(by_numpy(_numpy_bias_dropout_add), unfused(_bias_chain), compiled(_bias_chain)),
    aliases=("BiasDropoutAdd", "dropout_add"),
)

OPERATORS: tuple[Operator, ...] = (SOFTMAX_DROPOUT, BIAS_DROPOUT_ADD)
