"""For every test: the user's own store and notes are out of reach, and live backends are at hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opmark.hardware.detect import affinity
from opmark.interfaces import Backend
from opmark.registry import backend as find_backend

FAKE_PROFILERS = Path(__file__).parent / "profilers" / "fakes"


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data and cache directories of this test alone; the default store lies below `data`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OPMARK_DB", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """A torch backend in this process sets threads, grad mode and TF32 for all of it; the next test wants them back."""
    before = _torch_settings()
    yield
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        grad, threads, matmul, cudnn = before or (True, len(affinity()), False, True)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


def _torch_settings() -> tuple[bool, int, bool, bool] | None:
    """None where torch is not imported: most tests do without."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return (torch.is_grad_enabled(), torch.get_num_threads(), *tf32)


@pytest.fixture
def null() -> Backend:
    return find_backend("null").load(threads=1)


@pytest.fixture
def numpy_cpu() -> Backend:
    return find_backend("numpy-cpu").load(threads=1)


@pytest.fixture
def torch_cpu() -> Backend:
    return find_backend("torch-cpu").load(threads=1)


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str], str]:
    """The path of a program that behaves like the profiler of that name."""

    def make(name: str) -> str:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_PROFILERS / name}.py "$@"\n')
        path.chmod(0o755)
        return str(path)

    return make
