"""Recurrent networks: ONNX's nodes for whole sequences, and single steps written out."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from opmark.implementations.onnx._graph import GraphBuilder, graph
from opmark.schema import Implementation, Params


class _Kind(NamedTuple):
    node: str
    order: tuple[int, ...]
    """Indices of the operator's gates in ONNX's order."""
    states: tuple[str, ...]


_RNN = _Kind("RNN", (0,), ("h",))
_LSTM = _Kind("LSTM", (0, 3, 1, 2), ("h", "c"))
_GRU = _Kind("GRU", (1, 0, 2), ("h",))


def _sequences(kind: _Kind) -> Implementation:
    """Split one vector of weights and reorder the gates; constant weights are split in advance."""

    def draw(g: GraphBuilder, p: Params, x: str, weights: str, **states: str) -> Any:
        directions, hidden = 2 if p["bidirectional"] else 1, p["hidden_size"]
        layers = iter(_pieces(g, p, kind, weights, directions))
        last: list[tuple[str, ...]] = []
        for layer in range(p["layers"]):
            where = [layer * directions], [(layer + 1) * directions], [0]
            starts = [g.Slice(states[f"{name}0"], *where) for name in kind.states]
            parts = [next(layers) for _ in range(directions)]
            w, r, b = (g.Concat(*(part[i] for part in parts), axis=0) for i in range(3))
            y, *ends = _layer(g, p, kind, (x, w, r, b, "", *starts), directions)
            x = g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [p["seq_len"], p["batch"], directions * hidden])
            last.append(tuple(ends))
        return x, *(g.Concat(*of_layers, axis=0) for of_layers in zip(*last, strict=True))

    return graph(draw, path=f"onnx.{kind.node}")


def _layer(g: GraphBuilder, p: Params, kind: _Kind, inputs: tuple[str, ...], directions: int) -> Any:
    how: dict[str, Any] = {"hidden_size": p["hidden_size"]}
    how["direction"] = "bidirectional" if directions == 2 else "forward"
    if kind is _GRU:
        how["linear_before_reset"] = 1
    if kind is _RNN:
        how["activations"] = [p["nonlinearity"].title()] * directions
    return getattr(g, kind.node)(*inputs, outputs=1 + len(kind.states), **how)


def _pieces(g: GraphBuilder, p: Params, kind: _Kind, weights: str, directions: int) -> Any:
    """Return w, r and both biases of each layer and direction; all matrices come first, then all biases."""
    gates, hidden, total = len(kind.order), p["hidden_size"], p["layers"] * directions
    widths = [p["input_size"]] * directions + [directions * hidden] * (total - directions)
    matrices = [(gates * hidden, n) for width in widths for n in (width, hidden)]
    start, cut = 0, []
    for shape in [*matrices, *[(gates * hidden, 1)] * 2 * total]:
        flat = g.Slice(weights, [start], [start + prod(shape)], [0])
        start += prod(shape)
        cut.append(_reorder_gates(g, kind, flat, shape))
    half = len(matrices)
    for i in range(0, half, 2):
        both = g.Concat(*(g.Squeeze(part, [2]) for part in cut[half + i : half + i + 2]), axis=1)
        yield cut[i], cut[i + 1], both


def _reorder_gates(g: GraphBuilder, kind: _Kind, flat: str, shape: tuple[int, int]) -> Any:
    """Return [1, gates x hidden, width] with the gates in ONNX's order."""
    if kind.order == tuple(range(len(kind.order))):
        return g.Reshape(flat, [1, *shape])
    apart = g.Reshape(flat, [len(kind.order), -1])
    return g.Reshape(g.Gather(apart, list(kind.order), axis=0), [1, *shape])


def _parts(g: GraphBuilder, x: str, h: str, w_ih: str, w_hh: str, b_ih: str, b_hh: str) -> tuple[Any, Any]:
    return g.Gemm(x, w_ih, b_ih, transB=1), g.Gemm(h, w_hh, b_hh, transB=1)


def _rnn_cell(g: GraphBuilder, p: Params, x: str, h: str, **weights: str) -> Any:
    total = g.Add(*_parts(g, x, h, **weights))
    return g.Tanh(total) if p["nonlinearity"] == "tanh" else g.Relu(total)


def _lstm_cell(g: GraphBuilder, p: Params, x: str, h: str, c: str, **weights: str) -> Any:
    total = g.Add(*_parts(g, x, h, **weights))
    i, f, n, o = g.Split(total, outputs=4, axis=-1, num_outputs=4)
    new = g.Add(g.Mul(g.Sigmoid(f), c), g.Mul(g.Sigmoid(i), g.Tanh(n)))
    return g.Mul(g.Sigmoid(o), g.Tanh(new)), new


def _gru_cell(g: GraphBuilder, p: Params, x: str, h: str, **weights: str) -> Any:
    of_x, of_h = (g.Split(part, outputs=3, axis=-1, num_outputs=3) for part in _parts(g, x, h, **weights))
    r, z = (g.Sigmoid(g.Add(of_x[i], of_h[i])) for i in (0, 1))
    n = g.Tanh(g.Add(of_x[2], g.Mul(r, of_h[2])))
    return g.Add(n, g.Mul(z, g.Sub(h, n)))


IMPLEMENTATIONS = {
    "rnn": _sequences(_RNN),
    "lstm": _sequences(_LSTM),
    "gru": _sequences(_GRU),
    "rnn_cell": graph(_rnn_cell),
    "lstm_cell": graph(_lstm_cell),
    "gru_cell": graph(_gru_cell),
}
