"""The package, installed as anybody would: by pip, into a fresh environment that has opmark and no framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

HERE = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


class Site:
    """A virtual environment. What this interpreter has is seen there too, so that nothing is fetched."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (self.packages / "shared.pth").write_text(shared)
        self._home = folder

    def pip(self, *arguments: str) -> None:
        done = subprocess.run([*PIP, "--python", str(self.python), *arguments], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr

    def install(self) -> None:
        self.pip("install", "--quiet", "--no-deps", "--no-build-isolation", str(HERE))

    def add(self, package: str, entry_points: str, code: str) -> None:
        """A package of one module, as an installer would leave it."""
        (self.packages / f"{package}.py").write_text(dedent(code))
        info = self.packages / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(dedent(entry_points))

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """With a store of its own, and a wide terminal."""
        own = {"COLUMNS": "250", "OPMARK_DB": str(self._home / "runs.db"), "XDG_DATA_HOME": str(self._home / "data")}
        return subprocess.run(
            [str(self.python), *command], env={**os.environ, **own, **environ}, text=True, capture_output=True
        )

    def opmark(self, *arguments: str, **environ: str) -> str:
        done = self.run("-m", "opmark", *arguments, **environ)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def records(self, *arguments: str, **environ: str) -> list[dict[str, Any]]:
        quick = ("--backend", "npu-sim", "--effort", "quick", "--samples", "3", "--threads", "1", "--json")
        return [json.loads(line) for line in self.opmark("run", *arguments, *quick, **environ).splitlines()]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("fresh"))
    made.install()
    return made


@pytest.fixture
def another(tmp_path: Path) -> Site:
    """One that a test may spoil."""
    return Site(tmp_path / "another")
