"""A package outside of src, installed as anybody would: by pip, into an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


class PluginSite:
    """A virtual environment. What this interpreter has is seen there too, so that nothing is fetched."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        known = dict.fromkeys([sysconfig.get_path("purelib"), *(one for one in sys.path if "site-packages" in one)])
        shared = "".join(f"import site; site.addsitedir({place!r})\n" for place in known)
        (self.packages / "shared.pth").write_text(shared)
        self.home = folder

    def pip(self, *arguments: str) -> None:
        done = subprocess.run([*PIP, "--python", str(self.python), *arguments], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr

    def install(self, package: Path) -> None:
        self.pip("install", "--quiet", "--no-deps", "--no-build-isolation", str(package))

    def run(self, *command: str, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        """With a store of its own, and a wide terminal."""
        own = {"COLUMNS": "250", "OPMARK_DB": str(self.home / "runs.db"), "XDG_DATA_HOME": str(self.home / "data")}
        return subprocess.run(
            [str(self.python), *command], env={**os.environ, **own, **environ}, cwd=folder, text=True,
            capture_output=True,
        )  # fmt: skip
