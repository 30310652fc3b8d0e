"""Live comparisons on this machine: torch with itself, and a function with 3 % more work."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import OPMARK, Row, Shell

OPERATORS = (
    "add", "mul", "exp", "sigmoid", "gelu", "silu", "sqrt", "softmax", "log_softmax", "layer_norm",
    "rms_norm", "matmul", "linear", "bmm", "conv2d", "max_pool2d", "sum", "mean", "cumsum", "sort",
)  # fmt: skip
RIGHT = 0.95
"""Share of operators that are not called different from themselves."""
BUDGET = 900.0

ELEMENTS = 200_000
MORE = 0.03
# The vector fits into the cache, so that the time is in proportion to the number of elements.
_WORK = """\
import torch


def f(x):
    return torch.exp(x[:{elements}])
"""


def rows(shell: Shell) -> list[Row]:
    return [_with_itself(shell), _more_work(shell)]


def _with_itself(shell: Shell) -> Row:
    since = time.perf_counter()
    found = _run_ab(shell, *OPERATORS, "--size", "small", "--same")
    took = time.perf_counter() - since
    measured = [pair for pair in found["pairs"] if pair["statuses"] == ["ok", "ok"] and pair["ratio"] is not None]
    counts = Counter(pair["verdict"] for pair in measured)
    counts["failed"] = len(found["pairs"]) - len(measured)
    right = counts["same"] + counts["undecided"]
    share = right / len(found["pairs"])
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common() if count)
    return Row(
        f"`opmark ab` of torch with itself over {len(found['pairs'])} operators: same or undecided",
        f"at least {RIGHT:.0%}",
        f"{share:.0%} ({listed}; geometric mean {found['geomean']['ratio']:.4f}; {took:.0f} s)",
        share >= RIGHT and len(found["pairs"]) == len(OPERATORS),
    )


def _more_work(shell: Shell) -> Row:
    """Compare two revisions of a function, of which the second computes more elements."""
    repository = shell.folder / "repository"
    repository.mkdir()
    _git(repository, "init", "--quiet")
    for elements in (ELEMENTS, round(ELEMENTS * (1 + MORE))):
        (repository / "work.py").write_text(_WORK.format(elements=elements))
        _git(repository, "add", "--all")
        _git(repository, "commit", "--quiet", "-m", f"{elements} elements")
    argument = f"[{2 * ELEMENTS} float32]"
    sides = ("--repo", str(repository), "--rev", "HEAD~1", "--rev", "HEAD")
    (pair,) = _run_ab(shell, "work:f", "--args", argument, *sides, "--threads", "1")["pairs"]
    return Row(
        f"`opmark ab --rev` of a function with {MORE:.0%} of more work",
        "slower",
        f"{pair['verdict']}: {pair['ratio']:.4f} ({pair['low']:.4f}–{pair['high']:.4f}), "
        f"{pair['processes'][0]} processes a side",
        pair["verdict"] == "slower",
    )


def _run_ab(shell: Shell, *arguments: str) -> Any:
    return json.loads(
        shell.run(OPMARK, "ab", *arguments, "--backend", "torch-cpu", "--budget", str(BUDGET), "--json", codes=(0, 1))
    )


def _git(folder: Path, *arguments: str) -> None:
    who = {f"GIT_{role}_{what}": "benchmark" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", str(folder), *arguments], env={**os.environ, **who}, check=True, capture_output=True)
