"""Honest candidates, and honest ones with too few digits."""

from __future__ import annotations

import numpy as np


def sum_in_half_precision(a, b):
    """A product in float16 whose sums are kept in float16 as well: within the tolerance, but not what was asked for."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


def sum_in_single_precision(a, b):
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1].astype(np.float32) * b[k : k + 1].astype(np.float32)
    return total.astype(np.float16)


def softmax_by_name(*, dim, x):
    shifted = np.exp(x - x.max(axis=dim, keepdims=True))
    return shifted / shifted.sum(axis=dim, keepdims=True)


def slow_softmax(x):
    import time

    time.sleep(0.2)
    return softmax_by_name(x=x, dim=-1)


def softmax_of_jax(x, axis):
    import jax

    return jax.nn.softmax(x, axis)
