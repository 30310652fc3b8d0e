"""Words of CMUdict with their pronunciations, for models such as g2p-en, which was trained on this dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.files import check_options, read_text, refuse
from opmark.models.datasets.packages import EXTRA, package_file
from opmark.models.datasets.rows import JudgedSamples, count_edits, refuse_path
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice, MetricKind

_FILE = "cmudict/data/cmudict.dict"
_WORDS = 1000
_FIRST_LETTER = 3
"""Tokens of letters: padding, unknown, end of a word, then a to z."""
_END_OF_WORD, _END_OF_SOUND = 2, 3
_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_CONSONANTS = (
    "B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y",
    "Z", "ZH",
)  # fmt: skip
PHONEMES = (
    "<pad>", "<unk>", "<s>", "</s>",
    *sorted([f"{vowel}{stress}" for vowel in _VOWELS for stress in (0, 1, 2)] + [*_CONSONANTS, "UW"]),
)  # fmt: skip
"""Tokens of g2p-en in their order; vowels carry their stress."""


class CmuDict(JudgedSamples):
    name = "cmudict"
    summary = "1,000 words of CMUdict for models that pronounce a word, words right and phoneme error rate; no files"
    kinds: ClassVar[Mapping[str, MetricKind]] = {"words right": "share", "phoneme error rate": "loss"}

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice)
        refuse_path(choice)
        self._length = self.spec.shape[1]
        known = _read_pronunciations()
        words = sorted(word for word in known if 1 < len(word) < self._length)
        drawn = np.random.default_rng(0).choice(len(words), _WORDS, replace=False)
        self._words = [words[i] for i in drawn]
        self._pronunciations = [known[word] for word in self._words]
        self.labels = [f"{word} {said[0]}" for word, said in zip(self._words, self._pronunciations, strict=True)]

    def sample(self, number: int) -> Any:
        letters = [ord(letter) - ord("a") + _FIRST_LETTER for letter in self._words[number]]
        return np.array([*letters, _END_OF_WORD] + [0] * (self._length - len(letters) - 1), np.int64)

    def judge(self, number: int, output: Any) -> tuple[float, ...]:
        """Compare with the nearest of the pronunciations that the dictionary has."""
        if output.shape[1] != len(PHONEMES):
            raise UserError(
                f"{self.name} has {len(PHONEMES)} phonemes, and `{self.operator.name}` has {output.shape[1]} classes",
                "as in model:g2p-en",
            )
        tokens = output.argmax(1).tolist()
        end = tokens.index(_END_OF_SOUND) if _END_OF_SOUND in tokens else len(tokens)
        found = [PHONEMES[token] for token in tokens[:end]]
        rates = [count_edits(found, said.split()) / len(said.split()) for said in self._pronunciations[number]]
        return float(min(rates) == 0), min(rates)


def _read_pronunciations() -> dict[str, list[str]]:
    """Return the pronunciations of every word that has letters only. A further one stands as `word(2)`."""
    path = package_file(_FILE, "the data set cmudict")
    found: dict[str, list[str]] = {}
    for line in read_text(path).splitlines():
        word, _, said = line.partition("#")[0].strip().partition(" ")
        word = word.partition("(")[0]
        if word.isascii() and word.isalpha() and word.islower() and said:
            found.setdefault(word, []).append(said)
    if len(found) < _WORDS:
        refuse(path, f"at least {_WORDS} words with their phonemes", f"{len(found)}", f"install it again: {EXTRA}")
    return found
