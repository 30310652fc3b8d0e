"""Kernels written in Triton, launched on torch tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import triton

from opmark.errors import Unsupported
from opmark.frameworks import cache_folder
from opmark.frameworks.torch.backend import TorchBackend, why_too_old_for_triton
from opmark.frameworks.torch.launch_key import launch_key
from opmark.plugin import BackendInfo, Launch
from opmark.schema import Compilation


@dataclass(frozen=True)
class _CompiledKernel:
    folder: Path
    compilation: Compilation


class TritonBackend(TorchBackend):
    """Compiles a kernel, and tunes one that has several configurations, at its first launch in `compile`."""

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._made: dict[Any, _CompiledKernel] = {}
        self._kernels: dict[str, Any] = {}

    def why_unavailable(self) -> str | None:
        return super().why_unavailable() or why_too_old_for_triton()

    def environment(self) -> dict[str, Any]:
        return super().environment() | {"triton": triton.__version__}

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        key = launch_key(built)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._compiled(built)
        else:  # the kernels may have been forgotten since, for another case
            self._seconds(built, made.folder)
        launch = partial(built)
        launch.compilation = made.compilation  # type: ignore[attr-defined]
        return launch

    def _compiled(self, built: Launch) -> _CompiledKernel:
        """Compile once with empty caches, and once more with the cache on disk; tuning is not repeated."""
        folder = cache_folder.fresh()
        triton.runtime.driver.active.get_current_device()  # what Triton builds for itself is no part of any kernel
        self._forget()
        with _compiled_kernels() as found:
            cold = self._seconds(built, folder)
        if not found:
            raise Unsupported("no Triton kernel was compiled: what is launched is something else")
        self._kernels |= found
        self._forget()
        cached = self._seconds(built, folder)
        running = self._seconds(built, folder)
        return _CompiledKernel(
            folder,
            Compilation(
                max(0.0, cold - running),
                max(0.0, cached - running),
                graphs=1,
                operators=tuple(found),
                kernels=tuple(found),
                cache="Triton's folder",
            ),
        )

    def _seconds(self, launch: Launch, folder: Path) -> float:
        os.environ["TRITON_CACHE_DIR"] = str(folder)
        started = time.perf_counter()
        launch()
        self.synchronize()
        return time.perf_counter() - started

    def _forget(self) -> None:
        """Drop the kernels that this process has compiled."""
        for kernel in self._kernels.values():
            kernel.device_caches.clear()


@contextmanager
def _compiled_kernels() -> Iterator[dict[str, Any]]:
    """Collect the names of the kernels that Triton compiles meanwhile."""
    found: dict[str, Any] = {}

    def note(*_: Any, fn: Any, **__: Any) -> None:
        found[fn.name.rpartition(".")[2]] = fn.jit_function

    before = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = note
    try:
        yield found
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
