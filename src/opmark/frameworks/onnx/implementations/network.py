"""Parts of networks: normalisation, and recurrent layers by ONNX's nodes or step by step."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from opmark.errors import Unsupported
from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph
from opmark.plugin import Implementation, Params


class _RecurrentKind(NamedTuple):
    node: str
    order: tuple[int, ...]
    """Indices of the operator's gates in ONNX's order."""
    states: tuple[str, ...]


_RNN = _RecurrentKind("RNN", (0,), ("h",))
_LSTM = _RecurrentKind("LSTM", (0, 3, 1, 2), ("h", "c"))
_GRU = _RecurrentKind("GRU", (1, 0, 2), ("h",))


def _sequences(kind: _RecurrentKind) -> Implementation:
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


def _layer(g: GraphBuilder, p: Params, kind: _RecurrentKind, inputs: tuple[str, ...], directions: int) -> Any:
    how: dict[str, Any] = {"hidden_size": p["hidden_size"]}
    how["direction"] = "bidirectional" if directions == 2 else "forward"
    if kind is _GRU:
        how["linear_before_reset"] = 1
    if kind is _RNN:
        how["activations"] = [p["nonlinearity"].title()] * directions
    return getattr(g, kind.node)(*inputs, outputs=1 + len(kind.states), **how)


def _pieces(g: GraphBuilder, p: Params, kind: _RecurrentKind, weights: str, directions: int) -> Any:
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


def _reorder_gates(g: GraphBuilder, kind: _RecurrentKind, flat: str, shape: tuple[int, int]) -> Any:
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


# Normalisation to zero mean and unit variance, or to unit length.


def rms(g: GraphBuilder, x: str, eps: float) -> Any:
    """Write rms_norm as exporters of language models do, which engines can fuse."""
    mean_square = g.ReduceMean(g.Pow(x, 2.0), [-1], keepdims=1)
    return g.Div(x, g.Sqrt(g.Add(mean_square, eps)))


def layer_norm(g: GraphBuilder, p: Params, x: str, weight: str, bias: str = "") -> Any:
    return g.LayerNormalization(x, weight, *([bias] if bias else []), axis=-1, epsilon=p["eps"])


def batch_norm(
    g: GraphBuilder, p: Params, x: str, weight: str, bias: str, running_mean: str, running_var: str
) -> Any:  # fmt: skip
    if not p["training"]:
        return g.BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=p["eps"])
    return _batch_norm_training(g, p, x, weight, bias, running_mean, running_var)


def _batch_norm_training(
    g: GraphBuilder, p: Params, x: str, weight: str, bias: str, running_mean: str, running_var: str
) -> Any:  # fmt: skip
    """Write it out: ONNX's node updates the running variance by the population variance, others by the sample one."""
    rank, momentum = len(p["shape"]), p["momentum"]
    axes, column = [0, *range(2, rank)], [1, -1, *[1] * (rank - 2)]
    n = prod(p["shape"]) // p["shape"][1]
    mean = g.ReduceMean(x, axes, keepdims=1)
    centred = g.Sub(x, mean)
    var = g.ReduceMean(g.Mul(centred, centred), axes, keepdims=1)
    normal = g.Div(centred, g.Sqrt(g.Add(var, p["eps"])))
    y = g.Add(g.Mul(normal, g.Reshape(weight, column)), g.Reshape(bias, column))
    new_mean = g.Add(g.Mul(running_mean, 1 - momentum), g.Mul(g.Squeeze(mean, axes), momentum))
    new_var = g.Add(g.Mul(running_var, 1 - momentum), g.Mul(g.Squeeze(var, axes), momentum * n / (n - 1)))
    return y, new_mean, new_var


def _group_norm(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
    """Normalise as exporters write it, with each group as a channel."""
    groups, column = p["groups"], [1, -1, *[1] * (len(p["shape"]) - 2)]
    one, zero = (g.constant([value] * groups, p["dtype"]) for value in (1.0, 0.0))
    rows = g.InstanceNormalization(g.Reshape(x, [0, groups, -1]), one, zero, epsilon=p["eps"])
    return g.Add(g.Mul(g.Reshape(rows, p["shape"]), g.Reshape(weight, column)), g.Reshape(bias, column))


def _instance_norm(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
    return g.InstanceNormalization(x, weight, bias, epsilon=p["eps"])


def _l2_normalize(g: GraphBuilder, p: Params, x: str) -> Any:
    rank = len(p["shape"])
    axes = {"channel": [1], "instance": list(range(1, rank)), "spatial": list(range(2, rank))}[p["mode"]]
    length = g.ReduceL2(x, axes, keepdims=1)
    return g.Div(x, g.Max(length, p["eps"]))


def _lrn(g: GraphBuilder, p: Params, x: str) -> Any:
    """Refuse an even size: ONNX then takes one more channel after, others one more before."""
    if p["size"] % 2 == 0:
        raise Unsupported(f"ONNX's LRN agrees only for an odd number of channels (got size={p['size']})")
    return g.LRN(x, size=p["size"], alpha=p["alpha"], beta=p["beta"], bias=p["k"])


def _weight_norm(g: GraphBuilder, p: Params, v: str, g_: str) -> Any:
    length = g.ReduceL2(v, list(range(1, len(p["shape"]))), keepdims=1)
    return g.Mul(v, g.Div(g_, length))


def _add_rms_norm(g: GraphBuilder, p: Params, x: str, residual: str, weight: str) -> Any:
    added = g.Add(x, residual)
    return g.Mul(rms(g, added, p["eps"]), weight), added


def _head_rms_norm(g: GraphBuilder, p: Params, x: str, weight: str) -> Any:
    start = p["norm_start"]
    end = start + (p["norm_heads"] or p["heads"] - start)
    return g.Mul(rms(g, g.Slice(x, [start], [end], [1]), p["eps"]), weight)


def _add_layer_norm(g: GraphBuilder, p: Params, x: str, residual: str, weight: str, bias: str) -> Any:
    return layer_norm(g, p, g.Add(x, residual), weight, bias)


IMPLEMENTATIONS = {
    "rnn": _sequences(_RNN),
    "lstm": _sequences(_LSTM),
    "gru": _sequences(_GRU),
    "rnn_cell": graph(_rnn_cell),
    "lstm_cell": graph(_lstm_cell),
    "gru_cell": graph(_gru_cell),
    "batch_norm": graph(batch_norm),
    "group_norm": graph(_group_norm),
    "instance_norm": graph(_instance_norm, path="onnx.InstanceNormalization"),
    "layer_norm": graph(layer_norm, path="onnx.LayerNormalization"),
    "rms_norm": graph(lambda g, p, x, weight: g.Mul(rms(g, x, p["eps"]), weight)),
    "l2_normalize": graph(_l2_normalize),
    "lrn": graph(_lrn, path="onnx.LRN"),
    "weight_norm": graph(lambda _g, p, **names: _weight_norm(_g, p, names["v"], names["g"])),
    "add_rms_norm": graph(_add_rms_norm),
    "head_rms_norm": graph(_head_rms_norm),
    "add_layer_norm": graph(_add_layer_norm),
}
