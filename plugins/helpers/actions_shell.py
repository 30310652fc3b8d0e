"""Runs the shell steps of GitHub's actions and workflows here: expressions are filled in from what a
test gives, and files stand for GitHub's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
CALM = Path(__file__).parents[2] / "tests" / "helpers" / "calm"


def fill_in(text: str, known: Mapping[str, str]) -> str:
    """Replace `${{ inputs.db }}` by what is known under `inputs.db`; an unknown name is a mistake of the file."""
    return _EXPRESSION.sub(lambda found: known[found[1]], text)


def run_step(step: Mapping[str, Any], known: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a step with `run` as GitHub does with `shell: bash`."""
    bin_folder = str(Path(sys.executable).parent)
    own = {name: fill_in(str(text), known) for name, text in step.get("env", {}).items()}
    environ = {
        **os.environ,
        "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
        "PYTHONPATH": str(CALM),
        "XDG_DATA_HOME": str(folder / "data"),
        "GITHUB_STEP_SUMMARY": str(folder / "step-summary.md"),
        "GITHUB_OUTPUT": str(folder / "output.txt"),
        **own,
    }
    script = fill_in(step["run"], known)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script], cwd=folder, env=environ, text=True,
        capture_output=True,
    )  # fmt: skip
