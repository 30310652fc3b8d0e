"""Timing on another machine, a board for instance, through TVM's RPC.

The board runs `python -m tvm.exec.rpc_server --host 0.0.0.0 --port 9090`, or is known to a tracker by a key. Code is
compiled here, uploaded, linked there, run on data drawn here, compared with the reference, and timed there by TVM's
own evaluator: opmark's engine cannot run on a machine without Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opmark.errors import UserError, WrongResult
from opmark.frameworks.tvm.library import first_line, relax, rpc, tvm
from opmark.frameworks.tvm.targets import TargetCode, build_for, build_graph_for, read_target
from opmark.plugin import Configuration, Operator, Params, draw_values
from opmark.plugin.backend import cast, widen
from opmark.plugin.registry import operator as find_operator

_DEVICES = {"llvm": "cpu", "c": "cpu", "opencl": "cl"}
"""Names of devices in a session of TVM, where they are not those of the target."""
_MOST_FLOPS = 500_000_000
"""Operations of a case whose result is compared with the reference."""


@dataclass(frozen=True)
class Board:
    """Where a machine is found."""

    host: str
    port: int
    key: str = ""
    """Name of the device at a tracker; empty: `host` is the machine itself."""
    timeout: float = 60.0
    """Seconds that a session may last."""

    def connect(self) -> Any:
        """Return a session. UserError if nobody answers."""
        try:
            if self.key:
                tracker = rpc.connect_tracker(self.host, self.port)
                return tracker.request(self.key, session_timeout=self.timeout, max_retry=1)
            return rpc.connect(self.host, self.port, session_timeout=self.timeout)
        except (RuntimeError, OSError, ValueError) as error:
            kind = f"tracker with a device `{self.key}`" if self.key else "RPC server"
            raise UserError(
                f"no {kind} of TVM answers at {self.host}:{self.port}: {first_line(error)}",
                "start `python -m tvm.exec.rpc_server --host 0.0.0.0 --port PORT` on the board",
            ) from None


@dataclass(frozen=True)
class RemoteTimes:
    """What was measured on another machine."""

    seconds: tuple[float, ...]
    """Seconds of a call, one per repetition."""
    checked: bool
    """Whether the result was compared with the reference; a large case is not."""
    max_error: float
    """Largest absolute difference from the reference; 0 if not checked."""
    code: TargetCode

    @property
    def median(self) -> float:
        ordered = sorted(self.seconds)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def time_operator(
    board: Board, target: str, operator: str, params: Params, configuration: Configuration | None = None,
    *, repeat: int = 10, min_repeat_ms: int = 20, seed: int = 0,
) -> RemoteTimes:  # fmt: skip
    """Compile an operator of the catalogue for a target, and time it on a board. WrongResult if it computes something
    else than the reference."""
    known = find_operator(operator)
    params = known.complete(params)
    code = build_for(target, operator, params, configuration)
    arrays = _draw_inputs(known, params, seed)
    with TemporaryDirectory() as folder:
        run = _RemoteRun(board, target, code, Path(folder))
        outputs = run.call(list(arrays.values()))
        checked = (known.cost(params).flops or 0) <= _MOST_FLOPS
        error = _compare(known, params, arrays, outputs) if checked else 0.0
        return RemoteTimes(run.time(repeat, min_repeat_ms), checked, error, code)


def time_model(
    board: Board, target: str, model: Any, inputs: Mapping[str, Any], *, repeat: int = 5, min_repeat_ms: int = 20
) -> RemoteTimes:
    """Compile an ONNX model for a target, and time it on a board over these NumPy arrays, by the names of its inputs.
    Its results are not compared."""
    code = build_graph_for(target, model)
    with TemporaryDirectory() as folder:
        run = _RemoteRun(board, target, code, Path(folder))
        run.call([inputs[value.name] for value in model.graph.input])
        return RemoteTimes(run.time(repeat, min_repeat_ms), False, 0.0, code)


class _RemoteRun:
    """Compiled code that is loaded on a board."""

    def __init__(self, board: Board, target: str, code: TargetCode, folder: Path) -> None:
        kind = read_target(target).kind.name
        if not code.linked:
            raise UserError(f"code for {kind} cannot be linked here", "install the vendor's compiler, ROCm for rocm")
        self._session = board.connect()
        self._device = getattr(self._session, _DEVICES.get(kind, kind))(0)
        file = folder / "program.tar"  # objects that the board links: no compiler for its processor is needed here
        code.executable.export_library(str(file))
        self._session.upload(str(file))
        library = self._session.load_module(file.name)
        self._machine = relax.VirtualMachine(library, self._device) if _is_graph(code) else None
        self._library = library
        self._code = code
        self._arguments: list[Any] = []

    def call(self, arrays: Sequence[Any]) -> list[Any]:
        """Call it once over these arrays, and return its outputs as arrays."""
        placed = [tvm.runtime.tensor(array, self._device) for array in arrays]
        if self._machine is not None:
            self._machine.set_input("main", *placed)
            self._machine.invoke_stateful("main")
            found = self._machine.get_outputs("main")
            several = found if isinstance(found, tuple | list) else [found]
            return [one.numpy() for one in several]
        output = self._code.output
        assert output is not None
        made = tvm.runtime.empty(output[0], output[1], self._device)
        self._arguments = [*placed, made]
        self._library["main"](*self._arguments)
        return [made.numpy()]

    def time(self, repeat: int, min_repeat_ms: int) -> tuple[float, ...]:
        options = {"number": 1, "repeat": repeat, "min_repeat_ms": min_repeat_ms}
        if self._machine is not None:
            evaluator = self._machine.time_evaluator("invoke_stateful", self._device, **options)
            return tuple(float(one) for one in evaluator("main").results)
        evaluator = self._library.time_evaluator("main", self._device, **options)
        return tuple(float(one) for one in evaluator(*self._arguments).results)


def _is_graph(code: TargetCode) -> bool:
    return isinstance(code.executable, relax.VMExecutable)


def _draw_inputs(operator: Operator, params: Params, seed: int) -> dict[str, Any]:
    specs = operator.inputs(params)
    return {name: cast(draw_values(spec, seed + i), spec.dtype) for i, (name, spec) in enumerate(specs.items())}


def _compare(operator: Operator, params: Params, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> float:
    """Return the largest difference from the reference. WrongResult if it is more than rounding explains."""
    import numpy as np

    known = {name: widen(array) for name, array in inputs.items()}
    expected = _as_tuple(operator.reference(params, **known))
    if operator.observe:
        given = {name: known[name] for name in operator.observed_inputs(known)}
        outputs = _as_tuple(operator.observe(params, outputs if len(outputs) > 1 else outputs[0], **given))
    if len(outputs) != len(expected):
        raise WrongResult(f"the board returns {len(outputs)} outputs, expected {len(expected)}")
    relative, typical = operator.tolerance.bounds(str(params.get("dtype", "float32")), params)
    largest = 0.0
    for found, right in zip(outputs, expected, strict=True):
        error = np.abs(widen(found) - right)
        scale = operator.tolerance.magnitude(params) or float(np.abs(right).mean())
        wrong = ~(error <= relative * np.abs(right) + typical * scale)  # also where the error is not a number
        if wrong.any():
            raise WrongResult(
                f"the board is wrong in {int(wrong.sum())} of {wrong.size} elements, by up to {error.max():g}"
            )
        largest = max(largest, float(error.max(initial=0.0)))
    return largest


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)
