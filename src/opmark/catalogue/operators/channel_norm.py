"""Operators that normalise images by channel: batch_norm, group_norm, instance_norm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, numpy, torch
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, flag, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS

SHAPE = shape("shape", "shape of x: batch, channels, and any number of further axes")
EPS = real("eps", "added to the variance before the root", 1e-5, kind="amount")
TRAINING = "use the statistics of this batch and update the running ones; false: use the running ones"
MOMENTUM = real("momentum", "weight of this batch in the running statistics (MXNet: 1 - this)", 0.1, kind="amount")
MOMENTUM_IS_A_SHARE = ParamRule("momentum", "be at most 1", lambda p: p.get("momentum", 0) <= 1)
HAS_CHANNELS = ParamRule("shape", "have at least 2 axes, of which the second is the channels (got {shape})",
                    lambda p: len(p["shape"]) >= 2)  # fmt: skip
IMAGES = {
    "small": {"shape": [4, 16, 16, 16]},
    "typical": {"shape": [32, 64, 32, 32]},
    "large": {"shape": [64, 128, 112, 112]},
}


def _inputs(p: Params) -> dict[str, TensorSpec]:
    channel = TensorSpec((p["shape"][1],), p["dtype"], 0.5, 1.5)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"]), "weight": channel, "bias": channel}


def _cost(p: Params) -> Cost:
    """Count flops per element: mean 1, difference 1, variance 2, quotient 1, scale and shift 2; none per channel."""
    specs = _inputs(p)
    return Cost(7 * specs["x"].elements, nbytes(specs.values()), specs["x"].nbytes)


def _backward_cost(p: Params) -> Cost:
    """Count flops per element: normalising again 2, sums for both vectors 3, and the gradient of x, which uses the
    sums, 4. Inputs are x, the gradient and the weight."""
    x, weight, bias = _inputs(p).values()
    return Cost(9 * x.elements, 2 * x.nbytes + weight.nbytes, nbytes((x, weight, bias)))


def _per_channel(vector: Any, x: Any) -> Any:
    """Reshape one value per channel so that it broadcasts over x."""
    return vector.reshape(-1, *[1] * (x.ndim - 2))


# -- batch_norm uses the statistics of the batch (training) or given ones (inference).


def _batch_inputs(p: Params) -> dict[str, TensorSpec]:
    channels, kind = (p["shape"][1],), p["dtype"]
    statistics = {"running_mean": TensorSpec(channels, kind), "running_var": TensorSpec(channels, kind, 0.5, 1.5)}
    return _inputs(p) | statistics


def _batch_cost(p: Params) -> Cost:
    """With given statistics count two flops per element: everything else is done once per channel."""
    specs, updated = _batch_inputs(p), 2 if p["training"] else 0
    flops = (7 if p["training"] else 2) * specs["x"].elements
    return Cost(flops, nbytes(specs.values()), specs["x"].nbytes + updated * specs["weight"].nbytes)


def _batch_backward(p: Params) -> Cost:
    """With given statistics, which are then read too, the gradient of x is a single product."""
    if p["training"]:
        return _backward_cost(p)
    x, weight, bias = _inputs(p).values()
    return Cost(6 * x.elements, 2 * x.nbytes + 3 * weight.nbytes, nbytes((x, weight, bias)))


def batch_norm(p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> Any:
    """In training, return the updated running statistics too; the running variance is the sample variance."""
    mean, var = running_mean, running_var
    if p["training"]:
        others = (0, *range(2, x.ndim))
        mean, var = x.mean(axis=others), x.var(axis=others)
    scale = weight / np.sqrt(var + p["eps"])
    y = (x - _per_channel(mean, x)) * _per_channel(scale, x) + _per_channel(bias, x)
    if not p["training"]:
        return y
    n, momentum = x.size // x.shape[1], p["momentum"]
    updated = (
        (1 - momentum) * running_mean + momentum * mean,
        (1 - momentum) * running_var + momentum * n / (n - 1) * var,
    )
    return y, *updated


def numpy_norm(reference: Callable[..., Any], *running: str) -> Implementation:
    """Make a NumPy implementation of a reference that in training also returns the new values of these two inputs. They
    are updated in place."""

    def build(p: Params, **tensors: Any) -> Launch:
        launch: Launch = formula(reference).build(p, **tensors)
        if not p.get("training"):
            return launch
        mean, var = (tensors[name] for name in running)

        def training() -> Any:
            y, mean[:], var[:] = launch()
            return y, mean, var

        return training

    return numpy(build)


def _torch_batch_norm(p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> Launch:
    from torch.nn.functional import batch_norm

    launch = partial(batch_norm, x, running_mean, running_var, weight, bias, p["training"], p["momentum"], p["eps"])
    return (lambda: (launch(), running_mean, running_var)) if p["training"] else launch


BATCH_NORM = Operator(
    name="batch_norm",
    summary="each channel with zero mean and unit variance over the batch, then scaled and shifted",
    category="normalization",
    params=(
        SHAPE,
        flag("training", TRAINING, default=True),
        MOMENTUM,
        EPS,
        dtype(*FLOATS),
    ),
    inputs=_batch_inputs,
    cost=_batch_cost,
    backward_cost=_batch_backward,
    reference=batch_norm,
    presets=IMAGES,
    rules=(
        HAS_CHANNELS,
        ParamRule("shape", "have at least 4 elements per channel (got {shape})",
             lambda p: prod(p["shape"]) // p["shape"][1] >= 4),
        MOMENTUM_IS_A_SHARE,
    ),
    gradients=("x", "weight", "bias"),
    mutates=("running_mean", "running_var"),
    implementations=(
        numpy_norm(batch_norm, "running_mean", "running_var"),
        torch(_torch_batch_norm, "torch.nn.functional.batch_norm"),
    ),
    aliases=("BatchNorm", "batchnorm"),
)  # fmt: skip

# -- group_norm and instance_norm use statistics over a group of channels of one image, or over one channel.


def _group_reference(groups: Callable[[Params], int]) -> Callable[..., Any]:
    def reference(p: Params, x: Any, weight: Any, bias: Any) -> Any:
        rows = x.reshape(x.shape[0], groups(p), -1)
        centred = rows - rows.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        normal = (centred / np.sqrt(variance + p["eps"])).reshape(x.shape)
        return normal * _per_channel(weight, x) + _per_channel(bias, x)

    return reference


def _torch_group_norm(p: Params, x: Any, weight: Any, bias: Any) -> Launch:
    from torch.nn.functional import group_norm

    return partial(group_norm, x, p["groups"], weight, bias, p["eps"])


def _torch_instance_norm(p: Params, x: Any, weight: Any, bias: Any) -> Launch:
    from torch.nn.functional import instance_norm

    return partial(instance_norm, x, weight=weight, bias=bias, eps=p["eps"])


def _row(name: str, summary: str, params: Any, reference: Any, torch: Implementation, **more: Any) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        category="normalization",
        params=params,
        inputs=_inputs,
        cost=_cost,
        backward_cost=_backward_cost,
        reference=reference,
        gradients=("x", "weight", "bias"),
        implementations=(formula(reference), torch),
        **more,
    )


GROUP_NORM = _row(
    "group_norm",
    "each group of channels of each image with zero mean and unit variance, then scaled and shifted by channel",
    (SHAPE, size("groups", "groups of channels"), EPS, dtype(*FLOATS)),
    _group_reference(lambda p: int(p["groups"])),
    torch(_torch_group_norm, "torch.nn.functional.group_norm"),
    presets={name: {**IMAGES[name], "groups": n} for name, n in (("small", 4), ("typical", 8), ("large", 32))},
    rules=(
        HAS_CHANNELS,
        ParamRule("groups", "divide the channels of {shape} (got {groups})",
             lambda p: p["shape"][1] % p["groups"] == 0),
        # With fewer elements, the result of normalising would be mostly rounding errors.
        ParamRule("groups", "leave at least 4 elements of {shape} per group (got {groups})",
             lambda p: prod(p["shape"][1:]) // p["groups"] >= 4),
    ),
    aliases=("GroupNorm", "groupnorm"),
)  # fmt: skip
INSTANCE_NORM = _row(
    "instance_norm",
    "each channel of each image with zero mean and unit variance, then scaled and shifted",
    (SHAPE, EPS, dtype(*FLOATS)),
    _group_reference(lambda p: int(p["shape"][1])),
    torch(_torch_instance_norm, "torch.nn.functional.instance_norm"),
    presets=IMAGES,
    rules=(
        ParamRule("shape", "have at least 3 axes, and 4 elements after the second (got {shape})",
             lambda p: len(p["shape"]) >= 3 and prod(p["shape"][2:]) >= 4),
    ),
    aliases=("InstanceNorm", "instancenorm"),
)  # fmt: skip

OPERATORS = (BATCH_NORM, GROUP_NORM, INSTANCE_NORM)
"""Found by the registry."""
