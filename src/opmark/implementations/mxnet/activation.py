"""Activations, softmax and similar functions, gated units."""

from __future__ import annotations

from typing import Any

from opmark.implementations.mxnet._rows import nd, np_row, refuse_float64, row
from opmark.schema import Params


def _leaky(act_type: str, *inputs: str, **params: str) -> Any:
    made = nd("LeakyReLU", "x", *inputs, fixed={"act_type": act_type}, **params)
    return made if act_type == "elu" else refuse_float64(made)


def _gelu(mx: Any, p: Params, x: Any) -> Any:
    if p["approximate"] == "none":
        return mx.nd.LeakyReLU(x, act_type="gelu")
    return 0.5 * x * (1 + mx.nd.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _celu(mx: Any, p: Params, x: Any) -> Any:
    negative = p["alpha"] * mx.nd.expm1(mx.nd.clip(x, float("-inf"), 0) / p["alpha"])
    return mx.nd.relu(x) + negative


def _softplus(mx: Any, p: Params, x: Any) -> Any:
    if p["beta"] == 1:
        return mx.nd.Activation(x, act_type="softrelu")
    return mx.nd.Activation(p["beta"] * x, act_type="softrelu") / p["beta"]


def _softshrink(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.sign(x) * mx.nd.relu(mx.nd.abs(x) - p["lambd"])


def _hardshrink(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.where(mx.nd.abs(x) > p["lambd"], x, mx.nd.zeros_like(x))


def _threshold(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.where(x > p["threshold"], x, mx.nd.full(x.shape, p["value"], dtype=x.dtype))


def _hard_sigmoid(mx: Any, x: Any) -> Any:
    """Write out the formula: MXNet's own function takes the slope as a float32 parameter."""
    return mx.nd.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


def _halves(mx: Any, x: Any) -> Any:
    return mx.nd.split(x, num_outputs=2, axis=-1)


def _gated_unit(activate: Any) -> Any:
    def call(mx: Any, p: Params, x: Any) -> Any:
        gate, value = _halves(mx, x)
        return activate(mx, gate) * value

    return row(call)


def _glu(mx: Any, p: Params, x: Any) -> Any:
    value, gate = _halves(mx, x)
    return value * mx.nd.sigmoid(gate)


def _masked_softmax(mx: Any, p: Params, x: Any, mask: Any) -> Any:
    return mx.npx.softmax(mx.np.where(mask, x, mx.np.full_like(x, float("-inf"))), axis=p["axis"])


IMPLEMENTATIONS = {
    "relu": nd("relu", "x"),
    "relu6": nd("clip", "x", fixed={"a_min": 0.0, "a_max": 6.0}),
    "hardtanh": nd("clip", "x", a_min="min_val", a_max="max_val"),
    "leaky_relu": _leaky("leaky", slope="negative_slope"),
    "elu": _leaky("elu", slope="alpha"),
    "selu": _leaky("selu"),
    "prelu": _leaky("prelu", "weight"),
    "gelu": refuse_float64(row(_gelu, "mxnet.nd.LeakyReLU")),
    "celu": row(_celu),
    "silu": row(lambda mx, p, x: x * mx.nd.sigmoid(x)),
    "mish": row(lambda mx, p, x: x * mx.nd.tanh(mx.nd.Activation(x, act_type="softrelu"))),
    "sigmoid": nd("sigmoid", "x"),
    "log_sigmoid": row(lambda mx, p, x: -mx.nd.Activation(-x, act_type="softrelu")),
    "softplus": row(_softplus, "mxnet.nd.Activation"),
    "hard_sigmoid": refuse_float64(row(lambda mx, p, x: _hard_sigmoid(mx, x), "mxnet.nd.hard_sigmoid")),
    "hardswish": refuse_float64(row(lambda mx, p, x: x * _hard_sigmoid(mx, x))),
    "tanhshrink": row(lambda mx, p, x: x - mx.nd.tanh(x)),
    "softshrink": row(_softshrink),
    "hardshrink": row(_hardshrink),
    "threshold": row(_threshold),
    **{name: nd(name, "x", axis="axis") for name in ("softmax", "log_softmax", "softmin")},
    "masked_softmax": np_row(_masked_softmax, "mxnet.npx.softmax"),
    "glu": row(_glu),
    "swiglu": _gated_unit(lambda mx, gate: gate * mx.nd.sigmoid(gate)),
    "geglu": refuse_float64(_gated_unit(lambda mx, gate: mx.nd.LeakyReLU(gate, act_type="gelu"))),
    "reglu": _gated_unit(lambda mx, gate: mx.nd.relu(gate)),
}
