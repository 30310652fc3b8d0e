"""scikit-learn's digits: 1,797 pictures of handwritten digits, of which half are held out from training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.classification import ClassifierData
from opmark.models.datasets.files import check_options
from opmark.models.datasets.packages import package_file
from opmark.models.datasets.rows import refuse_path
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice

FILE = "sklearn/datasets/data/digits.csv.gz"
_COLUMNS = 65
"""64 points of 0 to 16, and the digit."""
_HELD_OUT = 898


def read_digits(path: Path, *, held_out: bool) -> tuple[Any, Any]:
    """Return pictures (n, 1, 8, 8) of 0 to 1 and labels, in an order drawn with a fixed seed: the last 898 are held
    out from training."""
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"`{path}` cannot be read as digits: {error}", "install scikit-learn again") from None
    if table.ndim != 2 or table.shape[1] != _COLUMNS or len(table) <= _HELD_OUT:
        raise UserError(
            f"`{path}`: expected more than {_HELD_OUT} rows of {_COLUMNS} numbers, got {table.shape}",
            "install scikit-learn again",
        )
    order = np.random.default_rng(0).permutation(len(table))
    rows = table[order[-_HELD_OUT:] if held_out else order[:-_HELD_OUT]]
    return rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1].astype(np.int64)


class Digits(ClassifierData):
    name = "digits"
    summary = "the 898 of scikit-learn's handwritten digits that digits-classifier was not trained on, Top-1; no files"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice)
        refuse_path(choice)
        self._input = next(iter(operator.inputs(params)))
        self._pictures, labels = read_digits(package_file(FILE, "the data set digits"), held_out=True)
        self.labels = [int(label) for label in labels]

    def sample(self, number: int) -> tuple[Any, bytes]:
        return self._pictures[number], self._pictures[number].tobytes()

    def batch(self, samples: Any) -> Mapping[str, Any]:
        return {self._input: samples}
