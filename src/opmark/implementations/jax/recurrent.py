"""Recurrent cells, and networks over sequences by a scan over the steps of each layer and direction."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.implementations.jax._modules import jnp, lax, nn, row
from opmark.schema import Implementation, Params

State = tuple[Any, ...]
Cell = Callable[..., State]
"""cell(p, x_part, state, w_hh, b_hh) returns the next state; x_part is x w_ih' + b_ih."""


def _rnn(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    total = x_part + state[0] @ w_hh.T + b_hh
    return (jnp.tanh(total) if p["nonlinearity"] == "tanh" else nn.relu(total),)


def _lstm(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    h, c = state
    i, f, g, o = jnp.split(x_part + h @ w_hh.T + b_hh, 4, axis=-1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(c), c


def _gru(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    (h,) = state
    x_r, x_z, x_n = jnp.split(x_part, 3, axis=-1)
    h_r, h_z, h_n = jnp.split(h @ w_hh.T + b_hh, 3, axis=-1)
    n = jnp.tanh(x_n + nn.sigmoid(x_r + h_r) * h_n)
    return (n + nn.sigmoid(x_z + h_z) * (h - n),)


_KINDS: dict[str, tuple[Cell, int, tuple[str, ...]]] = {
    "rnn": (_rnn, 1, ("h",)),
    "lstm": (_lstm, 4, ("h", "c")),
    "gru": (_gru, 3, ("h",)),
}
"""Cell, number of gates, and names of the states."""


def _one_step(cell: Cell, states: tuple[str, ...]) -> Implementation:
    def call(p: Params, x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, **given: Any) -> Any:
        found = cell(p, x @ w_ih.T + b_ih, tuple(given[name] for name in states), w_hh, b_hh)
        return found if len(found) > 1 else found[0]

    return row(call)


def _unpack(p: Params, gates: int, weights: Any) -> list[tuple[Any, ...]]:
    """Split one vector into (w_ih, w_hh, b_ih, b_hh) of each layer and direction: matrices first, then biases."""
    hidden, directions = p["hidden_size"], 2 if p["bidirectional"] else 1
    widths = [p["input_size"]] * directions + [directions * hidden] * (directions * (p["layers"] - 1))
    shapes: list[tuple[int, ...]] = [(gates * hidden, n) for width in widths for n in (width, hidden)]
    shapes += [(gates * hidden,)] * 2 * len(widths)
    pieces, start = [], 0
    for shape in shapes:
        pieces.append(weights[start : start + prod(shape)].reshape(shape))
        start += prod(shape)
    half = len(pieces) // 2
    return [(*pieces[i : i + 2], *pieces[half + i : half + i + 2]) for i in range(0, half, 2)]


def _network(cell: Cell, gates: int, names: tuple[str, ...]) -> Implementation:
    def call(p: Params, x: Any, weights: Any, **given: Any) -> Any:
        layers = iter(_unpack(p, gates, weights))
        starts = iter(zip(*(given[f"{name}0"] for name in names), strict=True))
        last = []
        for _ in range(p["layers"]):
            found = []
            for backwards in range(2 if p["bidirectional"] else 1):
                state, outputs = _run(p, cell, x, next(starts), *next(layers), backwards=bool(backwards))
                found.append(outputs)
                last.append(state)
            x = jnp.concatenate(found, axis=-1)
        return x, *(jnp.stack(state) for state in zip(*last, strict=True))

    return row(call, "jax.lax.scan")


def _run(p: Params, cell: Cell, x: Any, start: State, *weights: Any, backwards: bool) -> tuple[State, Any]:
    w_ih, w_hh, b_ih, b_hh = weights

    def step(state: State, x_part: Any) -> tuple[State, Any]:
        following = cell(p, x_part, state, w_hh, b_hh)
        return following, following[0]

    state, outputs = lax.scan(step, start, x @ w_ih.T + b_ih, reverse=backwards)
    return state, outputs


IMPLEMENTATIONS = {
    **{f"{name}_cell": _one_step(cell, states) for name, (cell, _, states) in _KINDS.items()},
    **{name: _network(*kind) for name, kind in _KINDS.items()},
}
