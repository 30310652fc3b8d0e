"""Backends of a stranger, workers, and tasks for them."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from opmark.plugin import BackendInfo, registry
from opmark.runner.plan import settings_for
from opmark.runner.worker_process import WorkerProcess
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions

HEAD = """
import ctypes, os, signal, subprocess, sys, time
from pathlib import Path
from opmark.frameworks.null.backend import NullBackend
from opmark.errors import Unsupported
"""

Plugin = Callable[..., BackendInfo]
StartWorker = Callable[..., WorkerProcess]
MakeTask = Callable[..., Task]


def add_to_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages in the folder are installed for this process and for those that it starts."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
    registry.forget()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend `steps-cpu` is installed, by whose clock code that does nine times the work takes nine times as long,
    however busy the machine is."""
    add_to_path(Path(__file__).parent / "steps", monkeypatch)
    yield
    registry.forget()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    """Installs a backend as a stranger would: a package with an entry point. `source` defines its class `Backend`."""
    folder = tmp_path / "site"
    folder.mkdir()
    add_to_path(folder, monkeypatch)

    def install(name: str, source: str = "class Backend(NullBackend): pass", **fields: Any) -> BackendInfo:
        module = f"opmark_plugin_{name}_{tmp_path.name}".replace("-", "_")
        described = {
            "name": name,
            "framework": "null",
            "device": "none",
            "summary": f"a stranger's {name}",
            "loads": f"{module}_code:Backend",
            "computes": False,
            **fields,
        }
        arguments = ", ".join(f"{key}={value!r}" for key, value in described.items())
        info = f"INFO = BackendInfo(dtypes=frozenset({{'float32'}}), {arguments})"
        (folder / f"{module}.py").write_text(f"from opmark.plugin import BackendInfo\n{info}\n")
        (folder / f"{module}_code.py").write_text(HEAD + textwrap.dedent(source))
        metadata = folder / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[opmark.backends]\n{name} = {module}:INFO\n")
        registry.forget()
        return registry.backend(name)

    yield install
    registry.forget()
    for module in [module for module in sys.modules if module.startswith("opmark_plugin_")]:
        del sys.modules[module]


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    """A worker that has said hello; it is ended with the test."""
    with ExitStack() as stack:

        def start(name: str, threads: int = 1, **environ: str) -> WorkerProcess:
            worker = stack.enter_context(closing(WorkerProcess(registry.backend(name), threads, environ)))
            worker.hello(60)
            return worker

        yield start


@pytest.fixture
def make_task() -> MakeTask:
    def make(op: str = "add", backend: str = "null", **params: Any) -> Task:
        operator = registry.operator(op)
        params = operator.complete({"shape": [4], **params} if op == "add" else params)
        (settings,) = settings_for(MeasureOptions(threads=[1], effort="quick"))
        label = {"numpy-cpu": "numpy", "torch-cpu": "torch"}.get(backend, "null")
        return Task(Case.of(op, params, "forward"), backend, label, settings)

    return make


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Waits until something is so; a test that waits in vain has failed."""

    def wait(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"waited in vain for {what}"
            time.sleep(0.01)

    return wait


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs; one that only nobody has asked after yet does not."""

    def is_alive(pid: int) -> bool:
        try:
            return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    return is_alive
