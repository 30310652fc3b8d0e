"""Recurrent networks over whole sequences: rnn, lstm, gru; one layer or several, one direction or both.

All weights are in one vector, as in MXNet and cuDNN: w_ih and w_hh for each layer and direction, then b_ih and b_hh for
each of them. This suits frameworks that want them in one piece, and the gradient is one tensor for any number of
layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, sigmoid, torch
from opmark.plugin import Launch, Operator, Param, Params, Tolerance
from opmark.plugin.param import choice, dtype, flag, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof

State = tuple[Any, ...]
Step = Callable[[Params, Any, State, Any, Any], State]
"""step(params, x_part, state, w_hh, b_hh) returns the next state. x_part is x w_ih' + b_ih; a state is (h,) or (h,
c)."""


class Gates(NamedTuple):
    """A kind of recurrent network. The weights of its gates are stacked in torch's order."""

    number: int
    states: tuple[str, ...]
    step: Step
    flops: Callable[[Params], int]
    """Flops of one hidden unit in one step, without both matrix products: adding both parts and both biases, the gates
    (a sigmoid is an exponential, a sum and a quotient), the new state."""
    backward_flops: Callable[[Params], int]
    """The same for the backward pass, which has the values of the gates; both biases have the same gradient."""


def _rnn(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    total = x_part + state[0] @ w_hh.T + b_hh
    return (np.tanh(total) if p["nonlinearity"] == "tanh" else np.maximum(total, 0),)


def _lstm(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    h, c = state
    i, f, g, o = np.split(x_part + h @ w_hh.T + b_hh, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def _gru(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    """Compute a step as cuDNN and torch do: the reset gate is applied after the product with the weights."""
    (h,) = state
    x_r, x_z, x_n = np.split(x_part, 3, axis=-1)
    h_r, h_z, h_n = np.split(h @ w_hh.T + b_hh, 3, axis=-1)
    n = np.tanh(x_n + sigmoid(x_r + h_r) * h_n)
    return (n + sigmoid(x_z + h_z) * (h - n),)


# rnn: a sum, 2 biases, tanh. Backward: sum of both incoming gradients, tanh' 3, bias. relu costs nothing.
RNN = Gates(1, ("h",), _rnn, lambda p: 4 if p["nonlinearity"] == "tanh" else 3,
            lambda p: 5 if p["nonlinearity"] == "tanh" else 2)  # fmt: skip
# lstm: 4 gates with 3 sums each, 3 sigmoids, tanh, the cell 3, the output 2. Backward: h 1, o 4, c 5, i, f and g 4
# each, the cell before 1, biases 4.
LSTM = Gates(4, ("h", "c"), _lstm, lambda p: 27, lambda p: 27)
# gru: 2 gates with 3 sums and a sigmoid each, the new value 5, the output 3. Backward: h 1, z 5, n 5, r 4, its product
# 1, the state before 2, biases 4.
GRU = Gates(3, ("h",), _gru, lambda p: 20, lambda p: 22)


def products(p: Params, gates: Gates, width: int) -> int:
    """Return the flops of both products of one step, with inputs of this width."""
    return int(2 * gates.number * p["hidden_size"] * (width + p["hidden_size"]) * p["batch"])


def unit_flops(p: Params, gates: Gates, *, backward: bool = False) -> int:
    """Return the flops of one step without its products."""
    per_unit = gates.backward_flops(p) if backward else gates.flops(p)
    return int(per_unit * p["batch"] * p["hidden_size"])


def is_relu(p: Params) -> bool:
    return p.get("nonlinearity") == "relu"


def matrix(p: Params, shape: tuple[int, int]) -> TensorSpec:
    """Return weights as networks are initialised; much smaller with relu, see `bias`."""
    bound = 0.1 * max(p["hidden_size"], shape[1]) ** -0.5 if is_relu(p) else p["hidden_size"] ** -0.5
    return TensorSpec(shape, p["dtype"], -bound, bound)


def bias(p: Params, length: int) -> TensorSpec:
    """Return biases as networks are initialised; with relu, so large that they alone decide the sign of its argument.

    One unit is on, the next one off. Otherwise some of the many arguments of a layer would lie so near to zero that a
    finite difference of the reference could not determine the gradient.
    """
    if not is_relu(p):
        return TensorSpec((length,), p["dtype"], *(sign * p["hidden_size"] ** -0.5 for sign in (-1, 1)))

    def make(generator: Any) -> Any:
        return generator.uniform(0.5, 1.0, length) * np.where(np.arange(length) % 2, -1.0, 1.0)

    return TensorSpec((length,), p["dtype"], -1.0, 1.0, make=make)


# One step of a recurrent network: rnn_cell, lstm_cell, gru_cell.

WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh")
NONLINEARITY = choice("nonlinearity", "activation of the sum", ("tanh", "relu"), "tanh")


def _cell_inputs(gates: Gates) -> Callable[[Params], dict[str, TensorSpec]]:
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


def _cell_cost(gates: Gates) -> Callable[[Params], Cost]:
    def cost(p: Params) -> Cost:
        specs = _cell_inputs(gates)(p)
        flops = products(p, gates, p["input_size"]) + unit_flops(p, gates)
        return Cost(flops, nbytes(specs.values()), nbytes(specs[name] for name in gates.states))

    return cost


def _cell_backward_cost(gates: Gates) -> Callable[[Params], Cost]:
    """Return a cost function with each product counted twice, once for each factor. All inputs and the gradients of the
    new state are read; values of gates are assumed to be recomputed."""

    def cost(p: Params) -> Cost:
        specs = _cell_inputs(gates)(p)
        everything, states = nbytes(specs.values()), nbytes(specs[name] for name in gates.states)
        flops = 2 * products(p, gates, p["input_size"]) + unit_flops(p, gates, backward=True)
        return Cost(flops, everything + states, everything)

    return cost


def _cell_reference(gates: Gates) -> Callable[..., Any]:
    def reference(p: Params, x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, **states: Any) -> Any:
        state = tuple(states[name] for name in gates.states)
        found = gates.step(p, x @ w_ih.T + b_ih, state, w_hh, b_hh)
        return found if len(found) > 1 else found[0]

    return reference


def _cell_torch(gates: Gates, name: Callable[[Params], str]) -> Callable[..., Launch]:
    def build(p: Params, x: Any, **tensors: Any) -> Launch:
        import torch

        states = tuple(tensors[name] for name in gates.states)
        weights = (tensors[name] for name in WEIGHTS)
        return partial(getattr(torch, name(p)), x, states if len(states) > 1 else states[0], *weights)

    return build


def _cell_row(gates: Gates, name: str, summary: str, aliases: tuple[str, ...], *params: Param,
         path: Callable[[Params], str] | None = None) -> Operator:  # fmt: skip
    reference = _cell_reference(gates)
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
        inputs=_cell_inputs(gates),
        cost=_cell_cost(gates),
        backward_cost=_cell_backward_cost(gates),
        reference=reference,
        # The derivative of tanh, 1 - h², loses digits where h is near 1.
        tolerance=Tolerance(terms=lambda p: int(p["input_size"] + p["hidden_size"]), gradient_factor=2.0),
        presets={
            "small": {"batch": 8, "input_size": 64, "hidden_size": 64},
            "typical": {"batch": 128, "input_size": 512, "hidden_size": 512},
            "large": {"batch": 1024, "input_size": 2048, "hidden_size": 2048},
        },
        gradients=("x", *gates.states, *WEIGHTS),
        implementations=(
            formula(reference),
            torch(_cell_torch(gates, path or (lambda p: name)), f"torch.{name}" if path is None else ""),
        ),
        aliases=aliases,
    )


RNN_CELL = _cell_row(
    RNN, "rnn_cell", "tanh (or relu) of the input and the state, each times a matrix",
    ("RNNCell", "rnn_tanh_cell", "rnn_relu_cell"), NONLINEARITY, path=lambda p: f"rnn_{p['nonlinearity']}_cell",
)  # fmt: skip
LSTM_CELL = _cell_row(
    LSTM, "lstm_cell", "one step of a long short-term memory: input, forget, cell and output gates", ("LSTMCell",),
)  # fmt: skip
GRU_CELL = _cell_row(
    GRU, "gru_cell", "one step of a gated recurrent unit: reset, update and new gates", ("GRUCell",),
)  # fmt: skip

RECURRENT_CELL_OPERATORS = (RNN_CELL, LSTM_CELL, GRU_CELL)
"""Found by the registry."""


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

RECURRENT_OPERATORS = (RNN_LAYERS, LSTM_LAYERS, GRU_LAYERS)
"""Found by the registry."""


OPERATORS = (
    *RECURRENT_OPERATORS,
    *RECURRENT_CELL_OPERATORS,
)
