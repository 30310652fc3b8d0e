"""Verification finds right implementations right and wrong ones wrong, for every element type that they claim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opmark.registry import backend, catalogue
from opmark.runner.instructions import LIMITS, VARIABLE
from opmark.schema import PHASES, Operator

SCRIPT = Path(__file__).with_name("verdicts.py")
OPERATORS = list(catalogue().values())

Verdicts = dict[str, list[dict[str, Any]]]


def _run(limit: str | None) -> subprocess.CompletedProcess[str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    env = {**os.environ, **threads} | ({VARIABLE: limit} if limit else {})
    return subprocess.run([sys.executable, SCRIPT], env=env, capture_output=True, text=True, timeout=280)


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    """Every verdict by kind; taken in a process of its own, with the mildest limit under which it survives."""
    for limit in (None, *LIMITS):
        done = _run(limit)
        if done.returncode != -signal.SIGILL:
            break
    found: Verdicts = {"right": [], "wrong": [], "end": []}
    for line in done.stdout.splitlines():
        verdict = json.loads(line)
        found[verdict["kind"]].append(verdict)
    assert done.returncode == 0, done.stderr
    assert found["end"], "the script ended early"
    return found


def _phases(op: Operator, backend_name: str, dtype: str) -> list[str]:
    if not backend(backend_name).differentiates:
        return ["forward"]
    params = op.complete({**op.preset("small"), "dtype": dtype})
    return [phase for phase in PHASES if op.why_no_phase(params, phase) is None]


RIGHT = [
    (op.name, implementation.label, backend_name, dtype, phase)
    for backend_name in ("numpy-cpu", "torch-cpu")
    for op in OPERATORS
    for implementation in op.implementations_for(backend(backend_name).framework)
    for dtype in op.param("dtype").choices
    if dtype in backend(backend_name).dtypes
    for phase in _phases(op, backend_name, dtype)
]


@pytest.mark.parametrize("key", RIGHT, ids=lambda key: "-".join(key))
def test_a_right_implementation_is_found_right(key: tuple[str, ...], verdicts: Verdicts) -> None:
    about = [verdict for verdict in verdicts["right"] if tuple(verdict["key"]) == key]
    assert about
    wrong = [f"{v['params']}, seed {v['seed']}: {v['outcome']}" for v in about if v["outcome"] != "ok"]
    assert not wrong, "\n".join(wrong)


WRONG = [
    (op.name, dtype, where)
    for op in OPERATORS
    for dtype in ("float32", "bfloat16")
    if dtype in op.param("dtype").choices
    for where in ("forward", *(f"gradient of {name}" for name in op.gradients))
]


@pytest.mark.parametrize("key", WRONG, ids=lambda key: "-".join(key))
def test_a_wrong_result_is_found_wrong(key: tuple[str, ...], verdicts: Verdicts) -> None:
    about = [verdict for verdict in verdicts["wrong"] if tuple(verdict["key"][:3]) == key]
    assert len(about) >= 8
    missed = [
        f"{v['key'][3]} at {v['params']}: {v['outcome']}" for v in about if not v["outcome"].startswith("WrongResult:")
    ]
    assert not missed, "\n".join(missed)
