"""DataSet: labelled data that models are evaluated on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar

from opmark.plugin.operator import Operator
from opmark.plugin.param import Params
from opmark.schema.evaluation import DataChoice, Metric


class DataSet(ABC):
    """Turns samples into inputs of a model, and its outputs into scores. It is found by its name through the entry
    points `opmark.datasets`, and made in a worker, for one case. Its file imports NumPy and no framework at its top.

    The engine draws the rows, calls the model on batches of them and hands the outputs back. A row is one entry of a
    batch; a sample may take several rows (a long text is cut into windows).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `opmark list datasets`: what it is, and which files it takes."""

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        """Read what is needed to know the samples. UserError (what, where, expected, got, hint) for missing or damaged
        files and for a model whose inputs do not fit."""
        self.choice, self.operator, self.params, self.seed = choice, operator, params, seed
        self.samples: Sequence[int] = ()
        """Numbers of the chosen samples."""
        self.hasher = sha256()
        """Takes what is read of these samples, and their labels."""

    @property
    @abstractmethod
    def available(self) -> int:
        """Number of samples in the data."""

    def choose(self, samples: Sequence[int]) -> int:
        """Use these samples only, in this order; return the number of rows that they take: one each, unless a data set
        says otherwise."""
        self.samples = samples
        return len(samples)

    @abstractmethod
    def inputs(self, rows: range) -> Mapping[str, Any]:
        """Return the inputs of these rows as NumPy arrays, by the names and in the order that the operator gives them.
        Inputs without a batch are whole. Floats may be of any width: the engine casts them to the type of the case."""

    @abstractmethod
    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        """Keep what is needed of the outputs of these rows: NumPy arrays, floats in float64."""

    @abstractmethod
    def scores(self) -> dict[str, list[float]]:
        """Return, per metric, the score of each chosen sample, once all rows were taken."""

    @abstractmethod
    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        """Return the figures over all samples; the first is the one that verdicts are about."""

    def digest(self) -> str:
        """Return a digest of the chosen samples and labels, once all rows were taken; empty if the hasher was given
        nothing, and then nobody compares two backends."""
        return "" if self.hasher.digest() == sha256().digest() else self.hasher.hexdigest()[:16]

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the figures has to know."""
        return ()
