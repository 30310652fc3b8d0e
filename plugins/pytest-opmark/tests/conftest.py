"""Sessions of pytest in processes of their own, in an environment that has the plug-in."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from plugin_site import PluginSite

HERE = Path(__file__).parents[1]
CALM = HERE.parents[1] / "tests" / "helpers" / "calm"
"""On the path of every session: what the tests' own load disturbs is taken for measured."""
Session = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> PluginSite:
    made = PluginSite(tmp_path_factory.mktemp("fresh"))
    made.install(HERE)
    return made


@pytest.fixture
def session(site: PluginSite, tmp_path: Path) -> Session:
    """session(*arguments, **files): pytest on these test files, `test_a=TEXT` is test_a.py."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")

    def run(*arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(dedent(text))
        command = ["-m", "pytest", "-p", "no:cacheprovider", "--opmark-db", str(tmp_path / "runs.db")]
        return site.run(*command, *arguments, folder=tmp_path, PYTHONPATH=str(CALM))

    return run
