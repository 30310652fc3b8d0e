"""Recurrent networks over whole sequences: rnn, lstm, gru; one layer or several, one direction or both.

All weights are in one vector, as in MXNet and cuDNN: w_ih and w_hh for each layer and direction, then b_ih and b_hh for
each of them. This suits frameworks that want them in one piece, and the gradient is one tensor for any number of
layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._gates import GRU, LSTM, RNN, Gates, bias, matrix, products, unit_flops
from opmark.operators.recurrent_cell import NONLINEARITY
from opmark.schema import Cost, Launch, Operator, Param, Params, TensorSpec, Tolerance
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, flag, size


def _directions(p: Params) -> int:
    return 2 if p["bidirectional"] else 1


def _widths(p: Params) -> list[int]:
    """Return the input size of each layer and direction."""
    directions = _directions(p)
    first, others = int(p["input_size"]), int(directions * p["hidden_size"])
    return [first] * directions + [others] * (directions * (int(p["layers"]) - 1))


def _pieces(p: Params, gates: Gates) -> list[TensorSpec]:
    """Return the parts of the vector of weights."""
    rows, widths = gates.number * p["hidden_size"], _widths(p)
    matrices = [matrix(p, (rows, n)) for width in widths for n in (width, p["hidden_size"])]
    return matrices + [bias(p, rows)] * 2 * len(widths)


def _split(p: Params, pieces: list[Any]) -> list[tuple[Any, Any, Any, Any]]:
    """Return (w_ih, w_hh, b_ih, b_hh) of each layer and direction."""
    half = len(pieces) // 2
    return [(*pieces[i : i + 2], *pieces[half + i : half + i + 2]) for i in range(0, half, 2)]


def _weights(p: Params, gates: Gates) -> TensorSpec:
    pieces = _pieces(p, gates)

    def make(generator: Any) -> Any:
        made = (piece.make(generator) if piece.make else generator.uniform(piece.low, piece.high, piece.shape)
                for piece in pieces)  # fmt: skip
        return np.concatenate([values.reshape(-1) for values in made])

    low, high = min(piece.low for piece in pieces), max(piece.high for piece in pieces)
    return TensorSpec((sum(piece.elements for piece in pieces),), p["dtype"], low, high, make=make)


def _inputs(gates: Gates) -> Callable[[Params], dict[str, TensorSpec]]:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        state = TensorSpec((p["layers"] * _directions(p), p["batch"], p["hidden_size"]), p["dtype"])
        return {
            "x": TensorSpec((p["seq_len"], p["batch"], p["input_size"]), p["dtype"]),
            **{f"{name}0": state for name in gates.states},
            "weights": _weights(p, gates),
        }

    return inputs


def _outputs_bytes(p: Params, gates: Gates) -> int:
    """Return the bytes of the top layer's states after all steps, and of all layers' last states."""
    steps = p["seq_len"] + p["layers"] * len(gates.states)
    return int(steps * _directions(p) * p["batch"] * p["hidden_size"] * sizeof(p["dtype"]))


def _cost(gates: Gates) -> Callable[[Params], Cost]:
    """Return a cost function in which each weight is read once, as if it stayed in a cache between steps."""

    def cost(p: Params) -> Cost:
        flops = sum(products(p, gates, width) + unit_flops(p, gates) for width in _widths(p))
        return Cost(p["seq_len"] * flops, nbytes(_inputs(gates)(p).values()), _outputs_bytes(p, gates))

    return cost


def _backward_cost(gates: Gates) -> Callable[[Params], Cost]:
    """Return a cost function with each product counted twice, once for each factor. All inputs, the outputs and their
    gradients are read; values of gates and inner layers are assumed to be recomputed."""

    def cost(p: Params) -> Cost:
        everything = nbytes(_inputs(gates)(p).values())
        rest = unit_flops(p, gates, backward=True)
        flops = sum(2 * products(p, gates, width) + rest for width in _widths(p))
        return Cost(p["seq_len"] * flops, everything + 2 * _outputs_bytes(p, gates), everything)

    return cost


def _reference(gates: Gates) -> Callable[..., Any]:
    def reference(p: Params, x: Any, weights: Any, **states: Any) -> Any:
        layers = iter(_split(p, _unpack(weights, _pieces(p, gates))))
        starts = zip(*(states[f"{name}0"] for name in gates.states), strict=True)
        last = []
        for _ in range(p["layers"]):
            found = []
            for backwards in range(_directions(p)):
                outputs, state = _run(p, gates, x[::-1] if backwards else x, next(starts), *next(layers))
                found.append(outputs[::-1] if backwards else outputs)
                last.append(state)
            x = np.concatenate(found, axis=-1)
        return x, *(np.stack(state) for state in zip(*last, strict=True))

    return reference


def _unpack(weights: Any, pieces: list[TensorSpec]) -> list[Any]:
    ends = np.cumsum([piece.elements for piece in pieces])[:-1]
    return [part.reshape(piece.shape) for part, piece in zip(np.split(weights, ends), pieces, strict=True)]


def _run(p: Params, gates: Gates, x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """Run one direction of one layer: return the state h after every step, and the whole state after the last one."""
    outputs = []
    for x_part in x @ w_ih.T + b_ih:
        state = gates.step(p, x_part, state, w_hh, b_hh)
        outputs.append(state[0])
    return np.stack(outputs), state


def _torch(gates: Gates, name: Callable[[Params], str]) -> Callable[..., Launch]:
    def build(p: Params, x: Any, weights: Any, **states: Any) -> Launch:
        import torch

        shapes = [piece.shape for piece in _pieces(p, gates)]
        lengths = [prod(shape) for shape in shapes]
        start = [states[f"{name}0"] for name in gates.states]
        network = partial(getattr(torch, name(p)), x, start if len(start) > 1 else start[0])
        options = {"has_biases": True, "num_layers": p["layers"], "dropout": 0.0, "bidirectional": p["bidirectional"]}

        def views() -> list[Any]:
            parts = [part.view(shape) for part, shape in zip(weights.split(lengths), shapes, strict=True)]
            return [tensor for four in _split(p, parts) for tensor in four]

        made = views()

        def launch() -> Any:
            # If gradients are needed, the call itself makes the views, so that autograd reaches the vector.
            train = torch.is_grad_enabled()
            return network(views() if train else made, train=train, batch_first=False, **options)

        return launch

    return build


def _row(gates: Gates, name: str, summary: str, aliases: tuple[str, ...], *params: Param,
         path: Callable[[Params], str] | None = None) -> Operator:  # fmt: skip
    reference = _reference(gates)
    return Operator(
        name=name,
        summary=summary,
        category="recurrent",
        params=(
            size("seq_len", "steps of a sequence"),
            size("batch", "sequences"),
            size("input_size", "elements of an input"),
            size("hidden_size", "elements of a state"),
            size("layers", "layers; each reads the output of the one before", 1),
            flag("bidirectional", "a second network reads the sequence backwards"),
            *params,
            dtype(*FLOATS),
        ),
        inputs=_inputs(gates),
        cost=_cost(gates),
        backward_cost=_backward_cost(gates),
        reference=reference,
        # States and their gradients are rounded at every gate of every step, so the error is twice that of one
        # rounding. A state may also be much smaller than those it was mixed from; the first ones lie between -1 and 1.
        tolerance=Tolerance(
            terms=lambda p: max(_widths(p)) + int(p["hidden_size"]), magnitude=lambda p: 3**-0.5, factor=2.0
        ),
        presets={
            "small": {"seq_len": 10, "batch": 4, "input_size": 32, "hidden_size": 32},
            "typical": {"seq_len": 25, "batch": 32, "input_size": 256, "hidden_size": 128},
            "large": {"seq_len": 128, "batch": 128, "input_size": 1024, "hidden_size": 1024, "layers": 2},
        },
        gradients=("x", *(f"{name}0" for name in gates.states), "weights"),
        implementations=(
            formula(reference),
            torch(_torch(gates, path or (lambda p: name)), f"torch.{name}" if path is None else ""),
        ),
        aliases=aliases,
    )


RNN_LAYERS = _row(
    RNN, "rnn", "a plain recurrent network over sequences (steps, batch, elements)",
    ("RNN", "rnn_tanh", "rnn_relu"), NONLINEARITY, path=lambda p: f"rnn_{p['nonlinearity']}",
)  # fmt: skip
LSTM_LAYERS = _row(LSTM, "lstm", "a long short-term memory over sequences (steps, batch, elements)", ("LSTM",))
GRU_LAYERS = _row(GRU, "gru", "a gated recurrent unit over sequences (steps, batch, elements)", ("GRU",))

OPERATORS = (RNN_LAYERS, LSTM_LAYERS, GRU_LAYERS)
"""Found by the registry."""
