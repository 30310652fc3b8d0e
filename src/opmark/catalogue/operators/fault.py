"""Drills: operators that fail in a chosen way, alone or on one rank of several, to show that a failure costs one record
and nothing else."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._communication import (
    ADDING_UP,
    COMMON,
    PRESETS,
    all_reduce_factor,
    communication,
    cost,
    full_buffer,
    reduced_buffer,
)
from opmark.catalogue.operators.collectives import all_reduce, all_reduce_reference
from opmark.errors import Unsupported
from opmark.plugin import Exchange, Implementation, Launch, Operator, ParamRule, Params, Peers
from opmark.plugin.param import choice, dtype, integer, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import sizeof


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


# A drill for several processes: an all_reduce in which one rank fails in a chosen way.

LATE = 0.005
"""Seconds, far more than the natural differences between ranks."""


def _raise_on_rank() -> None:
    raise RuntimeError("raised on purpose")


def _hang_on_rank() -> None:
    while True:
        time.sleep(3600)


BEFORE_A_CALL: dict[str, Callable[[], Any]] = {
    "raise": _raise_on_rank,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": _hang_on_rank,
    "late": lambda: time.sleep(LATE),
}
KINDS = ("none", "wrong", "oom", *BEFORE_A_CALL)


def _build_rank_fault(p: Params, peers: Peers, x: Any) -> Exchange:
    usual = all_reduce({**p, "op": "sum", "in_place": False}, peers, x)
    if peers.world_rank(peers.rank) != p["rank"] or p["kind"] == "none":
        return usual
    if p["kind"] == "oom":
        raise MemoryError("out of memory on purpose")
    if p["kind"] == "wrong":
        return replace(usual, outputs=lambda: tuple(out + 1 for out in usual.outputs()))
    calls, fail = 0, BEFORE_A_CALL[p["kind"]]

    def start() -> None:
        nonlocal calls
        calls += 1
        if calls > p["after"]:
            fail()
        usual.start()

    return replace(usual, start=start)


OPERATORS = (
    FAULT,
    communication(
        "fault_ranks",
        "an all_reduce in which one rank fails in the chosen way; a drill for opmark itself",
        _build_rank_fault,
        category="diagnostics",
        params=(
            choice("kind", "what fails: oom in the preparation, wrong in the result, the others in a call", KINDS),
            *COMMON,
            integer("rank", "the rank that fails, among all ranks", 0, kind="rank"),
            integer("after", "calls that succeed before it", 0, kind="rank"),
        ),
        rules=(
            ParamRule("rank", "be below the number of ranks (got {rank} of {ranks})", lambda p: p["rank"] < p["ranks"]),
        ),
        inputs=reduced_buffer,
        cost=cost(all_reduce_factor, shared=False, holds=(full_buffer, full_buffer)),
        reference=all_reduce_reference,
        tolerance=ADDING_UP,
        presets={name: {"kind": "none", **sizes} for name, sizes in PRESETS.items()},
    ),
)
