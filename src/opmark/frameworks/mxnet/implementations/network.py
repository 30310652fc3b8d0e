"""Parts of networks: recurrent layers, attention, sequences, dropout, fused chains, normalisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import nd, refuse_float64, row
from opmark.plugin import Params


def _recurrent(mode: str) -> Any:
    def call(mx: Any, p: Params, x: Any, weights: Any, h0: Any, c0: Any = None) -> Any:
        kind = f"rnn_{p['nonlinearity']}" if mode == "rnn" else mode
        states = (h0,) if c0 is None else (h0, c0)
        return mx.nd.RNN(
            x, weights, *states, state_size=p["hidden_size"], num_layers=p["layers"], mode=kind,
            bidirectional=p["bidirectional"], state_outputs=True,
        )  # fmt: skip

    return row(call, "mxnet.nd.RNN")


def _products(mx: Any, p: Params, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """Compute both products of a cell as Gluon does."""
    n = w_ih.shape[0]
    return mx.nd.FullyConnected(x, w_ih, b_ih, num_hidden=n), mx.nd.FullyConnected(h, w_hh, b_hh, num_hidden=n)


def _rnn_cell(mx: Any, p: Params, **tensors: Any) -> Any:
    new, old = _products(mx, p, **tensors)
    return mx.nd.Activation(new + old, act_type=p["nonlinearity"])


def _lstm_cell(mx: Any, p: Params, c: Any, **tensors: Any) -> Any:
    new, old = _products(mx, p, **tensors)
    first, forget, cell, last = mx.nd.split(new + old, num_outputs=4, axis=1)
    c = mx.nd.sigmoid(forget) * c + mx.nd.sigmoid(first) * mx.nd.tanh(cell)
    return mx.nd.sigmoid(last) * mx.nd.tanh(c), c


def _gru_cell(mx: Any, p: Params, h: Any, **tensors: Any) -> Any:
    new, old = _products(mx, p, h=h, **tensors)
    (reset, update, now), (old_reset, old_update, before) = (mx.nd.split(v, num_outputs=3, axis=1) for v in (new, old))
    share = mx.nd.sigmoid(update + old_update)
    return (1 - share) * mx.nd.tanh(now + mx.nd.sigmoid(reset + old_reset) * before) + share * h


def _attend(mx: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute attention with the heads of all batches as one batch of products."""
    flat = [mx.nd.reshape(tensor, shape=(-3, 0, 0)) for tensor in (q, k, v)]
    scores = mx.nd.batch_dot(flat[0], flat[1], transpose_b=True) / q.shape[-1] ** 0.5
    return mx.nd.batch_dot(mx.nd.softmax(scores), flat[2]).reshape(q.shape)


def _attention(mx: Any, p: Params, q: Any, k: Any, v: Any) -> Any:
    if p["causal"] or p["kv_heads"] not in (0, p["heads"]):
        raise Unsupported("MXNet has only plain attention: neither causal nor with shared keys")
    return _attend(mx, q, k, v)


def _sequence(name: str) -> Any:
    def call(mx: Any, p: Params, x: Any, lengths: Any) -> Any:
        more = {"value": p["value"]} if "value" in p else {}
        return getattr(mx.nd, name)(x, lengths, use_sequence_length=True, **more)

    return row(call, f"mxnet.nd.{name}")


def _dropout(mx: Any, p: Params, x: Any, **how: Any) -> Any:
    return mx.nd.Dropout(x, p=p["p"], mode="always", **how)


def _dropout2d(mx: Any, p: Params, x: Any) -> Any:
    return _dropout(mx, p, x, axes=tuple(range(2, len(p["shape"]))))


def _linear(mx: Any, p: Params, x: Any, weight: Any, bias: Any = None) -> Any:
    return mx.nd.FullyConnected(x, weight, bias, num_hidden=p["N"], no_bias=bias is None)


def _linear_gelu(mx: Any, p: Params, x: Any, weight: Any, bias: Any) -> Any:
    if p["approximate"] != "none":
        raise Unsupported("MXNet has only the exact gelu")
    return mx.nd.LeakyReLU(_linear(mx, p, x, weight, bias), act_type="gelu")


def _bias_dropout_add(mx: Any, p: Params, x: Any, bias: Any, residual: Any) -> Any:
    return residual + _dropout(mx, p, mx.nd.broadcast_add(x, bias))


# Normalization of batches, groups and rows.


def batch_norm(mx: Any, p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> Any:
    """MXNet's momentum is the weight of the old statistics, the catalogue's that of the new ones."""
    how = {"eps": p["eps"], "momentum": 1 - p["momentum"], "fix_gamma": False, "use_global_stats": not p["training"]}
    normal = mx.nd.BatchNorm(x, weight, bias, running_mean, running_var, **how)
    if not p["training"]:
        return normal
    if not mx.autograd.is_recording():
        raise Unsupported("MXNet updates the running statistics in the backward pass: training has no forward phase")
    return normal, running_mean, running_var


def _group_norm(mx: Any, p: Params, x: Any, weight: Any, bias: Any) -> Any:
    """Scale by channel afterwards, as MXNet scales by group."""
    ones, zeros = mx.nd.ones((p["groups"],), dtype=x.dtype), mx.nd.zeros((p["groups"],), dtype=x.dtype)
    normal, spread = mx.nd.GroupNorm(x, ones, zeros, num_groups=p["groups"], eps=p["eps"]), (-1,) + (1,) * (x.ndim - 2)
    return mx.nd.broadcast_add(mx.nd.broadcast_mul(normal, weight.reshape(spread)), bias.reshape(spread))


def _rms(mx: Any, p: Params, x: Any, weight: Any) -> Any:
    scale = mx.nd.rsqrt(mx.nd.mean(mx.nd.square(x), axis=-1, keepdims=True) + p["eps"])
    return mx.nd.broadcast_mul(mx.nd.broadcast_mul(x, scale), weight)


def _add_rms_norm(mx: Any, p: Params, x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return _rms(mx, p, total, weight), total


def _head_rms_norm(mx: Any, p: Params, x: Any, weight: Any) -> Any:
    """Normalise `norm_heads` heads; 0 means all from the first one on."""
    heads = p["norm_heads"] or p["heads"] - p["norm_start"]
    return _rms(mx, p, mx.nd.slice_axis(x, axis=1, begin=p["norm_start"], end=p["norm_start"] + heads), weight)


def _weight_norm(mx: Any, p: Params, v: Any, g: Any) -> Any:
    length = mx.nd.sqrt(mx.nd.sum(mx.nd.square(v), axis=tuple(range(1, len(p["shape"]))), keepdims=True))
    return mx.nd.broadcast_mul(v, g / length)


_LAYER_NORM = nd("LayerNorm", "x", "weight", "bias", eps="eps")


def _layer_norm(p: Params, **tensors: Any) -> Any:
    if "bias" not in tensors:
        raise Unsupported("MXNet's LayerNorm always adds a bias")
    return _LAYER_NORM.build(p, **tensors)


def _add_layer_norm(mx: Any, p: Params, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return mx.nd.LayerNorm(x + residual, weight, bias, eps=p["eps"])


IMPLEMENTATIONS = {
    **{mode: _recurrent(mode) for mode in ("rnn", "lstm", "gru")},
    "rnn_cell": row(_rnn_cell),
    "lstm_cell": row(_lstm_cell),
    "gru_cell": row(_gru_cell),
    "scaled_dot_product_attention": row(_attention),
    "matmul_softmax_matmul": row(lambda mx, p, q, k, v: _attend(mx, q, k, v)),
    "sequence_mask": _sequence("SequenceMask"),
    "sequence_last": _sequence("SequenceLast"),
    "sequence_reverse": _sequence("SequenceReverse"),
    "dropout": row(_dropout, "mxnet.nd.Dropout"),
    "dropout2d": row(_dropout2d, "mxnet.nd.Dropout"),
    "softmax_dropout": refuse_float64(row(lambda mx, p, x: _dropout(mx, p, mx.nd.softmax(x)))),
    "bias_dropout_add": refuse_float64(row(_bias_dropout_add)),
    "linear_relu": row(lambda mx, p, **tensors: mx.nd.relu(_linear(mx, p, **tensors))),
    "linear_gelu": refuse_float64(row(_linear_gelu)),
    "linear_add": row(lambda mx, p, x, weight, other: other + _linear(mx, p, x, weight)),
    "batch_norm": row(batch_norm, "mxnet.nd.BatchNorm"),
    "group_norm": row(_group_norm, "mxnet.nd.GroupNorm"),
    "instance_norm": nd("InstanceNorm", "x", "weight", "bias", eps="eps"),
    "layer_norm": replace(_LAYER_NORM, build=_layer_norm),
    "l2_normalize": nd("L2Normalization", "x", mode="mode", eps="eps"),
    "lrn": nd("LRN", "x", nsize="size", alpha="alpha", beta="beta", knorm="k"),
    "rms_norm": row(_rms),
    "add_rms_norm": row(_add_rms_norm),
    "head_rms_norm": row(_head_rms_norm),
    "weight_norm": row(_weight_norm),
    "add_layer_norm": row(_add_layer_norm),
}
