"""A vendor's chip runs a whole model: compile, load, predict."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

PLUGIN = Path(__file__).parents[2] / "plugins" / "opmark-example-npu"


def test_the_example_chip_runs_a_model_and_says_what_fell_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(PLUGIN / "src" / "opmark_example_npu", tmp_path / "site" / "opmark_example_npu")
    described = tmp_path / "site" / "opmark_example_npu-1.0.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: opmark-example-npu\nVersion: 1.0.0\n")
    groups = re.findall(
        r'^\[project\.entry-points\."(.+?)"\]\n((?:.+\n)+)', (PLUGIN / "pyproject.toml").read_text(), re.M
    )
    assert len(groups) == 3
    (described / "entry_points.txt").write_text(
        "".join(f"[{name}]\n{rows}\n".replace('"', "") for name, rows in groups)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    options = ["--size", "small", "-p", "batch=2", "--backend", "npu-sim", "--compile-only", "--json"]
    command = [sys.executable, "-m", "opmark", "run", "model:wide-and-deep", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (record,) = map(json.loads, ran.stdout.splitlines())
    assert (record["status"], record["backend"], record["verification"]["checked"]) == ("ok", "npu-sim", "full")
    coverage = record["compilation"]["coverage"]
    assert 4 <= coverage["taken"] < coverage["operators"]
    assert "Gather" in coverage["fallback"] or "Concat" in coverage["fallback"]
    assert record["compilation"]["graphs"] >= 1
