"""A drill: an operator that fails in a chosen way, to show that a failure costs one record and nothing else."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from opmark.errors import Unsupported
from opmark.operators import _numpy as np
from opmark.schema import Cost, Implementation, Launch, Operator, Params, TensorSpec
from opmark.schema.dtype import sizeof
from opmark.schema.param import choice, dtype, size


def _raise(x: Any) -> Any:
    raise RuntimeError("raised on purpose")


def _segfault(x: Any) -> Any:
    return ctypes.string_at(0)


def _illegal_instruction(x: Any) -> Any:
    """Fail as on a virtual machine that advertises an instruction but traps on it; a limit on oneDNN avoids it."""
    if "ONEDNN_MAX_CPU_ISA" not in os.environ:
        os.kill(os.getpid(), signal.SIGILL)
    return x + 0


def _exit(x: Any) -> Any:
    os._exit(3)


def _hang(x: Any) -> Any:
    while True:
        time.sleep(3600)


def _allocate(x: Any) -> Any:
    return np.empty(1 << 60, np.uint8)


def _device_assert(x: Any) -> Any:
    """Make the device fail, and with it everything later in this process."""
    _needs_cuda(x)
    import torch

    return x[torch.full((1,), 1 << 30, device=x.device)] + x


def _device_hang(x: Any) -> Any:
    """Start a kernel that runs for longer than any time limit."""
    _needs_cuda(x)
    import torch

    torch.cuda._sleep(1 << 50)
    return x + 0


def _needs_cuda(x: Any) -> None:
    if not getattr(x, "is_cuda", False):
        raise Unsupported("this drill needs a CUDA device")


FAULTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x + 0,
    "wrong": lambda x: x + 1,
    "error": _raise,
    "segfault": _segfault,
    "illegal_instruction": _illegal_instruction,
    "exit": _exit,
    "hang": _hang,
    "oom": _allocate,
    "device_assert": _device_assert,
    "device_hang": _device_hang,
}


def _build(p: Params, x: Any) -> Launch:
    return lambda: FAULTS[p["kind"]](x)


FAULT = Operator(
    name="fault",
    summary="fails in the chosen way; a drill for backends and for opmark itself",
    category="diagnostics",
    params=(
        choice("kind", "what goes wrong", tuple(FAULTS)),
        size("n", "elements", 16),
        dtype("float32", "float64"),
    ),
    inputs=lambda p: {"x": TensorSpec((p["n"],), p["dtype"])},
    cost=lambda p: Cost(p["n"], p["n"] * sizeof(p["dtype"]), p["n"] * sizeof(p["dtype"])),
    reference=lambda p, x: x,
    presets={name: {"kind": "none", "n": n} for name, n in (("small", 16), ("typical", 4096), ("large", 1 << 20))},
    implementations=tuple(Implementation(framework, _build) for framework in ("numpy", "torch")),
)

OPERATORS = (FAULT,)
