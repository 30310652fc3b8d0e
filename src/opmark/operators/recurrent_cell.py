"""One step of a recurrent network: rnn_cell, lstm_cell, gru_cell."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opmark.operators._build import formula, torch
from opmark.operators._gates import GRU, LSTM, RNN, Gates, bias, matrix, products, unit_flops
from opmark.schema import Cost, Launch, Operator, Param, Params, TensorSpec, Tolerance
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS
from opmark.schema.param import choice, dtype, size

WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh")
NONLINEARITY = choice("nonlinearity", "activation of the sum", ("tanh", "relu"), "tanh")


def _inputs(gates: Gates) -> Callable[[Params], dict[str, TensorSpec]]:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        rows, hidden = gates.number * p["hidden_size"], p["hidden_size"]
        return {
            "x": TensorSpec((p["batch"], p["input_size"]), p["dtype"]),
            **{name: TensorSpec((p["batch"], hidden), p["dtype"]) for name in gates.states},
            "w_ih": matrix(p, (rows, p["input_size"])),
            "w_hh": matrix(p, (rows, hidden)),
            "b_ih": bias(p, rows),
            "b_hh": bias(p, rows),
        }

    return inputs


def _cost(gates: Gates) -> Callable[[Params], Cost]:
    def cost(p: Params) -> Cost:
        specs = _inputs(gates)(p)
        flops = products(p, gates, p["input_size"]) + unit_flops(p, gates)
        return Cost(flops, nbytes(specs.values()), nbytes(specs[name] for name in gates.states))

    return cost


def _backward_cost(gates: Gates) -> Callable[[Params], Cost]:
    """Return a cost function with each product counted twice, once for each factor. All inputs and the gradients of the
    new state are read; values of gates are assumed to be recomputed."""

    def cost(p: Params) -> Cost:
        specs = _inputs(gates)(p)
        everything, states = nbytes(specs.values()), nbytes(specs[name] for name in gates.states)
        flops = 2 * products(p, gates, p["input_size"]) + unit_flops(p, gates, backward=True)
        return Cost(flops, everything + states, everything)

    return cost


def _reference(gates: Gates) -> Callable[..., Any]:
    def reference(p: Params, x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, **states: Any) -> Any:
        state = tuple(states[name] for name in gates.states)
        found = gates.step(p, x @ w_ih.T + b_ih, state, w_hh, b_hh)
        return found if len(found) > 1 else found[0]

    return reference


def _torch(gates: Gates, name: Callable[[Params], str]) -> Callable[..., Launch]:
    def build(p: Params, x: Any, **tensors: Any) -> Launch:
        import torch

        states = tuple(tensors[name] for name in gates.states)
        weights = (tensors[name] for name in WEIGHTS)
        return partial(getattr(torch, name(p)), x, states if len(states) > 1 else states[0], *weights)

    return build


def _row(gates: Gates, name: str, summary: str, aliases: tuple[str, ...], *params: Param,
         path: Callable[[Params], str] | None = None) -> Operator:  # fmt: skip
    reference = _reference(gates)
    return Operator(
        name=name,
        summary=summary,
        category="recurrent",
        params=(
            size("batch", "sequences"),
            size("input_size", "elements of an input"),
            size("hidden_size", "elements of the state"),
            *params,
            dtype(*FLOATS),
        ),
        inputs=_inputs(gates),
        cost=_cost(gates),
        backward_cost=_backward_cost(gates),
        reference=reference,
        tolerance=Tolerance(terms=lambda p: int(p["input_size"] + p["hidden_size"])),
        presets={
            "small": {"batch": 8, "input_size": 64, "hidden_size": 64},
            "typical": {"batch": 128, "input_size": 512, "hidden_size": 512},
            "large": {"batch": 1024, "input_size": 2048, "hidden_size": 2048},
        },
        gradients=("x", *gates.states, *WEIGHTS),
        implementations=(
            formula(reference),
            torch(_torch(gates, path or (lambda p: name)), f"torch.{name}" if path is None else ""),
        ),
        aliases=aliases,
    )


RNN_CELL = _row(
    RNN, "rnn_cell", "tanh (or relu) of the input and the state, each times a matrix",
    ("RNNCell", "rnn_tanh_cell", "rnn_relu_cell"), NONLINEARITY, path=lambda p: f"rnn_{p['nonlinearity']}_cell",
)  # fmt: skip
LSTM_CELL = _row(
    LSTM, "lstm_cell", "one step of a long short-term memory: input, forget, cell and output gates", ("LSTMCell",),
)  # fmt: skip
GRU_CELL = _row(
    GRU, "gru_cell", "one step of a gated recurrent unit: reset, update and new gates", ("GRUCell",),
)  # fmt: skip

OPERATORS = (RNN_CELL, LSTM_CELL, GRU_CELL)
"""Found by the registry."""
