"""Executables of XLA in files: a zip with the executable, the module that it was compiled from, and what it runs on.
Only a worker or a child process imports this.

Weights lie beside it, as they do beside a module. The module is kept so that results can be verified wherever the
executable is loaded.
"""

from __future__ import annotations

import os
import platform
import time
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import msgspec

from opmark.errors import InvalidFile, TaskError, Unsupported
from opmark.models.mlir_execution import reference, rounding_bounds, why_blind
from opmark.models.mlir_file import Program, load_program
from opmark.models.user_source import XlaSource
from opmark.plugin import Params, TensorSlot
from opmark.schema import Compilation
from opmark.schema.record import GraphCoverage

__all__ = ["build_jax", "read_member", "reference", "rounding_bounds", "why_blind", "write_artifact"]

_MODULE, _EXECUTABLE, _ABOUT = "module.mlirbc", "executable", "about.json"


class CompiledFor(msgspec.Struct, frozen=True):
    """What an executable was compiled by and for."""

    jaxlib: str
    platform: str
    machine: str
    """Architecture of the host."""
    device: str
    """Kind of device; for a CPU `cpu`."""
    features: tuple[str, ...]
    """Sets of instructions of the CPU that it may use."""
    seconds: float
    """Seconds that compiling took."""

    @classmethod
    def here(cls, device: Any, seconds: float = 0.0) -> CompiledFor:
        return cls(version("jaxlib"), device.platform, platform.machine(), device.device_kind, _features(), seconds)

    def why_not(self, here: CompiledFor) -> str:
        """Return why it cannot be loaded; empty where it can."""
        for what in ("jaxlib", "platform", "machine", "device"):
            theirs, ours = getattr(self, what), getattr(here, what)
            if theirs != ours:
                return f"it was compiled for {what} {theirs}, and here is {ours}"
        missing = sorted({*self.features} - {*here.features}) if self.platform == "cpu" else []
        return f"it was compiled for a CPU with {', '.join(missing[:5])}, which this one lacks" if missing else ""


def _features() -> tuple[str, ...]:
    """Return the sets of instructions of this CPU, as Linux names them; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return tuple(sorted(found.partition(":")[2].split()))


def write_artifact(
    program: Program, executable: Any, compilation: Compilation, path: Path
) -> None:  # fmt: skip
    """Write an executable, and the weights of its module beside it."""
    from safetensors.flax import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    about = CompiledFor.here(executable.local_devices()[0], compilation.cold)
    # Another process may write the same file, or read it.
    new = path.with_suffix(f".{os.getpid()}.new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as file:
        file.writestr(_ABOUT, msgspec.json.encode(about))
        file.writestr(_MODULE, program.serialize())
        file.writestr(_EXECUTABLE, executable.serialize())
    if program.weights:
        weights = new.with_suffix(".safetensors")
        save_file(dict(program.weights), str(weights))
        weights.replace(path.with_suffix(".safetensors"))
    new.replace(path)


def read_member(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as file:
            return file.read(name)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidFile(
            f"`{path}` is no executable of XLA, or not all of it: {error}",
            "`opmark run model:NAME-mhlo --backend jax-cpu --compile-only --artifact FOLDER` writes one",
        ) from None


class LoadedProgram:
    """A launch of an executable that was loaded from a file. The backend waits for what it returns."""

    def __init__(self, executable: Any, slots: tuple[TensorSlot, ...], compilation: Compilation) -> None:
        self._execute: Callable[..., Any] = executable.execute
        self._slots = slots
        self.compilation = compilation

    def __call__(self) -> Any:
        return tuple(self._execute([slot.value for slot in self._slots]))


def build_jax(source: XlaSource, params: Params, **given: Any) -> LoadedProgram:
    device = next(iter(given.values())).value.devices().pop() if given else jax.devices()[0]
    about = _read_about(source.path)
    if reason := about.why_not(CompiledFor.here(device)):
        raise Unsupported(f"`{source.name}` cannot be loaded here: {reason}; compile it again from its module")
    program = load_program(source, params)
    data = read_member(source.path, _EXECUTABLE)
    started = time.perf_counter()
    try:
        executable = device.client.deserialize_executable(data, [device])
    except jax.errors.JaxRuntimeError as error:
        raise TaskError(f"XLA cannot load `{source.name}`: {str(error).partition(chr(10))[0]}") from None
    seconds = time.perf_counter() - started
    slots = tuple(
        TensorSlot(jax.device_put(program.weights[one.name], device)) if one.weight else given[one.name]
        for one in program.arguments
    )
    count = sum(program.operators.values())
    return LoadedProgram(executable, slots, Compilation(
        seconds, graphs=1, operators=tuple(program.operators),
        cache=f"none: loaded from a file, which took {about.seconds:.3g} s to compile",
        coverage=GraphCoverage(count, count, note="XLA takes all of a module or nothing"),
    ))  # fmt: skip


def _read_about(path: Path) -> CompiledFor:
    try:
        return msgspec.json.decode(read_member(path, _ABOUT), type=CompiledFor)
    except msgspec.DecodeError as error:
        raise InvalidFile(f"`{path}`, {_ABOUT}: {error}", "compile it again from its module") from None
