"""BERT and RoFormer."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
from keras import layers

from opmark.models.keras_networks.layers import Attention, FirstRows


class EncoderParts:
    """Makes the layers of an encoder of BERT's kind. `root` is the name of the encoder in the torch network."""

    def __init__(self, root: str, dtype: str, config: dict[str, Any]) -> None:
        self.root, self.dtype, self.config = root, dtype, config
        self.width: int = config["hidden_size"]
        self.linear = partial(layers.Dense, dtype=dtype)
        self.activation = partial(keras.activations.gelu, approximate=False)

    def norm(self, name: str) -> Any:
        return layers.LayerNormalization(epsilon=self.config["layer_norm_eps"], dtype=self.dtype, name=name)

    def embed(self, ids: Any, types: Any, positions: bool) -> Any:
        """Return the normalised sum of the embeddings of tokens, their types and, where wanted, their positions."""
        name, config = f"{self.root}.embeddings", self.config
        table = partial(layers.Embedding, output_dim=self.width, dtype=self.dtype)
        found = table(config["vocab_size"], name=f"{name}.word_embeddings")(ids)
        found += table(config["type_vocab_size"], name=f"{name}.token_type_embeddings")(types)
        if positions:
            found += FirstRows(
                config["max_position_embeddings"], self.width, dtype=self.dtype, name=f"{name}.position_embeddings"
            )(ids)
        return self.norm(f"{name}.LayerNorm")(found)

    def encode(self, tokens: Any, **attending: Any) -> Any:
        """Return the tokens after all layers."""
        config = self.config
        for number in range(config["num_hidden_layers"]):
            name = f"{self.root}.encoder.layer.{number}"
            projected = [
                self.linear(self.width, name=f"{name}.attention.self.{one}")(tokens)
                for one in ("query", "key", "value")
            ]
            heads = Attention(config["num_attention_heads"], dtype=self.dtype, name=f"{name}.attention.self")
            read = self.linear(self.width, name=f"{name}.attention.output.dense")(heads(*projected, **attending))
            tokens = self.norm(f"{name}.attention.output.LayerNorm")(read + tokens)
            inner = self.linear(
                config["intermediate_size"], activation=self.activation, name=f"{name}.intermediate.dense"
            )(tokens)
            outer = self.linear(self.width, name=f"{name}.output.dense")(inner)
            tokens = self.norm(f"{name}.output.LayerNorm")(outer + tokens)
        return tokens


def _token_input(name: str) -> Any:
    return keras.Input((None,), dtype="int64", name=name)


def question_answering(*, dtype: str, family: str, **config: Any) -> Any:
    """Return BERT, which says where an answer starts and ends."""
    parts = EncoderParts(f"model.{family.lower()}", dtype, config)
    ids, mask, types = map(_token_input, ("input_ids", "attention_mask", "token_type_ids"))
    tokens = parts.encode(parts.embed(ids, types, positions=True), mask=mask)
    logits = parts.linear(2, name="model.qa_outputs")(tokens)
    return keras.Model([ids, mask, types], [logits[..., 0], logits[..., 1]])


def roformer(*, dtype: str, **config: Any) -> Any:
    """Return RoFormer, which scores a pair of texts by its first token."""
    parts = EncoderParts("model.roformer", dtype, config)
    ids, types = map(_token_input, ("input_ids", "token_type_ids"))
    angles = FirstRows(
        config["max_position_embeddings"],
        parts.width // config["num_attention_heads"],
        dtype=dtype,
        name="model.roformer.encoder.embed_positions",
    )(ids)
    tokens = parts.encode(parts.embed(ids, types, positions=False), angles=angles)
    pooled = parts.linear(parts.width, activation=parts.activation, name="model.classifier.dense")(tokens[:, 0])
    return keras.Model([ids, types], parts.linear(config["num_labels"], name="model.classifier.out_proj")(pooled))
