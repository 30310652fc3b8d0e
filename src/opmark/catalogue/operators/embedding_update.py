"""The backward pass of embedding_bag and the optimizer's step: `dense` makes a dense gradient and updates all of the
table, `sparse` touches only the rows that were looked up.

The update is exact: the gradients of all bags that share a row are added up first, and the row is updated once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import INDEX_BYTES
from opmark.catalogue.operators._builders import torch as by_torch
from opmark.catalogue.operators._optimizer import lr, numpy_update
from opmark.catalogue.operators.embedding import (
    LOOKUPS,
    PRESETS,
    SPREADABLE,
    bag_of,
    distinct_rows,
    index_specs,
    lengths,
    lookups,
)
from opmark.plugin import Launch, Operator, Param, Params, Tolerance
from opmark.plugin.param import dtype, real
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof


def _state_dtype(p: Params) -> str:
    return "float64" if p["dtype"] == "float64" else "float32"


def _inputs(p: Params) -> dict[str, TensorSpec]:
    grad = TensorSpec((p["bags"], p["dim"]), p["dtype"])
    return {"weight": TensorSpec((p["rows"], p["dim"]), p["dtype"]), "grad": grad, **index_specs(p)}


def _inputs_with_state(p: Params) -> dict[str, TensorSpec]:
    return {**_inputs(p), "state": TensorSpec((p["rows"],), _state_dtype(p), 0.125, 1.0)}


def _cost(p: Params) -> Cost:
    """Count adding up the gradients by row, and a product and a difference for each row that is updated."""
    n, touched, nbytes = lookups(p), distinct_rows(p), sizeof(p["dtype"])
    rows = touched * p["dim"] * nbytes
    read = rows + p["bags"] * p["dim"] * nbytes + (n + p["bags"]) * INDEX_BYTES
    return Cost((n + 2 * touched) * p["dim"], read, rows)


def _cost_with_state(p: Params) -> Cost:
    """Count also a mean of squares, a root, and the quotient of the row by it."""
    plain, touched, state = _cost(p), distinct_rows(p), distinct_rows(p) * sizeof(_state_dtype(p))
    extra = touched * (3 * p["dim"] + 4)
    return Cost((plain.flops or 0) + extra, plain.bytes_read + state, plain.bytes_written + state)


def _dense(p: Params, weight: Any, grad: Any, indices: Any) -> Any:
    gradient = np.zeros(weight.shape, weight.dtype)
    np.add.at(gradient, indices, grad[bag_of(p)])
    return gradient


def _sgd(p: Params, weight: Any, grad: Any, indices: Any, offsets: Any) -> Any:
    return weight - p["lr"] * _dense(p, weight, grad, indices)


def _adagrad(p: Params, weight: Any, grad: Any, indices: Any, offsets: Any, state: Any) -> Any:
    gradient = _dense(p, weight, grad, indices)
    state = state + np.square(gradient).mean(axis=1)
    return weight - p["lr"] * gradient / (np.sqrt(state) + p["eps"])[:, None], state


def _bags(p: Params, indices: Any) -> Any:
    import torch

    return torch.from_numpy(bag_of(p)).to(indices.device)


def _sparse_step_of_sgd(p: Params, weight: Any, grad: Any, indices: Any, offsets: Any) -> Launch:
    bags, rate = _bags(p, indices), p["lr"]
    return lambda: weight.index_add_(0, indices, grad.index_select(0, bags), alpha=-rate)


def _dense_gradient(p: Params, grad: Any, indices: Any) -> Callable[[], Any]:
    """Return the call that autograd makes for embedding_bag."""
    import torch

    bags, sizes = _bags(p, indices), torch.from_numpy(lengths(p)).to(indices.device)
    none, backward = torch.empty(0, dtype=torch.int64, device=indices.device), torch.ops.aten
    return lambda: backward._embedding_bag_dense_backward(grad, indices, bags, sizes, none, p["rows"], False, 0, None)


def _dense_step_of_sgd(p: Params, weight: Any, grad: Any, indices: Any, offsets: Any) -> Launch:
    gradient, rate = _dense_gradient(p, grad, indices), p["lr"]
    return lambda: weight.add_(gradient(), alpha=-rate)


def _sparse_step_of_adagrad(p: Params, weight: Any, grad: Any, indices: Any, offsets: Any, state: Any) -> Launch:
    import torch

    bags, rate, eps = _bags(p, indices), p["lr"], p["eps"]

    def launch() -> Any:
        rows, place = torch.unique(indices, return_inverse=True)
        gradient = weight.new_zeros(len(rows), p["dim"]).index_add_(0, place, grad.index_select(0, bags))
        grown = state.index_select(0, rows).add_(gradient.to(state.dtype).square().mean(1))
        state.index_copy_(0, rows, grown)
        gradient.div_(grown.sqrt_().add_(eps).unsqueeze(1).to(weight.dtype))
        weight.index_add_(0, rows, gradient, alpha=-rate)
        return weight, state

    return launch


def _dense_step_of_adagrad(p: Params, weight: Any, grad: Any, indices: Any, offsets: Any, state: Any) -> Launch:
    dense, rate, eps = _dense_gradient(p, grad, indices), p["lr"], p["eps"]

    def launch() -> Any:
        gradient = dense()
        state.add_(gradient.to(state.dtype).square().mean(1))
        root = state.sqrt().add_(eps).unsqueeze(1).to(weight.dtype)
        weight.addcdiv_(gradient, root.expand_as(gradient), value=-rate)
        return weight, state

    return launch


def _update(
    name: str,
    summary: str,
    *,
    reference: Callable[..., Any],
    sparse: Callable[..., Launch],
    dense: Callable[..., Launch],
    params: Sequence[Param],
    state: bool,
    aliases: tuple[str, ...],
) -> Operator:
    changed = ("weight", "state") if state else ("weight",)
    return Operator(
        name=name,
        summary=summary,
        category="embedding",
        params=(*LOOKUPS, *params, dtype(*FLOATS)),
        inputs=_inputs_with_state if state else _inputs,
        cost=_cost_with_state if state else _cost,
        reference=reference,
        # A sum has as many gradients as bags share the row; a popular row is in most bags.
        tolerance=Tolerance(terms=lambda p: p["bags"] if p["distribution"] == "zipf" else lookups(p) // p["rows"] + 1),
        presets=PRESETS,
        rules=(SPREADABLE,),
        further_dtypes=lambda p: (_inputs_with_state(p)["state"].dtype,) if state else (),
        mutates=changed,
        partial=True,
        implementations=(
            numpy_update(reference, changed, False),
            by_torch(dense, name="dense"),  # the plain one first: speedups are relative to it
            by_torch(sparse, name="sparse"),
        ),
        aliases=aliases,
    )


OPERATORS: tuple[Operator, ...] = (
    _update(
        "embedding_bag_sgd_update",
        "gradient of embedding_bag (sum) and a step of SGD, of all rows or of those that were looked up",
        reference=_sgd,
        sparse=_sparse_step_of_sgd,
        dense=_dense_step_of_sgd,
        params=(lr(0.01),),
        state=False,
        aliases=("embedding_bag_backward_update", "EXACT_SGD", "embedding_bag_backward_sgd"),
    ),
    _update(
        "embedding_bag_rowwise_adagrad_update",
        "gradient of embedding_bag (sum) and a step of Adagrad with one state per row, of all or the looked up rows",
        reference=_adagrad,
        sparse=_sparse_step_of_adagrad,
        dense=_dense_step_of_adagrad,
        params=(lr(0.01), real("eps", "added to the root of the state", 1e-8, kind="amount")),
        state=True,
        aliases=("EXACT_ROWWISE_ADAGRAD", "embedding_bag_backward_rowwise_adagrad"),
    ),
)
