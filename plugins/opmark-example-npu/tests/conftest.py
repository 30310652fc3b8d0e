"""The package, installed as anybody would: by pip, into a fresh environment that has opmark and no framework."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from plugin_site import PluginSite

HERE = Path(__file__).parents[1]


class Site(PluginSite):
    """An environment for the chip."""

    def install(self, package: Path = HERE) -> None:
        super().install(package)

    def add(self, package: str, entry_points: str, code: str) -> None:
        """A package of one module, as an installer would leave it."""
        (self.packages / f"{package}.py").write_text(dedent(code))
        info = self.packages / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(dedent(entry_points))

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
