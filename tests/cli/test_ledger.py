"""opmark extract, opmark ledger"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.models

Command = Callable[..., Any]

pytest.importorskip("torch")


def test_one_command_measures_a_model_and_its_operators(opmark: Command) -> None:
    done = opmark(
        "ledger", "model:conv-pointwise", "--size", "small", "--threads", "1", "--retries", "0", "--samples", "3",
        "--warmup", "1", "--no-verify", "--json",
    )  # fmt: skip
    if "disturbed" in done.err:
        pytest.skip("other work took the cores")
    assert done.code == 0, done.err
    (line,) = done.out.splitlines()
    found = json.loads(line)
    assert found["model"].startswith("model:conv-pointwise")
    assert sum(row["count"] for row in found["rows"]) == found["calls"] > 0
    assert opmark("ledger").code == 0


def test_a_compiler_has_no_ledger(opmark: Command) -> None:
    done = opmark("ledger", "model:conv-pointwise", "--backend", "onnxruntime-cpu")
    assert done.code == 2
    assert "eager torch" in done.err
