"""Evaluation: how often a model is right on labelled data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MetricKind = Literal["share", "score", "loss", "perplexity", "auc"]
"""
share       mean of scores that are 0 or 1
score       mean of scores from 0 to 1
loss        mean of scores without a bound
perplexity  exponential of the mean of losses
auc         area under the curve of scores, with the labels 0 and 1 in `Evaluation.scores["label"]`
"""
LABEL = "label"
"""Key of the labels among the scores, where a figure needs them."""


class DataChoice(Struct, frozen=True):
    """Labelled data that a model is evaluated on."""

    name: str
    """The kind of data set: `imagenet`, `squad`, `digits`."""
    path: str = ""
    """File or folder of the user; empty for data that comes with a package."""
    percent: float = 100.0
    """Share of the samples, drawn by the seed of the settings."""
    options: dict[str, str] = {}
    """Further files or choices that the data set takes, such as the vocabulary of a tokenizer."""

    def __hash__(self) -> int:
        """Settings are keys of rows, and a mapping alone has no hash."""
        return hash((self.name, self.path, self.percent, *sorted(self.options.items())))


class Metric(Struct, frozen=True):
    """A figure over all samples with its 95 % interval."""

    value: float
    low: float | None = None
    high: float | None = None
    """None where nobody has an interval for it."""
    better: str = "higher"
    """`higher` or `lower`: which values are better."""
    kind: MetricKind = "score"
    """What it is made of the scores by, which says how two backends are compared."""


class Evaluation(Struct, frozen=True):
    data: DataChoice
    metrics: dict[str, Metric]
    """By name; the first is the one that verdicts are about."""
    samples: int
    """Number of samples that were evaluated."""
    available: int
    """Number of samples in the data."""
    scores: dict[str, list[float]] = {}
    """Per metric, the score of each sample in the order of the data: what two backends are compared by, sample by
    sample."""
    digest: str = ""
    """Digest of the samples and labels: results are compared only where it is the same."""
    notes: tuple[str, ...] = ()
