from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.errors import UnknownName, UserError


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text("raise RuntimeError('it was imported by the judge')\n")
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidate": "softmax"}, "expected FILE.py:FUNCTION or MODULE:FUNCTION"),
        ({"candidate": "nothing.py:f"}, "there is no file nothing.py"),
        ({"like": ""}, "expected the operator that the candidate computes"),
        ({"params": {"shape": [[2, 2], [4, 4]]}}, "judged on one case, got 2"),
        ({"backend": "onnxruntime-cpu"}, "cannot be judged on onnxruntime-cpu"),
        ({"like": "dropout", "params": None}, "draws random numbers"),
        ({"like": "torch.add", "params": None, "backend": "torch-cpu"}, "has no reference"),
        ({"like": "all_reduce", "params": None}, "takes several processes"),
        ({"like": "matmul", "params": {"dtype": "tfloat32"}}, "cannot be judged in tfloat32"),
        ({"effort": "lazy"}, "lazy"),
    ],
)
def test_what_cannot_be_judged(kernels: Path, options: dict[str, Any], message: str) -> None:
    given = {
        "candidate": f"{kernels}:f", "like": "softmax", "params": {"shape": [2, 2]}, "backend": "numpy-cpu", **options,
    }  # fmt: skip
    with pytest.raises(UserError, match=message):
        opmark.judge(given.pop("candidate"), **given)


def test_a_baseline_that_is_not_there(kernels: Path) -> None:
    with pytest.raises(UnknownName, match="implementation of softmax on numpy-cpu"):
        opmark.judge(f"{kernels}:f", like="softmax", backend="numpy-cpu", baseline="cudnn")
