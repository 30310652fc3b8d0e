"""Runs a program as `python` would, and captures it: `python -m opmark.traces.program ORDER PROGRAM [ARGUMENTS]`.

Steps are found without changes to the program: one ends when its optimizer has stepped. The capture begins when the
program imports torch, so that what it sets before that still counts. A program without an optimizer is captured whole.
"""

from __future__ import annotations

import builtins
import inspect
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import msgspec

from opmark.errors import OpmarkError, UserError
from opmark.plugin import registry
from opmark.schema.call_group import CapturedSteps
from opmark.traces.capture import Capture, ImportHook
from opmark.units import count_noun


class CaptureOrder(msgspec.Struct, frozen=True):
    """What the parent process asks for."""

    path: str
    report: str
    """File for the answer, a CaptureReport."""
    skip: int
    warmup: int
    steps: int
    values: bool = False
    ranges: bool = True
    kernels: bool = False
    overwrite: bool = False
    module: bool = False
    """Whether the program is the name of a module, as in `python -m`."""
    stop: bool = False
    """End the program once the steps are captured."""
    top: bool = False
    """Report the calls of the steps too."""
    model: dict[str, Any] | None = None
    """Parameters of the model that the program names as `model:NAME`."""


class CaptureReport(msgspec.Struct):
    files: list[str] = []
    operators: int = 0
    whole: bool = False
    """Whether the whole program was captured, because no optimizer stepped."""
    message: str = ""
    """Why nothing was captured."""
    hint: str | None = None
    captured: CapturedSteps | None = None


class CapturedProgram:
    """Follows the steps of a program. Whatever goes wrong with the capture, the program runs on."""

    def __init__(self, order: CaptureOrder) -> None:
        self.order, self.report = order, CaptureReport()
        self.capture: Capture | None = None
        self.process = os.getpid()
        self.optimizer: int | None = None
        """Id of the first optimizer that stepped: of several, it counts the steps."""
        self.ends: list[float] = []
        """When steps ended, as long as no profiler was running."""

    def begin(self) -> None:
        """Start the capture, and learn when an optimizer has stepped. Its hooks would run inside of the label
        `Optimizer.step#NAME`, which a step that ends there would lose."""
        import torch
        from torch.optim import Optimizer

        label = Optimizer.profile_hook_step

        def label_and_follow(step: Callable[..., Any]) -> Callable[..., Any]:
            labelled = label(step)

            @wraps(labelled)
            def follow(optimizer: Any, *arguments: Any, **options: Any) -> Any:
                result = labelled(optimizer, *arguments, **options)
                if not torch.compiler.is_compiling():
                    self.end_step(optimizer)
                return result

            return follow

        Optimizer.profile_hook_step = staticmethod(label_and_follow)
        self._try(lambda: self._start(self.order.skip == self.order.warmup == 0))

    def _start(self, scheduled: bool, first: int = 0) -> None:
        order = self.order
        options = {"skip": order.skip, "warmup": order.warmup, "steps": order.steps} if scheduled else {}
        self.capture = Capture(
            order.path, values=order.values, ranges=order.ranges, kernels=order.kernels, overwrite=order.overwrite,
            **options,
        )  # fmt: skip
        self.capture.start(first)

    def end_step(self, optimizer: Any) -> None:
        if os.getpid() != self.process or self.capture is None or self.report.message:
            return
        if self.optimizer is None:
            self.optimizer = id(optimizer)
        if self.optimizer == id(optimizer):
            self._try(self._end_step)

    def _end_step(self) -> None:
        capture = self.capture
        assert capture is not None
        if capture.done:
            return
        if capture.steps is None:  # there is an optimizer: what was captured before its first step goes
            capture.discard()
            self._start(scheduled=True, first=1)
        else:
            capture.step()
        assert self.capture is not None
        if self.capture.passed <= self.order.skip:
            self.ends.append(time.perf_counter())
        if self.capture.done:
            self._announce()
            if self.order.stop and self.optimizer is not None:
                sys.exit(0)

    def finish(self, *, failed: bool = False) -> None:
        """Write what is not written yet, after the program has ended, and leave the report. `failed`: the program ended
        in the middle of a step."""
        if os.getpid() != self.process:
            return
        capture = self.capture
        if capture is None and not self.report.message:
            self.report.message = "the program never imported torch: nothing was captured"
            self.report.hint = "opmark captures calls of PyTorch; --help says how a program is named"
        elif capture is not None and not capture.done and not self.report.message:
            self.report.whole, first = capture.steps is None, self.order.skip + self.order.warmup
            if not self.report.whole and not failed and capture.passed <= first:
                capture.discard()
                self.report.message = (
                    f"the program ended after {count_noun(capture.passed, 'step')}: nothing was captured"
                )
                self.report.hint = f"`--skip {self.order.skip} --warmup {self.order.warmup}` leaves {first} of them out"
            else:
                self._try(capture.stop)
            if capture.done:
                self._announce()
        if self.report.message:
            print(f"error: {self.report.message}", file=sys.stderr)
            if self.report.hint:
                print(f"hint: {self.report.hint}", file=sys.stderr)
        elif self.order.top:
            self.report.captured = self._steps()
        Path(self.order.report).write_bytes(msgspec.json.encode(self.report))

    def _announce(self) -> None:
        assert self.capture is not None
        first, last = self.order.skip + self.order.warmup, self.capture.passed - 1
        self.report.files, self.report.operators = [str(file) for file in self.capture.files], self.capture.operators
        if self.report.whole:
            what = "the whole program, because no optimizer stepped in it"
        elif last < first:
            what = f"a part of step {first}"
        else:
            what = f"step {first}" if last == first else f"steps {first} to {last}"
        calls = count_noun(self.report.operators, "operator call")
        print(f"captured {what}: {calls}, in {' and '.join(self.report.files)}", file=sys.stderr)

    def _steps(self) -> CapturedSteps:
        import torch

        from opmark.traces.call_groups import group_calls
        from opmark.traces.reading import read_trace

        found = group_calls(read_trace(self.report.files[0]))
        times = [b - a for a, b in zip(self.ends, self.ends[1:], strict=False)]
        facts: dict[str, str | int | None] = {"device": "cpu", "threads": torch.get_num_threads()}
        if found.on_device and torch.cuda.is_available():
            facts |= {"device": "cuda", "gpu": torch.cuda.get_device_name()}
        return msgspec.structs.replace(found, plain=median(times) if times else None, facts=facts)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OpmarkError as error:
            self.report.message, self.report.hint = error.message, error.hint


_kept: list[dict[str, Any]] = []
"""The variables of a module that was run: `python` keeps them until it ends, and threads may use them."""


def _run_script(program: str) -> None:
    """Run a file as `python` does: as the module `__main__`, which stays until the process ends."""
    content = compile(Path(program).read_bytes(), program, "exec")
    module = sys.modules["__main__"] = ModuleType("__main__")
    vars(module).update(__file__=program, __builtins__=builtins, __cached__=None)
    exec(content, vars(module))


def main() -> int:
    order = msgspec.json.decode(sys.argv[1], type=CaptureOrder)
    program, arguments = sys.argv[2], sys.argv[3:]
    followed = CapturedProgram(order)
    sys.argv = [program, *arguments]
    if order.model is not None or ":" in program:
        return _call_function(followed, program)
    sys.meta_path.insert(0, ImportHook("torch", followed.begin))
    code = 0
    try:
        if order.module:
            _kept.append(runpy.run_module(program, run_name="__main__", alter_sys=True))
        else:
            sys.path[0] = str(Path(program).resolve().parent)
            _run_script(program)
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException as error:  # noqa: BLE001 - what ends the program, it is printed as `python` does
        _print_traceback(error)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    followed.finish(failed=bool(code))
    return code or bool(followed.report.message)


def _call_function(followed: CapturedProgram, name: str) -> int:
    """Call a function without arguments as often as the order has steps."""
    order = followed.order
    try:
        step = _model_step(name, order.model) if order.model is not None else _load_step(name)
    except OpmarkError as error:
        followed.report.message, followed.report.hint = error.message, error.hint
        followed.finish()
        return 2
    except Exception as error:  # noqa: BLE001 - the file of the user may do anything
        _print_traceback(error)
        return 1
    try:
        followed._try(lambda: followed._start(scheduled=True))
        for _ in range(order.skip + order.warmup + order.steps):
            if followed.report.message:
                break
            step()
            followed._try(followed._end_step)
    except BaseException as error:  # noqa: BLE001 - what ends the function, it is printed as `python` does
        _print_traceback(error)
        followed.finish(failed=True)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    followed.finish()
    return int(bool(followed.report.message))


def _load_step(name: str) -> Callable[[], Any]:
    function = registry.load_function(name)
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UserError(
            f"`{name}` cannot be called without arguments: {error}",
            "write a function that makes one step, as in def step(): model(x).sum().backward()",
        ) from None
    except ValueError:  # a builtin that does not tell its signature
        pass
    return function


def _model_step(name: str, params: dict[str, Any] | None) -> Callable[[], Any]:
    """Return a call of a model of the zoo, or of a user's, with inputs that are drawn at random."""
    import torch

    from opmark.models.execution import callable_of, placed
    from opmark.models.family import source_of
    from opmark.plugin import draw_values
    from opmark.plugin.backend import cast
    from opmark.schema.case import MODEL_PREFIX

    source, given = source_of(name.removeprefix(MODEL_PREFIX)), params or {}
    assert source is not None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    specs = source.inputs(given).values()
    inputs = [
        torch.from_numpy(cast(draw_values(spec, i), spec.dtype)).to(device, getattr(torch, spec.dtype))
        for i, spec in enumerate(specs)
    ]
    call = callable_of(placed(source, given, device), given)

    def step() -> Any:
        with torch.no_grad():
            return call(*inputs)

    return step


def _exit_code(end: SystemExit) -> int:
    """Return the exit code that `python` makes of an argument of sys.exit."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print a traceback as `python` does, without the frames that run the program."""
    own = (__file__, registry.__file__, runpy.__file__, "<frozen runpy>", "<frozen importlib._bootstrap>",
           "<frozen importlib._bootstrap_external>")  # fmt: skip
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


if __name__ == "__main__":
    sys.exit(main())
