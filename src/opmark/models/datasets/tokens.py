"""Tokenizers of the user: a vocabulary of BERT (vocab.txt), or a tokenizer.json of any model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opmark.errors import InvalidFile, UserError
from opmark.models.datasets.files import option_path, read_text, refuse, require
from opmark.plugin import Operator, Params
from opmark.schema import TensorSpec
from opmark.schema.evaluation import DataChoice

OPTIONS = ("vocab", "tokenizer", "cased")
_PADS = ("[PAD]", "<pad>", "<|pad|>")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class TextTokenizer:
    """Turns texts into tokens with the special tokens and the padding of its own model."""

    def __init__(self, choice: DataChoice, operator: Operator, params: Params) -> None:
        vocabulary, whole = option_path(choice, "vocab"), option_path(choice, "tokenizer")
        if (vocabulary is None) == (whole is None):
            raise UserError(
                f"{choice.name}: expected one tokenizer, got {'two' if vocabulary else 'none'}",
                "--data-option vocab=vocab.txt for BERT, or --data-option tokenizer=tokenizer.json for any model",
            )
        path = vocabulary or whole
        assert path is not None
        self.tokenizer = (
            _load_vocabulary(path, cased=choice.options.get("cased", "") in ("1", "true", "yes"))
            if vocabulary
            else _load_tokenizer(path)
        )
        self.pad = self._find_pad(path)
        self.inputs = token_inputs(operator, params)
        self.length = self.inputs["ids"][1].shape[1]
        self._refuse_other_vocabulary(path, operator)

    def _find_pad(self, path: Path) -> int:
        """Return the number of the token that fills rows: 0 in BERT's vocabulary, 1 in RoBERTa's."""
        if self.tokenizer.padding:
            return int(self.tokenizer.padding["pad_id"])
        found = [self.tokenizer.token_to_id(name) for name in _PADS]
        known = next((number for number in found if number is not None), None)
        if known is None:
            refuse(path, f"a token for padding ({', '.join(_PADS)})", "none", "is it the tokenizer of this model?")
        return int(known)

    def _refuse_other_vocabulary(self, path: Path, operator: Operator) -> None:
        """Raise UserError where tokens do not fit the model. A user's program is known from examples only."""
        spec, size = self.inputs["ids"][1], self.tokenizer.get_vocab_size()
        if not operator.program and size > spec.high:
            raise UserError(
                f"{path}: has {size} tokens, and `{operator.name}` has a vocabulary of {spec.high:g}",
                "does this tokenizer belong to the model? `opmark describe` shows the inputs of a model",
            )

    def rows(self, encodings: Any) -> dict[str, Any]:
        """Return the inputs of encoded texts, padded, by the names of the model."""
        import numpy as np

        found: dict[str, Any] = {}
        for kind, (name, spec) in self.inputs.items():
            filled = self.pad if kind == "ids" else 0
            array = np.full((len(encodings), self.length), filled, np.int64)
            for row, one in enumerate(encodings):
                values = one[kind]
                array[row, : len(values)] = values
            if kind == "types" and spec.high >= 1:  # RoBERTa knows one type alone
                array = np.minimum(array, max(0, int(spec.high) - 1) if spec.dtype.startswith("int") else 1)
            found[name] = array
        return found


def compact(encoding: Any) -> dict[str, Any]:
    """Return what a row needs of an encoding, in little memory."""
    import numpy as np

    return {
        "ids": np.array(encoding.ids, np.int32),
        "mask": np.ones(len(encoding.ids), np.int8),
        "types": np.array(encoding.type_ids, np.int8),
    }


def token_inputs(operator: Operator, params: Params) -> Mapping[str, tuple[str, TensorSpec]]:
    """Return the inputs of a model of text by their kind (`ids`, `mask`, `types`), in the order of the model."""
    found: dict[str, tuple[str, TensorSpec]] = {}
    specs = operator.inputs(params)
    for name, spec in specs.items():
        kind = "mask" if "mask" in name else "types" if "type" in name or "segment" in name else "ids"
        if kind in found or len(spec.shape) != 2:
            found.clear()
            break
        found[kind] = (name, spec)
    if "ids" not in found:
        raise UserError(
            f"`{operator.name}` takes {', '.join(specs)}; expected rows of tokens, and optionally their mask and types",
            "as in model:bert-base",
        )
    return found


def _load_vocabulary(path: Path, *, cased: bool) -> Any:
    """Return BERT's tokenizer over a vocabulary: one token per line, its number is that of the line."""
    library = require("tokenizers", "a vocabulary")
    words = read_text(path).splitlines()
    numbers = {word: number for number, word in enumerate(words)}
    missing = [word for word in _SPECIAL if word not in numbers]
    if missing:
        refuse(path, f"one token per line, {', '.join(_SPECIAL)} among them", f"no {missing[0]} in {len(words)} lines",
               "a tokenizer of another kind is given by --data-option tokenizer=tokenizer.json")  # fmt: skip
    made = library.Tokenizer(library.models.WordPiece(numbers, unk_token="[UNK]"))
    made.normalizer = library.normalizers.BertNormalizer(lowercase=not cased)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    ends = (("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    made.post_processor = library.processors.BertProcessing(*ends)
    return made


def _load_tokenizer(path: Path) -> Any:
    library = require("tokenizers", "a tokenizer.json")
    try:
        made = library.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises nothing more special
        raise InvalidFile(
            f"{path}: expected a tokenizer.json, got one that cannot be read: {error}", "a vocab.txt is given by vocab="
        ) from None
    made.no_truncation()
    return made
