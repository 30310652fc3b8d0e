"""Sequences of different length in one tensor [steps, batch, dim]: mask the rest, take the last step, reverse."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import EXACT, INDEX_BYTES, reference_in_numpy
from opmark.catalogue.operators._builders import torch
from opmark.plugin import Launch, Operator, Params
from opmark.plugin.param import dtype, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

PARAMS = (
    size("steps", "steps of the longest sequence"),
    size("batch", "number of sequences"),
    size("dim", "elements of a step"),
)
PRESETS = {
    "small": {"steps": 32, "batch": 16, "dim": 64},
    "typical": {"steps": 256, "batch": 32, "dim": 256},
    "large": {"steps": 2048, "batch": 64, "dim": 1024},
}


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((p["steps"], p["batch"], p["dim"]), p["dtype"]),
        "lengths": TensorSpec((p["batch"],), "int64", 1, p["steps"] + 1),
    }


def _all(p: Params) -> Cost:
    """The whole tensor is read and written, forwards and backwards."""
    moved = p["steps"] * p["batch"] * p["dim"] * sizeof(p["dtype"])
    return Cost(0, moved + p["batch"] * INDEX_BYTES, moved)


def _within(p: Params, lengths: Any) -> Any:
    """Return [steps, batch]: whether a step is part of its sequence."""
    return np.arange(p["steps"])[:, None] < lengths


def _mask_reference(p: Params, x: Any, lengths: Any) -> Any:
    return np.where(_within(p, lengths)[..., None], x, x.dtype.type(p["value"]))


def _torch_mask(p: Params, x: Any, lengths: Any) -> Launch:
    import torch

    step = torch.arange(p["steps"], device=x.device)[:, None]
    return lambda: x.masked_fill((step >= lengths)[..., None], p["value"])


SEQUENCE_MASK = Operator(
    name="sequence_mask",
    summary="x with all steps after the end of each sequence set to a value",
    category="sequence",
    params=(*PARAMS, real("value", "the value", 0.0), dtype(*FLOATS)),
    inputs=_inputs,
    cost=_all,
    backward_cost=_all,
    reference=_mask_reference,
    presets=PRESETS,
    gradients=("x",),
    implementations=(reference_in_numpy(_mask_reference), torch(_torch_mask)),
    aliases=("SequenceMask",),
)


def _last(p: Params, x: Any, lengths: Any) -> Any:
    return x[lengths - 1, np.arange(p["batch"])]


def _torch_last(p: Params, x: Any, lengths: Any) -> Launch:
    import torch

    each = torch.arange(p["batch"], device=x.device)
    return lambda: x[lengths - 1, each]


def _last_cost(p: Params) -> Cost:
    """One step of each sequence is read."""
    moved = p["batch"] * p["dim"] * sizeof(p["dtype"])
    return Cost(0, moved + p["batch"] * INDEX_BYTES, moved)


def _last_backward(p: Params) -> Cost:
    moved = p["batch"] * p["dim"] * sizeof(p["dtype"])
    return Cost(0, moved + p["batch"] * INDEX_BYTES, p["steps"] * moved)


SEQUENCE_LAST = Operator(
    name="sequence_last",
    summary="the last step of each sequence",
    category="sequence",
    params=(*PARAMS, dtype(*FLOATS)),
    inputs=_inputs,
    cost=_last_cost,
    backward_cost=_last_backward,
    reference=_last,
    tolerance=EXACT,
    presets={
        "small": {"steps": 32, "batch": 16, "dim": 64},
        "typical": {"steps": 256, "batch": 64, "dim": 512},
        "large": {"steps": 512, "batch": 256, "dim": 1024},
    },
    gradients=("x",),
    partial=True,
    implementations=(reference_in_numpy(_last), torch(_torch_last)),
    aliases=("SequenceLast",),
)


def _reverse_reference(p: Params, x: Any, lengths: Any) -> Any:
    step = np.arange(p["steps"])[:, None]
    return x[np.where(step < lengths, lengths - 1 - step, step), np.arange(p["batch"])]


def _torch_reverse(p: Params, x: Any, lengths: Any) -> Launch:
    import torch

    step = torch.arange(p["steps"], device=x.device)[:, None]
    each = torch.arange(p["batch"], device=x.device)
    return lambda: x[torch.where(step < lengths, lengths - 1 - step, step), each]


SEQUENCE_REVERSE = Operator(
    name="sequence_reverse",
    summary="the steps of each sequence in reverse order; steps after its end are unchanged",
    category="sequence",
    params=(*PARAMS, dtype(*FLOATS)),
    inputs=_inputs,
    cost=_all,
    backward_cost=_all,
    reference=_reverse_reference,
    tolerance=EXACT,
    presets=PRESETS,
    gradients=("x",),
    implementations=(reference_in_numpy(_reverse_reference), torch(_torch_reverse)),
    aliases=("SequenceReverse",),
)

OPERATORS = (SEQUENCE_MASK, SEQUENCE_LAST, SEQUENCE_REVERSE)
