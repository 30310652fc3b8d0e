"""scikit-learn's digits: 1,797 pictures of handwritten digits, of which a fifth is held out from training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import UserError

_COLUMNS = 65
"""64 points of 0 to 16, and the digit."""
_HELD_OUT = 360


def read_digits(path: Path, *, held_out: bool) -> tuple[Any, Any]:
    """Return pictures (n, 1, 8, 8) of 0 to 1 and labels, in an order drawn with a fixed seed: the last 360 are held
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
