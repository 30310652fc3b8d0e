"""Networks that come from the package transformers, made from configurations without any download."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from opmark.models.networks.rotary import compute_angles


class TensorModel(torch.nn.Module):  # type: ignore[misc]
    """A model of transformers that takes tensors by position and returns those outputs that are named."""

    def __init__(
        self, model: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], first_position: int | None = None
    ) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs, self.first_position = model, inputs, outputs, first_position

    def forward(self, *tensors: Any) -> Any:
        named = dict(zip(self.inputs, tensors, strict=True))
        if self.first_position is not None:
            length = tensors[0].shape[1]
            positions = torch.arange(self.first_position, self.first_position + length, device=tensors[0].device)
            named["position_ids"] = positions[None]
        if "attention_mask" in named and self.model.config._attn_implementation == "sdpa":
            # transformers reads a mask of two axes on the host, and drops it if it is all ones.
            named["attention_mask"] = named["attention_mask"][:, None, None, :].bool()
        result = self.model(**named)
        # CLIP returns the same numbers twice, once as a view of the other.
        found = tuple(result[name].clone() if i else result[name] for i, name in enumerate(self.outputs))
        return found if len(found) > 1 else found[0]

    def write_tables(self) -> None:
        """Besides writing tables, tie the weights that are one: to_empty() makes two of them."""
        for name, table in self.named_buffers():
            if name.endswith("position_ids"):
                table.copy_(torch.arange(table.shape[-1]).expand_as(table))
            elif name.endswith("token_type_ids"):
                table.zero_()
        self.model.tie_weights()


class RoFormer(TensorModel):
    def write_tables(self) -> None:
        super().write_tables()
        table = self.model.roformer.encoder.embed_positions.weight
        angles = compute_angles(*table.shape)
        table.copy_(torch.cat((angles.sin(), angles.cos()), 1))


class Swin(TensorModel):
    def write_tables(self) -> None:
        """Write the row of the table of biases for each pair of pixels of a window."""
        super().write_tables()
        size = self.model.config.window_size
        places = torch.arange(size)
        rows, columns = places.repeat_interleave(size), places.repeat(size)
        down, right = (one[:, None] - one[None, :] + size - 1 for one in (rows, columns))
        for name, table in self.named_buffers():
            if name.endswith("relative_position_index"):
                table.copy_((down * (2 * size - 1) + right).view_as(table))


class GPT2(TensorModel):
    def forward(self, input_ids: Any) -> Any:
        """Run the layers one by one: the whole model would look on the host for several texts in one row."""
        body = self.model.transformer
        x = body.wte(input_ids) + body.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        for layer in body.h:  # attention without a mask is causal
            x = layer(x)
        return self.model.lm_head(body.ln_f(x))


class SentenceEncoder(TensorModel):
    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return the mean of the tokens that are no padding, with length 1."""
        tokens = super().forward(input_ids, attention_mask)
        kept = attention_mask[:, :, None].to(tokens.dtype)
        return torch.nn.functional.normalize((tokens * kept).sum(1) / kept.sum(1), dim=1)


def _make(name: str, kind: str = "", **config: Any) -> Any:
    """Return the model `name` + `kind` with the configuration `name` + `Config`, without initial weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's, of what DeBERTa's module does when it is loaded
        import transformers
        from transformers.initialization import no_init_weights

        model_class = getattr(transformers, name + kind)
    attention = "sdpa" if model_class._supports_sdpa else "eager"
    with no_init_weights():
        model = model_class(getattr(transformers, name + "Config")(**config, attn_implementation=attention))
    model.tie_weights()
    return model


def question_answering(*, family: str, first_position: int | None = None, **config: Any) -> Any:
    """Encoders of BERT's kind that say where an answer starts and ends."""
    model = _make(family, "ForQuestionAnswering", **config)
    inputs = ("input_ids", "attention_mask", "token_type_ids")[: 3 if config["type_vocab_size"] else 2]
    return TensorModel(model, inputs, ("start_logits", "end_logits"), first_position)


def sentence_encoder(**config: Any) -> Any:
    model = _make("Bert", "Model", **config)
    return SentenceEncoder(model, ("input_ids", "attention_mask"), ("last_hidden_state",))


def roformer(**config: Any) -> Any:
    model = _make("RoFormer", "ForSequenceClassification", **config)
    return RoFormer(model, ("input_ids", "token_type_ids"), ("logits",))


def gpt2(**config: Any) -> Any:
    return GPT2(_make("GPT2", "LMHeadModel", **config, use_cache=False), ("input_ids",), ("logits",))


def clip(**config: Any) -> Any:
    return TensorModel(
        _make("CLIP", "Model", **config), ("pixel_values", "input_ids"), ("logits_per_image", "logits_per_text")
    )


def clip_text(**config: Any) -> Any:
    model = _make("CLIPText", "Model", **config)
    return TensorModel(model, ("input_ids",), ("last_hidden_state", "pooler_output"))


def swin(**config: Any) -> Any:
    return Swin(_make("Swin", "ForImageClassification", **config), ("pixel_values",), ("logits",))
