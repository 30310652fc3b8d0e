"""Models of text, and of text together with pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec
from opmark.schema.tensor import sizeof

_PROMPTS = 100
"""CLIP compares every picture with one text per class of CIFAR-100."""


def _tokens(*names: str) -> Callable[[Params, Config], dict[str, TensorSpec]]:
    """Inputs of `batch` rows of `seq` tokens."""

    def inputs(params: Params, config: Config) -> dict[str, TensorSpec]:
        bounds = {
            "input_ids": (0, config["vocab_size"]),
            "attention_mask": (1, 2),
            "token_type_ids": (0, config.get("type_vocab_size", 1)),
        }
        return {name: TensorSpec((params["batch"], params["seq"]), "int64", *bounds[name]) for name in names}

    return inputs


def _make_prompts(shape: tuple[int, int], vocabulary: int, generator: Any) -> Any:
    """Draw texts as CLIP's tokenizer writes them: a start token, words, and end tokens up to the full length.

    CLIP reads its answer at the first end token.
    """
    rows, length = shape
    ids = generator.integers(0, vocabulary - 2, shape)
    ids[:, 0] = vocabulary - 2
    for row, end in enumerate(generator.integers(length // 2, length, rows)):
        ids[row, end:] = vocabulary - 1
    return ids


def _prompts(shape: tuple[int, int], vocabulary: int) -> TensorSpec:
    return TensorSpec(shape, "int64", 0, vocabulary, make=partial(_make_prompts, shape, vocabulary))


def _clip_inputs(params: Params, config: Config) -> dict[str, TensorSpec]:
    text, side = config["text_config"], config["vision_config"]["image_size"]
    return {
        "image": TensorSpec((params["batch"], 3, side, side), params["dtype"]),
        "text": _prompts((_PROMPTS, text["max_position_embeddings"]), text["vocab_size"]),
    }


def _clip_text_inputs(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"input_ids": _prompts((params["batch"], params["seq"]), config["vocab_size"])}


def _decoder_inputs(params: Params, config: Config) -> dict[str, TensorSpec]:
    length = 1 if params["stage"] == "decode" else params["seq"]
    return {"input_ids": TensorSpec((params["batch"], length), "int64", 0, config["vocab"])}


def cache_bytes(config: Config, params: Params) -> int:
    """Bytes of keys and values that a decode step keeps: those of `seq` tokens and of the new one."""
    width = config["hidden"] // config["heads"]
    per_token = 2 * config["layers"] * config["kv_heads"] * width * sizeof(params["dtype"])
    return int(params["batch"] * (params["seq"] + 1) * per_token)


_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
_BERT = {"family": "Bert", "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
_ALBERT = {
    "family": "Albert", "type_vocab_size": 2, "max_position_embeddings": 512, "num_hidden_groups": 1,
    "inner_group_num": 1, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12,
}  # fmt: skip
_ROBERTA = {
    "family": "Roberta", "type_vocab_size": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
    "first_position": 2,  # RoBERTa counts from the place after the padding token
}  # fmt: skip
_DEBERTA = {
    "family": "Deberta", "type_vocab_size": 0, "max_position_embeddings": 512, "relative_attention": True,
    "max_relative_positions": -1, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"], "hidden_act": "gelu",
    "layer_norm_eps": 1e-7,
}  # fmt: skip
_ROFORMER = {
    "type_vocab_size": 2, "num_labels": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "pad_token_id": None,  # with a padding token, transformers looks for it on the host at every call
}  # fmt: skip
_CLIP_TEXT = {"vocab_size": 49408, "max_position_embeddings": 77, "bos_token_id": 49406, "eos_token_id": 49407}
_TINY_CLIP_TEXT = {
    **_TINY, "vocab_size": 1000, "max_position_embeddings": 16, "bos_token_id": 998, "eos_token_id": 999,
}  # fmt: skip
_LLAMA = {"rotary_share": 1.0, "interleaved": False, "qkv_bias": False}
_GLM = {"rotary_share": 0.5, "interleaved": True, "qkv_bias": True}
_TINY_DECODER = {"vocab": 1000, "hidden": 128, "layers": 2, "heads": 4, "ffn": 352, "positions": 128}

_reading = partial(
    ZooModel,
    domain="nlp",
    purpose="popular",
    build="hugging_face:question_answering",
    inputs=_tokens("input_ids", "attention_mask", "token_type_ids"),
    outputs=("start_logits", "end_logits"),
    sizes={"full": {"seq": 384}, "small": {"seq": 32}},
    dataset="squad-1.1",
    needs="transformers",
)
_generating = partial(
    ZooModel,
    domain="nlp",
    purpose="sota",
    build="decoder:Decoder",
    inputs=_decoder_inputs,
    outputs=("logits",),
    sizes={"full": {"seq": 1024}, "small": {"seq": 32}},
    stages=("prefill", "decode"),
    cache_bytes=cache_bytes,
    precision="fp16",
)

MODELS: tuple[ZooModel, ...] = (
    _reading(
        name="bert-base",
        purpose="regular",
        summary="BERT base, uncased, which finds the answer to a question in a text",
        parameters=108_893_186,
        full={**_BASE, **_BERT, "vocab_size": 30522, "max_position_embeddings": 512},
        small={**_TINY, **_BERT, "vocab_size": 1000, "max_position_embeddings": 64},
        keras="encoder:question_answering",
        frameworks=("tensorflow", "pytorch"),
        aliases=("bert",),
    ),
    _reading(
        name="albert",
        summary="ALBERT base, whose 12 layers share their weights, for questions about a text",
        parameters=11_094_530,
        full={**_BASE, **_ALBERT, "vocab_size": 30000, "embedding_size": 128},
        small={**_TINY, **_ALBERT, "vocab_size": 1000, "embedding_size": 64},
    ),
    _reading(
        name="roberta",
        summary="RoBERTa base for questions about a text",
        parameters=124_056_578,
        full={**_BASE, **_ROBERTA, "vocab_size": 50265, "max_position_embeddings": 514},
        small={**_TINY, **_ROBERTA, "vocab_size": 1000, "max_position_embeddings": 66},
        note="token_type_ids are all 0, the only type that RoBERTa knows.",
    ),
    _reading(
        name="deberta",
        summary="DeBERTa base (v1), with attention to relative positions, for questions about a text",
        inputs=_tokens("input_ids", "attention_mask"),
        parameters=138_603_266,
        full={**_BASE, **_DEBERTA, "vocab_size": 50265},
        small={**_TINY, **_DEBERTA, "vocab_size": 1000},
        note="ByteMLPerf's input token_type_ids is left out: DeBERTa does not read it.",
    ),
    ZooModel(
        name="roformer",
        domain="nlp",
        purpose="popular",
        summary="RoFormer base, BERT with rotary positions, which scores how well two legal cases match",
        build="hugging_face:roformer",
        keras="encoder:roformer",
        inputs=_tokens("input_ids", "token_type_ids"),
        outputs=("logits",),
        parameters=124_147_201,
        full={**_BASE, **_ROFORMER, "vocab_size": 50000, "embedding_size": 768, "max_position_embeddings": 1536},
        small={**_TINY, **_ROFORMER, "vocab_size": 1000, "embedding_size": 128, "max_position_embeddings": 96},
        sizes={"full": {"seq": 1024}, "small": {"seq": 64}},
        dataset="cail2019",
        frameworks=("tensorflow",),
        needs="transformers",
        note="Token ids are int64; ByteMLPerf feeds them as float32.",
    ),
    ZooModel(
        name="gpt2",
        domain="nlp",
        purpose="sota",
        summary="GPT-2 (124 M), logits of every token of a text",
        build="hugging_face:gpt2",
        inputs=_tokens("input_ids"),
        outputs=("logits",),
        parameters=124_439_808,
        full={"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12},
        small={
            "vocab_size": 1000, "n_positions": 64, "n_embd": 128, "n_layer": 2, "n_head": 4, "bos_token_id": 999,
            "eos_token_id": 999,
        },
        sizes={"full": {"seq": 384}, "small": {"seq": 32}},
        needs="transformers",
    ),
    ZooModel(
        name="videobert",
        domain="mm",
        purpose="popular",
        summary="CLIP ViT-B/32, which scores pictures against 100 texts",
        build="hugging_face:clip",
        inputs=_clip_inputs,
        outputs=("logits_per_image", "logits_per_text"),
        unbatched=frozenset({"text"}),
        batch_axes={"logits_per_text": 1},
        parameters=151_277_313,
        full={
            "text_config": {
                **_CLIP_TEXT, "hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8,
                "intermediate_size": 2048,
            },
            "vision_config": {**_BASE, "image_size": 224, "patch_size": 32},
            "projection_dim": 512,
        },
        small={
            "text_config": _TINY_CLIP_TEXT,
            "vision_config": {**_TINY, "image_size": 64, "patch_size": 16},
            "projection_dim": 64,
        },
        sizes={"full": {}, "small": {}},
        dataset="cifar100",
        frameworks=("onnx",),
        needs="transformers",
        aliases=("clip",),
        note="ByteMLPerf calls it VideoBERT, but its inputs and accuracy are those of CLIP.",
    ),
    ZooModel(
        name="stable-diffusion-text-encoder",
        domain="cv",
        purpose="sota",
        summary="The text encoder of Stable Diffusion 1.x (CLIP ViT-L/14)",
        build="hugging_face:clip_text",
        inputs=_clip_text_inputs,
        outputs=("last_hidden_state", "pooler_output"),
        parameters=123_060_480,
        full={**_BASE, **_CLIP_TEXT},
        small=_TINY_CLIP_TEXT,
        sizes={"full": {"seq": 77}, "small": {"seq": 16}},
        frameworks=("onnx",),
        needs="transformers",
        aliases=("sd-text",),
    ),
    _generating(
        name="llama2-7b",
        summary="Llama 2 7B: the first token after a text (prefill), or the next one with a cache (decode)",
        parameters=6_738_415_616,
        full={
            "vocab": 32000, "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "ffn": 11008, "positions": 4096,
            **_LLAMA,
        },
        small={**_TINY_DECODER, "kv_heads": 4, **_LLAMA},
        aliases=("llama2",),
    ),
    _generating(
        name="chatglm2-6b",
        summary="ChatGLM2 6B: the first token after a text (prefill), or the next one with a cache (decode)",
        parameters=6_243_584_000,
        full={
            "vocab": 65024, "hidden": 4096, "layers": 28, "heads": 32, "kv_heads": 2, "ffn": 13696, "positions": 32768,
            **_GLM,
        },
        small={**_TINY_DECODER, "kv_heads": 2, **_GLM},
        aliases=("chatglm2",),
    ),
)  # fmt: skip
