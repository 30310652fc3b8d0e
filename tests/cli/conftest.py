"""The command line, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opmark.cli.main import main as command_line

COMMAND = [sys.executable, "-m", "opmark.cli.main"]


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; anything else there is an error."""
        return [json.loads(line) for line in self.out.splitlines()]

    def line(self, begins: str) -> str:
        """What stands behind the one line of standard error that begins so."""
        (line,) = (line for line in self.err.splitlines() if line.startswith(begins))
        return line.removeprefix(begins).strip()


Command = Callable[..., Done]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of every command of this test."""
    path = tmp_path / "store.db"
    monkeypatch.setenv("OPMARK_DB", str(path))
    return path


@pytest.fixture
def opmark(db: Path) -> Command:
    def call(*arguments: str, script: str | None = None) -> Done:
        """`opmark ARGUMENTS`; or a script that calls it, after it has changed what it wants."""
        command = COMMAND if script is None else [sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def main(db: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same without a new process, for what needs none: a hundred times as fast."""

    def call(*arguments: str) -> Done:
        monkeypatch.setattr("sys.argv", ["opmark", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, *capfd.readouterr())

    return call


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a stranger's package: the module `name` with this source, and `name` as an entry point to its INFO."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))

    def make(name: str, source: str) -> None:
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
        metadata = folder / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[opmark.backends]\n{name} = {name}:INFO\n")

    return make
