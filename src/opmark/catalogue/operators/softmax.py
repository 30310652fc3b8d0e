"""softmax, log_softmax, softmin and masked_softmax along an axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import AXIS_EXISTS
from opmark.catalogue.operators._builders import calls, formula, numpy, softmax, torch
from opmark.plugin import Launch, Operator, Params
from opmark.plugin.param import dtype, integer, shape
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof

PRESETS = {
    "small": {"shape": [64, 256]},
    "typical": {"shape": [2048, 1024]},
    "large": {"shape": [8192, 4096]},
}
PARAMS = (
    shape("shape", "shape of x"),
    integer("axis", "axis that is reduced; negative counts from the last", -1),
    dtype(*FLOATS),
)


def _cost(flops: int, tensors_read: int) -> Callable[[Params], Cost]:
    def cost(p: Params) -> Cost:
        n, size = prod(p["shape"]), sizeof(p["dtype"])
        return Cost(flops * n, tensors_read * n * size, n * size)

    return cost


def _softmax(p: Params, x: Any) -> Any:
    return softmax(x, p["axis"])


def _log_softmax(p: Params, x: Any) -> Any:
    shifted = x - x.max(axis=p["axis"], keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=p["axis"], keepdims=True))


def _row(name: str, summary: str, reference: Any, numpy: Any, path: str, aliases: tuple[str, ...]) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        category="activation",
        params=PARAMS,
        inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
        # Difference, exponential, sum, and a quotient or another difference; comparisons do not count. Backwards, the
        # output times the gradient, the sum of that, a difference and a product.
        cost=_cost(flops=4, tensors_read=1),
        backward_cost=_cost(flops=4, tensors_read=2),
        reference=reference,
        presets=PRESETS,
        rules=(AXIS_EXISTS,),
        gradients=("x",),
        implementations=(numpy, calls(path, "x", fixed=None, dim="axis")),
        aliases=aliases,
    )


SOFTMAX = _row(
    "softmax", "exp(x) over its sum along an axis",
    _softmax, numpy(lambda p, x: partial(_softmax, p, x)), "torch.softmax",
    ("SoftmaxActivation", "Softmax", "SoftmaxOutput"),
)  # fmt: skip
LOG_SOFTMAX = _row(
    "log_softmax", "logarithm of softmax(x)",
    _log_softmax, formula(_log_softmax), "torch.log_softmax", ("LogSoftmax",),
)  # fmt: skip
SOFTMIN = _row(
    "softmin", "softmax(-x): the smallest element gets the largest share",
    lambda p, x: _softmax(p, -x), formula(lambda p, x: _softmax(p, -x)), "torch.nn.functional.softmin", ("Softmin",),
)  # fmt: skip


def _masked_inputs(p: Params) -> dict[str, TensorSpec]:
    def make(generator: Any) -> Any:
        """Keep three of four elements, and the first of each row: a row without any would have no softmax."""
        mask = generator.uniform(size=p["shape"]) < 0.75
        mask[(slice(None),) * (p["axis"] % len(p["shape"])) + (0,)] = True
        return mask

    x = TensorSpec(tuple(p["shape"]), p["dtype"])
    return {"x": x, "mask": TensorSpec(x.shape, "bool", 0, 2, make=make)}


def _masked_cost(p: Params) -> Cost:
    """Count as for softmax; the mask is read too."""
    specs = _masked_inputs(p)
    return Cost(4 * specs["x"].elements, nbytes(specs.values()), specs["x"].nbytes)


def _masked_softmax(p: Params, x: Any, mask: Any) -> Any:
    return _softmax(p, np.where(mask, x, x.dtype.type(-np.inf)))


def _torch_masked(p: Params, x: Any, mask: Any) -> Launch:
    from torch import softmax, where

    nothing = float("-inf")
    return lambda: softmax(where(mask, x, nothing), p["axis"])


MASKED_SOFTMAX = Operator(
    name="masked_softmax",
    summary="softmax along an axis over the elements where a mask is true; the others become 0",
    category="activation",
    params=PARAMS,
    inputs=_masked_inputs,
    cost=_masked_cost,
    # Masked elements have a softmax of zero and so a gradient of zero: the mask is not needed.
    backward_cost=_cost(flops=4, tensors_read=2),
    reference=_masked_softmax,
    presets=PRESETS,
    rules=(AXIS_EXISTS,),
    gradients=("x",),
    implementations=(formula(_masked_softmax), torch(_torch_masked)),
)

OPERATORS = (SOFTMAX, LOG_SOFTMAX, SOFTMIN, MASKED_SOFTMAX)
"""Found by the registry."""
