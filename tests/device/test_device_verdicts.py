"""Comparisons on a machine with an NVIDIA GPU: `python -m pytest tests/device`."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import opmark
from opmark.api.result import open_store

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

WORK = """\
import torch


def f(x):
    return torch.exp(x[:{elements}])
"""
ELEMENTS = 64 << 20
MORE = 0.03


def test_identical_code_is_not_called_different(tmp_path: Path) -> None:
    found = opmark.ab(["add", "softmax", "matmul", "layer_norm"], size="typical", backend="torch-cuda", same=True,
                      processes=5, db=tmp_path / "store.db")  # fmt: skip
    counts = found.counts()
    assert sum(counts.values()) == 4
    assert counts["slower"] + counts["faster"] == 0, found.pairs
    assert {pair.quantity for pair in found.pairs} == {"device_time"}


def test_three_percent_of_more_work_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    for elements in (ELEMENTS, round(ELEMENTS * (1 + MORE))):
        (repository / "work.py").write_text(WORK.format(elements=elements))
        git(repository, "add", "--all")
        git(repository, "-c", "user.name=t", "-c", "user.email=t", "commit", "--quiet", "-m", "work")
    monkeypatch.chdir(repository)
    found = opmark.ab("work:f", args=[f"{2 * ELEMENTS} float32"], rev=["HEAD~1", "HEAD"], backend="torch-cuda",
                      db=tmp_path / "store.db")  # fmt: skip
    (pair,) = found.pairs
    assert pair.verdict == "slower", pair
    assert pair.ratio == pytest.approx(1 + MORE, rel=0.01)


def test_two_sessions_are_compared_in_cycles_too(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    for label in ("before", "after"):
        opmark.run(["add", "matmul"], size="typical", backend="torch-cuda", effort="quick", processes=3, label=label,
                   quantity="device_time", db=db)  # fmt: skip
    with closing(open_store(db)) as store:
        figures = store.figures(runs=[run.id for run in store.runs()])
    assert all(figure.cycles for figure in figures if figure.quantity == "device_time")
    found = opmark.compare("before", "after", db=db)
    assert not {pair.verdict for pair in found.pairs} & {"slower", "faster"}, found.pairs
    assert {pair.case for pair in found.pairs} == {figure.case for figure in figures}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
