"""Wide & Deep: memorised weights of categories, and a perceptron over their embeddings and the numeric columns."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from opmark.models.keras_program import NETWORK


class WideSum(keras.layers.Layer):  # type: ignore[misc]
    """Sums one weight for each category of a row."""

    def __init__(self, buckets: int, columns: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.columns = columns
        self.wide = self.add_weight(shape=(buckets, columns), name="wide", initializer="zeros")
        self.wide_bias = self.add_weight(shape=(1,), name="wide_bias", initializer="zeros")

    def call(self, categorical: Any) -> Any:
        places = categorical * self.columns + ops.arange(self.columns, dtype=categorical.dtype)
        found = ops.take(ops.reshape(self.wide, (-1,)), places, axis=0)
        return ops.sum(found, axis=1, keepdims=True) + self.wide_bias


class ColumnRows(keras.layers.Layer):  # type: ignore[misc]
    """Returns for each category its row in the table of all columns."""

    def __init__(self, buckets: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.buckets = buckets

    def call(self, categorical: Any) -> Any:
        return categorical + ops.arange(categorical.shape[1], dtype=categorical.dtype) * self.buckets


def wide_and_deep(
    *, dtype: str, columns: int, buckets: int, embedding: int, numeric: int, layers: tuple[int, ...]
) -> Any:
    """Return the network that takes categories [batch, columns] and numbers [batch, numeric]."""
    categorical = keras.Input((columns,), dtype="int64", name="categorical")
    numbers = keras.Input((numeric,), dtype=dtype, name="numeric")
    make = keras.layers
    wide = WideSum(buckets, columns, dtype=dtype, name=NETWORK)(categorical)
    rows = ColumnRows(buckets, dtype=dtype)(categorical)
    embedded = make.Embedding(columns * buckets, embedding, dtype=dtype, name="embedding")(rows)
    deep = make.Concatenate(dtype=dtype)([make.Flatten(dtype=dtype)(embedded), numbers])
    for i, width in enumerate(layers):
        deep = make.Dense(width, activation="relu", dtype=dtype, name=f"deep.{2 * i}")(deep)
    logit = wide + make.Dense(1, dtype=dtype, name=f"deep.{2 * len(layers)}")(deep)
    both = make.Concatenate(dtype=dtype)([ops.zeros_like(logit), logit])
    return keras.Model([categorical, numbers], make.Softmax(dtype=dtype)(both))
