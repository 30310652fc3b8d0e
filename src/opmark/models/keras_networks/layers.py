"""Layers that Keras does not have."""

from __future__ import annotations

from typing import Any

from keras import layers, ops


class FirstRows(layers.Layer):  # type: ignore[misc]
    """Returns the rows of a table of positions that a text needs."""

    def __init__(self, rows: int, width: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.embeddings = self.add_weight(shape=(rows, width), name="embeddings", initializer="zeros")

    def call(self, ids: Any) -> Any:
        return self.embeddings[: ids.shape[1]]


class Attention(layers.Layer):  # type: ignore[misc]
    """Attention of several heads over projected queries, keys and values [batch, tokens, width]."""

    def __init__(self, heads: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.heads = heads

    def call(self, query: Any, key: Any, value: Any, mask: Any = None, angles: Any = None) -> Any:
        """`mask` is [batch, tokens] with 1 for what is read; `angles` has the sines and cosines of rotary positions."""
        query, key, value = (self._split(one) for one in (query, key, value))
        if angles is not None:
            query, key = _rotate(query, angles), _rotate(key, angles)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * (query.shape[-1] ** -0.5)
        if mask is not None:
            hidden = _LEAST[self.compute_dtype]
            scores = ops.where(ops.equal(mask, 0)[:, None, None, :], ops.cast(hidden, scores.dtype), scores)
        context = ops.transpose(ops.matmul(ops.softmax(scores), value), (0, 2, 1, 3))
        return ops.reshape(context, (*ops.shape(context)[:2], self.heads * value.shape[-1]))

    def _split(self, tokens: Any) -> Any:
        """Return [batch, heads, tokens, width of a head]."""
        batch, length, width = ops.shape(tokens)
        return ops.transpose(ops.reshape(tokens, (batch, length, self.heads, width // self.heads)), (0, 2, 1, 3))


_LEAST = {"float16": -65504.0, "bfloat16": -3.38e38, "float32": -3.4e38, "float64": -1.79e308}
"""Score of a token that is not read: Inf would make NaN of a text that has no other."""


def _rotate(tokens: Any, angles: Any) -> Any:
    """Turn each pair of neighbouring features by the angle of its position."""
    sine, cosine = (ops.repeat(one, 2, axis=-1) for one in ops.split(angles, 2, axis=-1))
    turned = ops.stack([-tokens[..., 1::2], tokens[..., ::2]], axis=-1)
    return tokens * cosine + ops.reshape(turned, ops.shape(tokens)) * sine
