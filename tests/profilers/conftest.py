"""Profilers that are not there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str], str]:
    """The path of a program that behaves like the profiler of that name."""

    def make(name: str) -> str:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKES / name}.py "$@"\n')
        path.chmod(0o755)
        return str(path)

    return make
