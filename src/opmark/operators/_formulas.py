"""NumPy formulas that operators of several families use."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
    from scipy.special import ndtr

    return x * ndtr(x)


def swiglu(x: Any) -> Any:
    """Return silu of the first half of a row (gate) times the second half (value)."""
    gate, value = halves(x)
    return silu(gate) * value


def halves(x: Any) -> tuple[Any, Any]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def softmax(x: Any, axis: int = -1) -> Any:
    """Compute softmax with a sum in at least float32: NumPy would sum float16 in float16."""
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    total = shifted.sum(axis=axis, keepdims=True, dtype=np.promote_types(x.dtype, np.float32))
    return (shifted / total).astype(x.dtype, copy=False)


def attention(q: Any, k: Any, v: Any, scale: float, seen: Any = None) -> Any:
    """Return softmax(q k' scale) v of [..., head, token, element]; several heads of q may share a head of k and v.

    `seen` [query, key] says which keys a query sees, by default all.
    """
    shared = q.shape[-3] // k.shape[-3]
    if shared > 1:
        k, v = np.repeat(k, shared, axis=-3), np.repeat(v, shared, axis=-3)
    scores = q @ np.swapaxes(k, -1, -2) * q.dtype.type(scale)
    if seen is not None:
        scores = np.where(seen, scores, q.dtype.type(-np.inf))
    return softmax(scores) @ v


def rms(p: Params, x: Any) -> Any:
    """Return x with unit root mean square along the last axis."""
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + x.dtype.type(p["eps"]))


def layer_norm(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(p["eps"])) * weight + bias
