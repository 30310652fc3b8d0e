"""One step of a recurrent network: what rnn, lstm and gru, as layers and as cells, have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from opmark.operators import _numpy as np
from opmark.operators._formulas import sigmoid
from opmark.schema import Params, TensorSpec

State = tuple[Any, ...]
Step = Callable[[Params, Any, State, Any, Any], State]
"""step(params, x_part, state, w_hh, b_hh): the next state. x_part is x w_ih' + b_ih; a state is (h,), or (h, c)."""


class Gates(NamedTuple):
    """A kind of recurrent network. Weights of its gates lie below each other, in the order that torch has."""

    number: int
    states: tuple[str, ...]
    step: Step
    flops: Callable[[Params], int]
    """For one hidden unit in one step, beside the products with both matrices: adding both parts and both biases,
    the gates (a sigmoid is an exponential, a sum and a quotient), the new state."""
    backward_flops: Callable[[Params], int]
    """The same backwards, with what the gates were at hand; both biases have the same gradient."""


def _rnn(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    total = x_part + state[0] @ w_hh.T + b_hh
    return (np.tanh(total) if p["nonlinearity"] == "tanh" else np.maximum(total, 0),)


def _lstm(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    h, c = state
    i, f, g, o = np.split(x_part + h @ w_hh.T + b_hh, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def _gru(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    """As in cuDNN and torch: the reset gate works on the product with the weights, not before it."""
    (h,) = state
    x_r, x_z, x_n = np.split(x_part, 3, axis=-1)
    h_r, h_z, h_n = np.split(h @ w_hh.T + b_hh, 3, axis=-1)
    n = np.tanh(x_n + sigmoid(x_r + h_r) * h_n)
    return (n + sigmoid(x_z + h_z) * (h - n),)


# rnn: 1 + 2 biases + tanh; back: sum of what comes in, tanh' 3, bias. relu costs nothing.
RNN = Gates(1, ("h",), _rnn, lambda p: 4 if p["nonlinearity"] == "tanh" else 3,
            lambda p: 5 if p["nonlinearity"] == "tanh" else 2)  # fmt: skip
# lstm: 4 gates with 3 sums each, 3 sigmoids, tanh, the cell 3, the output 2. Back: h 1, o 4, c 5, i, f and g 4 each,
# the cell before 1, biases 4.
LSTM = Gates(4, ("h", "c"), _lstm, lambda p: 27, lambda p: 27)
# gru: 2 gates with 3 sums and a sigmoid each, the new value 5, the output 3. Back: h 1, z 5, n 5, r 4, its product 1,
# the state before 2, biases 4.
GRU = Gates(3, ("h",), _gru, lambda p: 20, lambda p: 22)


def products(p: Params, gates: Gates, width: int) -> int:
    """Flops of both products of one step, with inputs of this width."""
    return int(2 * gates.number * p["hidden_size"] * (width + p["hidden_size"]) * p["batch"])


def unit_flops(p: Params, gates: Gates, *, backward: bool = False) -> int:
    """Flops of all that is not a product, in one step."""
    per_unit = gates.backward_flops(p) if backward else gates.flops(p)
    return int(per_unit * p["batch"] * p["hidden_size"])


def is_relu(p: Params) -> bool:
    return p.get("nonlinearity") == "relu"


def matrix(p: Params, shape: tuple[int, int]) -> TensorSpec:
    """As networks are initialised. With relu much smaller, see `bias`."""
    bound = 0.1 * max(p["hidden_size"], shape[1]) ** -0.5 if is_relu(p) else p["hidden_size"] ** -0.5
    return TensorSpec(shape, p["dtype"], -bound, bound)


def bias(p: Params, length: int) -> TensorSpec:
    """As networks are initialised; with relu so large that the sign of its argument does not hang on the rest.

    One unit is on, the next one off. Among as many arguments as a layer has, some would otherwise lie so near to
    zero that no difference of the reference could tell the gradient.
    """
    if not is_relu(p):
        return TensorSpec((length,), p["dtype"], *(sign * p["hidden_size"] ** -0.5 for sign in (-1, 1)))

    def make(generator: Any) -> Any:
        return generator.uniform(0.5, 1.0, length) * np.where(np.arange(length) % 2, -1.0, 1.0)

    return TensorSpec((length,), p["dtype"], -1.0, 1.0, make=make)
