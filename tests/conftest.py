"""For every test: the user's own store and notes are out of reach."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opmark.hardware.detect import affinity


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data and cache directories of this test alone; the default store lies below `data`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OPMARK_DB", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """A torch backend in this process sets threads and grad mode for all of it; the next test wants them back."""
    loaded = sys.modules.get("torch")
    threads = loaded.get_num_threads() if loaded else None
    yield
    torch = sys.modules.get("torch")
    if torch:
        torch.set_grad_enabled(True)
        torch.set_num_threads(threads or len(affinity()))
