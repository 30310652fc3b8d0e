"""A driver of NVIDIA GPUs that is a file, for this process and those that it starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_fixtures import Plugin, add_to_path

UUID = "8a6c2c0e-1111-2222-3333-444455556666"
OTHER = "1b2d3f40-aaaa-bbbb-cccc-ddddeeeeffff"
GPU = {
    "GetName": "NVIDIA Example",
    "GetClockInfo": {"1": 1980, "2": 3201},
    "GetMaxClockInfo": {"1": 1980, "2": 3201},
    "GetDefaultApplicationsClock": {"1": 1900, "2": 3201},
    "GetCurrentClocksEventReasons": 0,
    "tdp": 1500,
}
"""What a GPU answers, and the clock that it sustains."""


class Driver:
    """The file behind the fake library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write({"gpus": {UUID: dict(GPU)}, "errors": {}, "calls": []})

    @property
    def calls(self) -> list[list[Any]]:
        """Calls that changed something: function, GPU, arguments."""
        found: list[list[Any]] = self._read()["calls"]
        return found

    @property
    def locked(self) -> int | None:
        """The clock that the first GPU is locked at."""
        found: int | None = self.gpu().get("locked")
        return found

    def gpu(self, uuid: str = UUID) -> dict[str, Any]:
        found: dict[str, Any] = self._read()["gpus"][uuid]
        return found

    def set(self, uuid: str = UUID, **answers: Any) -> None:
        """Change what a GPU answers; None: it does not support the question. A GPU that is not there yet is added."""
        state = self._read()
        gpu = {**state["gpus"].get(uuid, GPU), **answers}
        state["gpus"][uuid] = {name: value for name, value in gpu.items() if value is not None}
        self._write(state)

    def fail(self, function: str, code: int) -> None:
        state = self._read()
        state["errors"][function] = code
        self._write(state)

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def _write(self, state: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(state))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    add_to_path(Path(__file__).parent / "fake_nvml", monkeypatch)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml.json"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # which it remembers
    yield Driver(tmp_path / "nvml.json")
    sys.modules.pop("pynvml", None)


RANKS = Path(__file__).parents[1] / "runner" / "ranks" / "stranger"
TWO_GPUS = f"""
from opmark_lines_code import Backend as Lines

class Backend(Lines):
    def environment(self):
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "GPU-{UUID},GPU-{OTHER}").split(",")
        own = seen[int(os.environ.get("LOCAL_RANK", "0")) % len(seen)]
        return {{**super().environment(), "gpu": "NVIDIA Example", "gpu_uuid": own.removeprefix("GPU-")}}
"""


@pytest.fixture
def two_gpus(driver: Driver, plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The backend `two-gpus`, whose ranks take a GPU each, and the driver of its GPUs, which sustain different
    clocks."""
    add_to_path(RANKS, monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plugin("two-gpus", TWO_GPUS, framework="lines", device="example", computes=True, differentiates=False)
    driver.set(OTHER, tdp=1300)
    return driver
