"""One step of a recurrent network, which the layers and cells of rnn, lstm and gru share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from opmark.operators import _numpy as np
from opmark.operators._formulas import sigmoid
from opmark.schema import Params, TensorSpec

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
