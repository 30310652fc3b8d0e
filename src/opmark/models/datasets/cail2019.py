"""CAIL2019-SCM: which of two legal cases is more like a third one? Texts with a vocabulary, or tokens as ByteMLPerf has
them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.files import UNFINISHED, check_options, load_array, path_of, read_text, refuse
from opmark.models.datasets.tokens import OPTIONS, TextTokenizer, compact, token_inputs
from opmark.plugin import Operator, Params
from opmark.plugin.dataset import DataSet
from opmark.schema.evaluation import DataChoice, Metric
from opmark.stats.accuracy import summarize_scores

_TOKENS, _SEGMENTS, _LABELS = "batch_token_ids.npy", "batch_segment_ids.npy", "label.npy"
_LAYOUT = (
    "JSON lines with the texts A, B, C and a label B or C, or a folder with batch_token_ids.npy, batch_segment_ids.npy "
    "and label.npy"
)
_PAIR = 2
"""Rows of a sample: the two cases that are compared with the first."""


class Cail2019(DataSet):
    name = "cail2019"
    summary = (
        f"CAIL2019-SCM for models that score how alike two texts are, share of pairs in the right order: {_LAYOUT}"
    )

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        path = path_of(choice, _LAYOUT)
        self._tokenizer: TextTokenizer | None = None
        if path.is_dir() and (path / _TOKENS).is_file():
            check_options(choice)
            self._rows, self._right = _read_arrays(path, operator, params)
            self._texts: list[tuple[str, str]] = []
        else:
            check_options(choice, *OPTIONS)
            file = path / "test.json" if path.is_dir() else path
            if not file.is_file():
                refuse(path, _LAYOUT, "a folder with neither test.json nor batch_token_ids.npy", "give the file itself")
            self._texts, self._right = _read_lines(file)
            self._tokenizer = TextTokenizer(choice, operator, params)
            self._rows = []
        self._inputs = token_inputs(operator, params)
        self._scores: list[float] = []

    @property
    def available(self) -> int:
        return len(self._right)

    def choose(self, samples: Sequence[int]) -> int:
        self.samples = samples
        return _PAIR * len(samples)

    def inputs(self, rows: range) -> Mapping[str, Any]:
        numbers = [_PAIR * self.samples[row // _PAIR] + row % _PAIR for row in rows]
        if self._tokenizer is None:
            length = self._inputs["ids"][1].shape[1]
            found = {}
            for kind, (name, _) in self._inputs.items():
                found[name] = np.zeros((len(rows), length), np.int64)
                for place, number in enumerate(numbers):
                    values = self._rows[number][kind]
                    found[name][place, : len(values)] = values
            encoded = [self._rows[number] for number in numbers]
        else:
            tokenizer = self._tokenizer.tokenizer
            tokenizer.enable_truncation(self._tokenizer.length, strategy="longest_first")
            encoded = [compact(one) for one in tokenizer.encode_batch([self._texts[number] for number in numbers])]
            found = self._tokenizer.rows(encoded)
        for number, one in zip(numbers, encoded, strict=True):
            self.hasher.update(np.asarray(one["ids"], np.int64).tobytes() + bytes([self._right[number // _PAIR]]))
        return found

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        found = outputs[0].reshape(len(rows), -1)
        if found.shape[1] != 1:
            raise UserError(
                f"cail2019 needs one score per pair of texts; the first output of `{self.operator.name}` has "
                f"{found.shape[1]} numbers per row",
                "as in model:roformer",
            )
        self._scores += found[:, 0].tolist()

    def scores(self) -> dict[str, list[float]]:
        right = []
        for place, number in enumerate(self.samples):
            pair = self._scores[_PAIR * place : _PAIR * place + _PAIR]
            due = self._right[number]
            right.append(float(pair[due] > pair[1 - due]))  # a tie is no answer, and NaN is none either
        return {"pairs": right}

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {"pairs": summarize_scores("share", scores["pairs"])}


def _read_lines(path: Path) -> tuple[list[tuple[str, str]], list[int]]:
    """Return the two pairs of texts of each line one after the other, and which of the two is the right one."""
    texts: list[tuple[str, str]] = []
    right: list[int] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        here = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            refuse(here, "one JSON object per line", f"text that is no JSON at column {error.colno}", UNFINISHED)
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in "ABC"):
            got = ", ".join(list(entry)[:6]) if isinstance(entry, dict) else type(entry).__name__
            refuse(here, "the texts A, B and C", got, "is it the file of another data set?")
        if entry.get("label") not in ("B", "C"):
            refuse(here, "a label B or C", f"`{entry.get('label')}`", "the test set without labels cannot be evaluated")
        texts += [(entry["A"], entry["B"]), (entry["A"], entry["C"])]
        right.append("BC".index(entry["label"]))
    return texts, right


def _read_arrays(folder: Path, operator: Operator, params: Params) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the tokens of all rows, and which of the two rows of each pair is the right one."""
    tokens, segments, labels = (load_array(folder / name) for name in (_TOKENS, _SEGMENTS, _LABELS))
    labels = np.asarray(labels, float).reshape(-1)
    if not len(tokens) == len(segments) == len(labels) or len(tokens) % _PAIR:
        refuse(folder, "as many tokens, segments and labels, an even number",
               f"{len(tokens)}, {len(segments)} and {len(labels)}", UNFINISHED)  # fmt: skip
    spec = token_inputs(operator, params)["ids"][1]
    rows = []
    for number, (own, types) in enumerate(zip(tokens, segments, strict=True)):
        ids = np.asarray(own, np.int64).reshape(-1)
        here = f"{folder / _TOKENS}, row {number}"
        if len(ids) > spec.shape[1]:
            refuse(here, f"at most {spec.shape[1]} tokens", f"{len(ids)}", "-p seq=1024")
        if not operator.program and len(ids) and not 0 <= ids.min() <= ids.max() < spec.high:
            refuse(here, f"tokens from 0 to {spec.high - 1:g}", f"{ids.min()} to {ids.max()}",
                   "do the tokens belong to the vocabulary of this model?")  # fmt: skip
        mask = np.ones(len(ids), np.int8)
        rows.append({"ids": ids, "types": np.asarray(types, np.int64).reshape(-1), "mask": mask})
    right = []
    for number, (one, other) in enumerate(labels.reshape(-1, _PAIR)):
        if one == other:
            refuse(folder / _LABELS, "two labels of which one is larger, in each pair of rows",
                   f"{one:g} and {other:g} in pair {number}", "the two rows of a pair follow each other")  # fmt: skip
        right.append(int(other > one))
    return rows, right
