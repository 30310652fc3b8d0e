"""Time that a user waits before anything is measured."""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.common import OPMARK, Row, Shell

HELP_TARGET = 0.3
BACKENDS_TARGET = 1.0
FIRST_TARGET = 1.5
HELP_RUNS = 10
FIRST_RUNS = 5


def rows(shell: Shell) -> list[Row]:
    return [
        _command(shell, HELP_TARGET, "--help"),
        _command(shell, HELP_TARGET, "list", "ops"),
        _command(shell, BACKENDS_TARGET, "list", "backends"),
        _first_case(shell),
    ]


def _command(shell: Shell, target: float, *arguments: str) -> Row:
    shell.run(OPMARK, *arguments)  # the first one finds the files not yet in memory
    took = median(shell.time(OPMARK, *arguments) for _ in range(HELP_RUNS))
    name = f"`opmark {' '.join(arguments)}`, from the shell"
    return Row(name, f"at most {target:g} s", f"{took:.2f} s", took <= target)


def _first_case(shell: Shell) -> Row:
    """Time the whole command, an upper bound that includes sampling, storing and printing."""
    run = (OPMARK, "run", "add", "-p", "shape=64x64", "--effort", "quick", "--db", str(shell.db))
    bare = (sys.executable, "-c", "import torch")
    shell.run(*run)
    pairs = [(shell.time(*run), shell.time(*bare)) for _ in range(FIRST_RUNS)]
    ours, torch = (median(times) for times in zip(*pairs, strict=True))
    return Row(
        "one case from the shell to the table, beyond `import torch`",
        f"at most {FIRST_TARGET} s",
        f"{ours - torch:.2f} s ({ours:.2f} s - {torch:.2f} s)",
        ours - torch <= FIRST_TARGET,
    )
