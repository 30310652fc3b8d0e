"""Single steps of recurrent units with the catalogue's weights. Keras has the gates in another order and transposed
weights, but the same products."""

from __future__ import annotations

from typing import Any

from opmark.implementations.tensorflow._rows import implement
from opmark.schema import Params


def _product(tf: Any, x: Any, weight: Any, bias: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, weight, transpose_b=True), bias)


def _rnn(tf: Any, p: Params, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    return getattr(tf.nn, p["nonlinearity"])(_product(tf, x, w_ih, b_ih) + _product(tf, h, w_hh, b_hh))


def _gru(tf: Any, p: Params, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    of_x, of_h = (tf.split(part, 3, axis=1) for part in (_product(tf, x, w_ih, b_ih), _product(tf, h, w_hh, b_hh)))
    reset, update = (tf.sigmoid(one + other) for one, other in zip(of_x[:2], of_h[:2], strict=True))
    new = tf.tanh(of_x[2] + reset * of_h[2])
    return new + update * (h - new)


def _lstm(tf: Any, p: Params, x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    gates = _product(tf, x, w_ih, b_ih) + _product(tf, h, w_hh, b_hh)
    into, forget, cell, out = tf.split(gates, 4, axis=1)
    c = tf.sigmoid(forget) * c + tf.sigmoid(into) * tf.tanh(cell)
    return tf.sigmoid(out) * tf.tanh(c), c


IMPLEMENTATIONS = {"rnn_cell": implement(_rnn), "gru_cell": implement(_gru), "lstm_cell": implement(_lstm)}
