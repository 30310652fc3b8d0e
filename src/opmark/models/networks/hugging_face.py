"""Networks that come from the package transformers, made from configurations without any download."""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch

from opmark.models.networks.rotary import RotaryTable


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
        found = tuple(result[name] for name in self.outputs)
        return found if len(found) > 1 else found[0]

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        """Write the tables of positions again, which to_empty() loses."""
        super()._apply(*arguments, **options)
        with torch.no_grad():
            for name, table in self.named_buffers():
                if name.endswith("position_ids") and not table.is_meta:
                    table.copy_(torch.arange(table.shape[-1], device=table.device).expand_as(table))
                elif name.endswith("token_type_ids") and not table.is_meta:
                    table.zero_()
                elif name.endswith("relative_position_index") and not table.is_meta:
                    table.copy_(_index_window(isqrt(isqrt(table.numel())), table.device).view_as(table))
        return self


def _index_window(size: int, device: Any) -> Any:
    """Return the row of Swin's table of biases for each pair of pixels of a window."""
    places = torch.arange(size, device=device)
    rows, columns = places.repeat_interleave(size), places.repeat(size)
    apart = [one[:, None] - one[None, :] + size - 1 for one in (rows, columns)]
    return apart[0] * (2 * size - 1) + apart[1]


class RoFormerTable(RotaryTable):
    """The sines and then the cosines of each position, as RoFormer's encoder wants them."""

    def forward(self, shape: Any, start: int = 0) -> Any:
        cos, sin = self.take(start, shape[1])
        return torch.cat((sin, cos), -1)


def _make(name: str, kind: str = "", **config: Any) -> Any:
    """Return the model `name` + `kind` with the configuration `name` + `Config`, without initial weights."""
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


def roformer(**config: Any) -> Any:
    model = _make("RoFormer", "ForSequenceClassification", **config)
    width = config["hidden_size"] // config["num_attention_heads"]
    # Its own table is a frozen parameter, which initialise() would fill with random numbers.
    model.roformer.encoder.embed_positions = RoFormerTable(config["max_position_embeddings"], width)
    return TensorModel(model, ("input_ids", "token_type_ids"), ("logits",))


def gpt2(**config: Any) -> Any:
    model = _make("GPT2", "LMHeadModel", **config, use_cache=False)
    # Every attention layer is causal by itself. The model would besides look on the host for several texts in one row.
    model.config.is_causal = False
    return TensorModel(model, ("input_ids",), ("logits",))


def clip(**config: Any) -> Any:
    return TensorModel(
        _make("CLIP", "Model", **config), ("pixel_values", "input_ids"), ("logits_per_image", "logits_per_text")
    )


def clip_text(**config: Any) -> Any:
    model = _make("CLIPText", "Model", **config)
    return TensorModel(model, ("input_ids",), ("last_hidden_state", "pooler_output"))


def swin(**config: Any) -> Any:
    return TensorModel(_make("Swin", "ForImageClassification", **config), ("pixel_values",), ("logits",))
