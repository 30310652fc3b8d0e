"""SQuAD 1.1: exact match and F1 per question. A long text is cut into windows, of which the best answer counts."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.files import check_options, parse_json, path_of, read_text, refuse
from opmark.models.datasets.tokens import OPTIONS, TextTokenizer, compact
from opmark.plugin import Operator, Params
from opmark.plugin.dataset import DataSet
from opmark.schema.evaluation import DataChoice, Metric
from opmark.stats.accuracy import summarize_scores

STRIDE = 128
"""Tokens from the beginning of one window to that of the next."""
_LONGEST_QUESTION = 64
_N_BEST = 20
_LONGEST_ANSWER = 30
_LAYOUT = "SQuAD 1.1 as JSON (dev-v1.1.json)"
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SquadQuestion(NamedTuple):
    id: str
    question: str
    context: str
    answers: tuple[str, ...]


class TextWindow(NamedTuple):
    """One row: a question with a part of its text."""

    question: int
    """Place among the chosen samples."""
    tokens: dict[str, Any]
    places: Any
    """Positions in the row of tokens of the text that this window sees best, or at least as well as any other."""
    offsets: Any
    """Beginning and end of each token of the row in the text."""
    inside: Any
    """Positions in the row of all tokens of the text."""


class FoundAnswer(NamedTuple):
    score: float
    text: str


class Squad(DataSet):
    name = "squad"
    summary = f"SQuAD 1.1 for models that find answers, exact match and F1, with vocab= or tokenizer=: {_LAYOUT}"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice, *OPTIONS)
        path = path_of(choice, _LAYOUT)
        if path.is_dir():
            refuse(path, _LAYOUT, "a folder", "give the file itself")
        self.questions = read_questions(parse_json(read_text(path), path, _LAYOUT), str(path))
        self._tokenizer = TextTokenizer(choice, operator, params)
        self._windows: list[TextWindow] = []
        self._answers: list[FoundAnswer] = []

    @property
    def available(self) -> int:
        return len(self.questions)

    def choose(self, samples: Sequence[int]) -> int:
        self.samples = samples
        self._windows = [
            window for place, number in enumerate(samples) for window in self._cut(place, self.questions[number])
        ]
        self._answers = [FoundAnswer(-np.inf, "")] * len(samples)
        return len(self._windows)

    def _cut(self, place: int, asked: SquadQuestion) -> list[TextWindow]:
        """Return the windows of a question: tokens of the question, then so many of the text as there is room for."""
        tokenizer, length = self._tokenizer.tokenizer, self._tokenizer.length
        tokenizer.no_truncation()
        question = asked.question.strip()
        tokens = tokenizer.encode(question, add_special_tokens=False)
        most = min(_LONGEST_QUESTION, length // 2)
        if len(tokens.ids) > most:
            question = question[: tokens.offsets[most - 1][1]]
            tokens = tokenizer.encode(question, add_special_tokens=False)
        room = length - len(tokens.ids) - tokenizer.num_special_tokens_to_add(is_pair=True)
        if room < 1:
            raise UserError(
                f"`{self.operator.name}` takes {length} tokens, which leaves no room for a text behind the question",
                "-p seq=384",
            )
        step = min(STRIDE, room)
        tokenizer.enable_truncation(length, stride=room - step, strategy="only_second")
        first = tokenizer.encode(question, asked.context)
        encodings = [first, *first.overflowing]
        inside = [np.flatnonzero([part == 1 for part in one.sequence_ids]) for one in encodings]
        starts = [number * step for number in range(len(encodings))]
        ends = [start + len(one) for start, one in zip(starts, inside, strict=True)]
        windows = []
        for number, one in enumerate(encodings):
            seen_best = [
                position
                for i, position in enumerate(inside[number])
                if _best_window(starts[number] + i, starts, ends) == number
            ]
            windows.append(
                TextWindow(place, compact(one), np.array(seen_best, int), np.array(one.offsets), inside[number])
            )
        return windows

    def inputs(self, rows: range) -> Mapping[str, Any]:
        return self._tokenizer.rows([self._windows[row].tokens for row in rows])

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        if len(outputs) == 1 and outputs[0].ndim == 3 and outputs[0].shape[2] == 2:  # TensorFlow's models
            starts, ends = outputs[0][..., 0], outputs[0][..., 1]
        elif len(outputs) >= 2 and outputs[0].ndim == 2 and outputs[0].shape == outputs[1].shape:
            starts, ends = outputs[0], outputs[1]
        else:
            shapes = ", ".join(str(output.shape) for output in outputs)
            raise UserError(
                f"squad needs a score of each token for the beginning and for the end of the answer; the outputs of "
                f"`{self.operator.name}` have the shapes {shapes}",
                "as in model:bert-base",
            )
        for row, start, end in zip(rows, starts, ends, strict=True):
            window = self._windows[row]
            context = self.questions[self.samples[window.question]].context
            found = best_answer(window, start, end, context)
            if found.score > self._answers[window.question].score:
                self._answers[window.question] = found

    def scores(self) -> dict[str, list[float]]:
        chosen = [self.questions[number] for number in self.samples]
        pairs = list(zip(self._answers, chosen, strict=True))
        return {
            "F1": [max(f1_score(found.text, answer) for answer in asked.answers) for found, asked in pairs],
            "EM": [float(any(normalize(found.text) == normalize(a) for a in asked.answers)) for found, asked in pairs],
        }

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {"F1": summarize_scores("score", scores["F1"]), "EM": summarize_scores("share", scores["EM"])}

    def digest(self) -> str:
        whole = sha256()
        for number in self.samples:
            for part in (*self.questions[number][:3], *self.questions[number].answers):
                whole.update(part.encode() + b"\0")
        return whole.hexdigest()[:16]

    def notes(self) -> tuple[str, ...]:
        """Return the number of windows, since others divide by it."""
        return (f"{len(self.samples):,} questions in {len(self._windows):,} windows; figures are per question",)


def _best_window(token: int, starts: Sequence[int], ends: Sequence[int]) -> int:
    """Return the window in which a token of the text has the most neighbours on its poorer side."""
    holding = [number for number, (start, end) in enumerate(zip(starts, ends, strict=True)) if start <= token < end]
    return max(
        holding,
        key=lambda number: (
            min(token - starts[number], ends[number] - 1 - token) + 0.01 * (ends[number] - starts[number]),
            -number,
        ),
    )


def best_answer(window: TextWindow, starts: Any, ends: Any, context: str) -> FoundAnswer:
    """Return the part of the text with the highest score. Its tokens are those of this row alone, and it begins with
    one that this window sees best."""
    beginnings = _highest(starts, window.places)
    endings = _highest(ends, window.inside)
    best = FoundAnswer(-np.inf, "")
    for begin in beginnings:
        for end in endings:
            if begin <= end < begin + _LONGEST_ANSWER and starts[begin] + ends[end] > best.score:
                first, last = window.offsets[begin][0], window.offsets[end][1]
                best = FoundAnswer(float(starts[begin] + ends[end]), context[first:last].strip())
    return best


def _highest(scores: Any, positions: Any) -> Any:
    """Return the positions with the highest scores; NaN is never among them."""
    known = positions[~np.isnan(scores[positions])]
    return known[np.argsort(-scores[known], kind="stable")[:_N_BEST]]


def normalize(text: str) -> str:
    """Return a text as SQuAD compares it: small letters, without punctuation, articles and further spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1_score(found: str, answer: str) -> float:
    """Return the harmonic mean of the shares of words that both have in common."""
    ours, theirs = normalize(found).split(), normalize(answer).split()
    common = sum((Counter(ours) & Counter(theirs)).values())
    if not common:
        return 0.0
    return 2 * common / (len(ours) + len(theirs))


def read_questions(content: Any, where: str) -> list[SquadQuestion]:
    """Return the questions of a file; InvalidFile where it is another format."""
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        got = f"the fields {', '.join(list(content)[:5])}" if isinstance(content, dict) else type(content).__name__
        refuse(where, f"{_LAYOUT}, an object with `data`", got, "is it the file of another data set?")
    found: list[SquadQuestion] = []
    unlabelled = 0
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    if asked.get("is_impossible") is not None:
                        refuse(where, _LAYOUT, f"version {content.get('version')} with questions that have no answer",
                               "figures of SQuAD 2.0 are defined in another way; use dev-v1.1.json")  # fmt: skip
                    answers = tuple(str(answer["text"]) for answer in asked.get("answers") or ())
                    unlabelled += not answers
                    found.append(SquadQuestion(str(asked["id"]), asked["question"], paragraph["context"], answers))
    except (KeyError, TypeError, AttributeError) as error:
        refuse(where, _LAYOUT, f"an entry without {error}", "is it the file of another data set?")
    if unlabelled:
        refuse(where, "an answer for each question", f"none for {unlabelled} of {len(found)}",
               "the test set has no answers; use the development set")  # fmt: skip
    return found
