"""Captures what a torch program computes, into two files that lie side by side: NAME.json, PyTorch's execution trace
(every call with shapes, types, strides and scalar arguments), and NAME.kineto.json, the profiler's trace (times).

torch writes into a scratch folder, and only cleaned files are kept (opmark/traces/privacy.py). torch is imported when a
capture begins.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from opmark.errors import InvalidParameter, UserError
from opmark.files import check_writable
from opmark.scratch import ScratchFolder
from opmark.traces.privacy import clean_files

_RANGES = "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_RANGE"
_DATA = "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_DATA"
"""torch reads both when an observer is registered."""
_INDEXED = (
    "aten::embedding", "aten::embedding_bag", "aten::_embedding_bag", "aten::index", "aten::index_select",
    "aten::index_put_", "aten::index_add_", "aten::index_copy_", "aten::gather", "aten::scatter", "aten::scatter_",
    "aten::scatter_add_", "aten::take", "aten::nll_loss_forward", "aten::embedding_dense_backward",
)  # fmt: skip
"""Operators whose integer tensors are stored with `values`."""
_COMPILER = "torch._dynamo.callback"

_running: list[str] = []
"""Path of the capture that is running in this process: torch has one profiler."""


def rank_of(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank of this process where there are several, by torch.distributed or by a launcher's variables."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None
    try:
        return int(environment["RANK"]) if int(environment["WORLD_SIZE"]) > 1 else None
    except (KeyError, ValueError):
        return None


def file_names(path: Path, rank: int | None) -> tuple[Path, Path, Path]:
    """Return the execution trace, the profiler's trace, and the folder of what else there is, of a capture."""
    stem = path.name.removesuffix(".json") + (f".rank-{rank}" if rank is not None else "")
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.kineto.json"), path.with_name(f"{stem}_resources")


class ImportHook(MetaPathFinder):
    """Calls a function as soon as a module has been imported."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self.module, self.then = module, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            load(module)
            self.then()

        spec.loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec


@cache
def _watch_compiler() -> None:
    """Let a capture leave out what torch.compile does while it compiles: calls without data, which the program does not
    make. A range of an integer tensor without data ends all recording."""
    if _COMPILER in sys.modules:
        _follow_compiler()
    else:
        sys.meta_path.insert(0, ImportHook(_COMPILER, _follow_compiler))


def _follow_compiler() -> None:
    from torch._dynamo.callback import callback_handler

    callback_handler.register_start_callback(lambda _: _record(on=not _running))
    callback_handler.register_end_callback(lambda _: _record(on=True))


def _record(*, on: bool) -> None:
    import torch

    torch.autograd._enable_record_function(on)


class Capture:
    """A capture of a part of a program, as a context manager.

    Without `skip`, `warmup` and `steps` it captures the whole block. With them the program calls `step()` at the end of
    each step: the first `skip` steps are left alone, the profiler warms up for `warmup` more, and `steps` are captured
    (None: all that follow). Files are written as soon as the last step ends, or when the block is left, by an exception
    too: they hold what was captured until then.

    With several ranks each writes its own files, NAME.rank-0.json and so on.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        skip: int = 0,
        warmup: int = 0,
        steps: int | None = None,
        values: bool = False,
        ranges: bool = True,
        kernels: bool = False,
        overwrite: bool = False,
    ) -> None:
        for name, number, least in (("skip", skip, 0), ("warmup", warmup, 0), ("steps", steps, 1)):
            if number is not None and (not isinstance(number, int) or number < least):
                raise InvalidParameter(f"{name}: expected a whole number of at least {least}, got {number!r}")
        self.path = Path(path)
        self.skip, self.warmup, self.steps = skip, warmup, steps
        self.values, self.ranges, self.kernels, self.overwrite = values, ranges, kernels, overwrite
        self.files: list[Path] = []
        """The files that were written; empty until then."""
        self.operators = 0
        """Number of calls of operators in them."""
        self.passed = 0
        """Number of times that `step` was called."""
        self._profiler: Any = None
        self._observer: Any = None
        self._folder: ScratchFolder | None = None
        self._exported = False
        self._groups = ""

    @property
    def done(self) -> bool:
        return bool(self.files)

    def __enter__(self) -> Capture:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.stop()
            return
        try:
            self.stop()
        except (UserError, OSError) as problem:
            if hasattr(error, "add_note"):  # since Python 3.11
                error.add_note(f"opmark.capture: {problem}")

    def start(self, first: int = 0) -> None:
        """Begin. `first`: the number of the step that begins now."""
        if _running:
            raise UserError(
                f"a capture is running in this program already, into {_running[0]}",
                "torch has one profiler: end the first capture before the second begins",
            )
        self.check_path()
        try:
            import torch
            from torch.profiler import ExecutionTraceObserver, profile
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise UserError(
                "a capture needs torch, which is not installed here", "pip install 'opmark[torch]'"
            ) from None
        if torch.autograd._profiler_enabled():
            raise UserError(
                "torch's profiler is running already, and there can be only one",
                "leave the `with torch.profiler.profile(...)` before the capture begins",
            )
        self._folder = ScratchFolder("capture")
        raw = Path(self._folder.name) / "trace.json"
        observer = ExecutionTraceObserver()
        if self.values or self.kernels:
            raw.with_name("trace_resources").mkdir()
        wanted = {_RANGES: "1" if self.ranges else None, _DATA: ",".join(_INDEXED) if self.values else None}
        with _environment(wanted):
            observer.register_callback(str(raw))
        if not observer.is_registered:
            raise UserError(f"torch cannot write its execution trace to {raw}", "is there space left on the disk?")
        if self.kernels:
            observer.set_extra_resource_collection(True)
        profiler = profile(
            schedule=self._action, record_shapes=True, execution_trace_observer=observer, on_trace_ready=self._export
        )
        profiler.step_num, profiler.current_action = first, self._action(first)
        self._observer, self._profiler = observer, profiler
        self.passed = first
        _running.append(str(self.path))
        _watch_compiler()
        profiler.start()
        self._groups = _describe_groups()

    def step(self) -> None:
        """Say that a step of the program has ended and the next one begins."""
        self.passed += 1
        if self._profiler is None:
            return
        recording = self._observer.is_running()
        self._check_profiler()
        self._record_groups()
        self._profiler.step()
        if not recording:
            self._groups = _describe_groups()  # the observer has them where it has just begun
        if self._exported:
            self._close()
            self._write()

    def stop(self) -> None:
        """End the capture and write what was captured. Raise UserError if that is nothing."""
        if self._profiler is None:
            return
        self._check_profiler()
        self._record_groups()
        self._close()
        self._write()

    def discard(self) -> None:
        """End the capture and write nothing."""
        if self._profiler is not None:
            self._close()
        self._remove_scratch()

    def _action(self, step: int) -> Any:
        from torch.profiler import ProfilerAction

        begin = self.skip + self.warmup
        if step < self.skip or (self.steps is not None and step >= begin + self.steps):
            return ProfilerAction.NONE
        if step < begin:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step + 1 == begin + (self.steps or -1) else ProfilerAction.RECORD

    def _export(self, profiler: Any) -> None:
        assert self._folder is not None
        profiler.export_chrome_trace(str(Path(self._folder.name) / "trace.kineto.json"))
        self._exported = True

    def _check_profiler(self) -> None:
        """Raise UserError if another profiler has ended ours: to export what is left would crash the process."""
        import torch

        if self._observer.is_running() and not torch.autograd._profiler_enabled():
            self._observer.unregister_callback()
            self._profiler = None
            _running.clear()
            self._remove_scratch()
            raise UserError(
                "the program started torch's profiler itself, which ended the capture; nothing is written",
                "capture a part of the program in which no other profiler runs, or switch that one off",
            )

    def _record_groups(self) -> None:
        """Describe process groups in the trace that did not exist when it began."""
        if self._observer.is_running() and (found := _describe_groups()) != self._groups:
            self._groups = found
            if hasattr(self._observer, "_record_pg_config"):
                self._observer._record_pg_config()

    def _close(self) -> None:
        profiler, self._profiler = self._profiler, None
        _running.clear()
        profiler.__exit__(None, None, None)
        self._observer.unregister_callback()

    def _write(self) -> None:
        if not self._exported:
            self._remove_scratch()
            needed = self.skip + self.warmup + 1
            raise UserError(
                f"nothing was captured: {self.passed} steps ended, and step {needed} is the first one to capture",
                "call .step() at the end of each step, or give a smaller `skip` and `warmup`",
            )
        assert self._folder is not None
        raw = Path(self._folder.name)
        trace, profile, resources = file_names(self.path, rank_of())
        parts = [file.with_name(f".{file.name}.part") for file in (trace, profile)]
        try:
            operators = clean_files(raw, (parts[0], parts[1]), values=self.values)
            if not operators:
                raise UserError(
                    "no operator of torch was called while the capture ran: no file is written",
                    "the block, or the steps that are captured, should hold a part of the program that computes",
                )
            for part, file in zip(parts, (trace, profile), strict=True):
                part.replace(file)
            self.files, self.operators = [trace, profile], operators
            if any((raw / "trace_resources").glob("*")):
                shutil.copytree(raw / "trace_resources", resources, dirs_exist_ok=True)
                self.files.append(resources)
        except OSError as error:
            raise UserError(
                f"{error.filename or trace}: the capture cannot be written: {error.strerror}",
                "write to a folder with space left that may be written",
            ) from None
        finally:
            for part in parts:
                part.unlink(missing_ok=True)
            self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def check_path(self) -> None:
        """Raise UserError before anything is captured if the files cannot be written, or exist."""
        if self.path.suffix != ".json" or self.path.name.endswith(".kineto.json"):
            raise UserError(
                f"{self.path}: a capture is written to a file NAME.json, and NAME.kineto.json beside it",
                "as in step.json",
            )
        for file in file_names(self.path, rank_of())[:2]:
            if file.is_dir():
                raise UserError(f"{file}: is a folder, expected the name of a file", "as in FOLDER/step.json")
            if file.exists() and not self.overwrite:
                raise UserError(
                    f"{file}: exists already", "give another name, or overwrite it: overwrite=True, --overwrite"
                )
        check_writable(self.path)


def _describe_groups() -> str:
    """Return the process groups as text; empty if there are none."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return ""
    return str(getattr(distributed.distributed_c10d._world, "pg_config_info", ""))


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for a moment; None removes one."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
