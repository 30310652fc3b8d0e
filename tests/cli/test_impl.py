"""Implementations from a file: `opmark run --impl` and `opmark ab --impl`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = """
import numpy as np


def softmax(x, dim):
    shifted = np.exp(x - x.max(axis=dim, keepdims=True))
    return shifted / shifted.sum(axis=dim, keepdims=True)


def zeros(x):
    return np.zeros_like(x)
"""
CASE = ["softmax", "-p", "shape=16x32", "--backend", "numpy-cpu", "--threads", "1", "--effort", "quick"]


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def opmark(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opmark", *arguments, "--db", "store.db", "--json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_function_runs_beside_the_built_in_implementation(kernels: Path) -> None:
    done = opmark(kernels, "run", *CASE, "--impl", "kernels.py:softmax")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["implementation"], row["status"]) for row in rows] == [("numpy", "ok"), ("kernels.py:softmax", "ok")]
    assert done.returncode == 0, done.stderr


def test_a_wrong_function_is_a_record_that_says_so(kernels: Path) -> None:
    done = opmark(kernels, "run", *CASE, "--impl", "numpy,kernels:zeros")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["implementation"], row["status"]) for row in rows] == [("numpy", "ok"), ("kernels:zeros", "wrong")]
    assert done.returncode == 1


def test_sides_are_implementations_and_a_wrong_one_is_named(kernels: Path) -> None:
    done = opmark(kernels, "ab", *CASE, "--processes", "2", "--impl", "numpy,kernels.py:softmax")
    found = json.loads(done.stdout)
    assert [found["a"], found["b"]] == ["numpy", "kernels.py:softmax"]
    assert found["pairs"][0]["ratio"] > 0
    wrong = opmark(kernels, "ab", *CASE, "--processes", "2", "--impl", "numpy,kernels.py:zeros")
    assert wrong.returncode == 1
    assert "kernels.py:zeros: wrong: output 0: 512 of 512 elements" in wrong.stdout
