"""Runs asv's step detection in an environment of its own, with series and regressions as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

THRESHOLDS = (0.05, 0.02)
"""Thresholds of steps; the first is asv's default."""

_SCRIPT = """
import json, sys
from asv.step_detect import detect_regressions, detect_steps
series, thresholds = json.load(sys.stdin)
found = []
for values in series:
    steps = detect_steps(values)
    positions = [detect_regressions(steps, threshold)[2] or [] for threshold in thresholds]
    found.append([[after for _, after, *_ in each] for each in positions])
json.dump(found, sys.stdout)
"""


class NoAsv(Exception):
    """The reason why asv could not be installed."""


class Asv:
    def __init__(self, folder: Path) -> None:
        home = folder / "asv"
        venv.create(home, with_pip=True)
        self._python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        done = self._run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "asv")
        if done.returncode != 0:
            raise NoAsv(f"pip install asv: {done.stderr.strip().splitlines()[-1:]}")
        self.version = self._run("-c", "import asv; print(asv.__version__)").stdout.strip()

    def regressions(self, series: Sequence[Sequence[float]]) -> list[list[list[int]]]:
        """Return, for every series and threshold, the nights from which on it was slower."""
        done = self._run("-c", _SCRIPT, stdin=json.dumps([list(map(list, series)), THRESHOLDS]))
        if done.returncode != 0:
            raise RuntimeError(f"asv {self.version}: {done.stderr}")
        found: list[list[list[int]]] = json.loads(done.stdout)
        return found

    def _run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run((str(self._python), *arguments), input=stdin, capture_output=True, text=True)
