"""Verification finds right implementations right and wrong ones wrong, for every element type that they claim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from opmark.registry import backend, catalogue
from opmark.runner.instructions import LIMITS, VARIABLE
from opmark.schema import PHASES, Operator

SLOW = ("compiled",)
SCRIPT = Path(__file__).with_name("verdicts.py")
OPERATORS = [op for op in catalogue().values() if not (op.ranks or op.device_only)]

Verdicts = dict[str, dict[tuple[str, ...], list[dict[str, Any]]]]


PARTS = 2


def _start(part: int, limit: str | None) -> subprocess.Popen[str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    env = {**os.environ, **threads} | ({VARIABLE: limit} if limit else {})
    command = [sys.executable, str(SCRIPT), str(part), str(PARTS)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(limit: str | None) -> list[tuple[int, str, str]]:
    """Return (exit code, output, errors) of each part."""
    with ThreadPoolExecutor(PARTS) as pool:
        started = [_start(part, limit) for part in range(PARTS)]
        ended = list(pool.map(lambda process: process.communicate(timeout=560), started))
    return [(process.returncode, *texts) for process, texts in zip(started, ended, strict=True)]


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    """Return all verdicts by kind, from separate processes under the mildest limit that they survive."""
    for limit in (None, *LIMITS):
        parts = _run(limit)
        if all(code != -signal.SIGILL for code, _, _ in parts):
            break
    found: Verdicts = {"right": {}, "wrong": {}}
    for code, out, errors in parts:
        assert code == 0, errors
        *lines, last = map(json.loads, out.splitlines())
        assert last["kind"] == "end", "the script ended early"
        for verdict in lines:
            length = 5 if verdict["kind"] == "right" else 3
            found[verdict["kind"]].setdefault(tuple(verdict["key"][:length]), []).append(verdict)
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
    about = verdicts["right"].get(key, [])
    if about and {verdict["outcome"] for verdict in about} == {"Unsupported"}:
        pytest.skip("not on this machine")
    assert about or key[1] in SLOW
    wrong = [f"{v['params']}, seed {v['seed']}: {v['outcome']}" for v in about if v["outcome"] != "ok"]
    assert not wrong, "\n".join(wrong)


WRONG = [
    (op.name, dtype, where)
    for op in OPERATORS
    for dtype in ("float32", "bfloat16")
    if dtype in op.param("dtype").choices
    for where in ("forward", *(f"gradient of {name}" for name in op.gradients if "*" not in name))
]


@pytest.mark.parametrize("key", WRONG, ids=lambda key: "-".join(key))
def test_a_wrong_result_is_found_wrong(key: tuple[str, ...], verdicts: Verdicts) -> None:
    """Results are spoiled in ways that change them."""
    about = [verdict for verdict in verdicts["wrong"].get(key, []) if verdict["outcome"] != "Unchanged"]
    assert about
    missed = [
        f"{v['key'][3]} at {v['params']}: {v['outcome']}" for v in about if not v["outcome"].startswith("WrongResult:")
    ]
    assert not missed, "\n".join(missed)
