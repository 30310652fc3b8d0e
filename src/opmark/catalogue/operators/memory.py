"""Movement of data: STREAM's copy and triad within a memory or a cache, and copies between a device and its host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._communication import (
    ADDING_UP,
    DTYPE,
    PINNED,
    RANKS,
    all_reduce_factor,
    by_rank,
    communication,
    elements,
    finite_calls,
    reduce_arrays,
    reduced_buffer,
    rules_of,
    spec,
)
from opmark.catalogue.operators._communication import PRESETS as _communication_PRESETS
from opmark.errors import Unsupported
from opmark.plugin import Exchange, Implementation, Launch, Operator, Params, Peers
from opmark.plugin.param import dtype, integer, nbytes, size
from opmark.schema import Cost, TensorSpec, Traffic
from opmark.schema.tensor import is_float, sizeof

SCALAR = 3.0
PARAMS = (
    size("n", "elements of each vector"),
    size(
        "repeats",
        "passes over the same vectors in one call, for data that is small compared with the cost of a call",
        1,
    ),
    dtype("float32", "float64", "float16", "bfloat16"),
)
PRESETS = {name: {"n": n} for name, n in (("small", 1 << 16), ("typical", 1 << 22), ("large", 1 << 26))}


def _inputs(*names: str) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, 100)
        return {name: TensorSpec((p["n"],), p["dtype"], *domain) for name in names}

    return inputs


def _move_cost(reads: int, *, computes: bool) -> Any:
    def cost(p: Params) -> Cost:
        passes, nbytes = p["repeats"] * p["n"], sizeof(p["dtype"])
        # The multiplication is done once for any number of passes.
        return Cost(passes + p["n"] if computes else 0, reads * passes * nbytes, passes * nbytes)

    return cost


def _repeat_rows(p: Params, vector: Any) -> Any:
    """Return the vector as a matrix whose rows share the same memory."""
    rows = (p["repeats"], p["n"])
    return np.lib.stride_tricks.as_strided(vector, rows, (0, vector.itemsize))


def _repeat_element(p: Params, vector: Any) -> Any:
    """Return the vector as one repeated element: NumPy would copy the rows of a matrix column by column."""
    if p["repeats"] == 1:  # an element has a maximal size, which a vector may exceed
        return vector
    return np.lib.stride_tricks.as_strided(vector.view(f"V{vector.nbytes}"), (p["repeats"],), (0,))


class _WriteLaunch:
    """A launch that writes to the same memory of its own every time and returns it."""

    def __init__(self, write: Launch, out: Any) -> None:
        self._write = write
        self._out = out

    def __call__(self) -> Any:
        self._write()
        return self._out


def _numpy_copy(p: Params, x: Any) -> Launch:
    out = np.empty_like(x)
    return _WriteLaunch(partial(np.copyto, _repeat_element(p, out), _repeat_element(p, x)), out)


def _numpy_triad(p: Params, x: Any, y: Any) -> Launch:
    """Multiply and add in two passes, as NumPy has no fused one."""
    out, scaled, factor = np.empty_like(x), np.empty_like(x), x.dtype.type(SCALAR)

    def write() -> None:
        np.multiply(y, factor, out=scaled)
        np.add(_repeat_rows(p, x), _repeat_rows(p, scaled), out=_repeat_rows(p, out))

    return _WriteLaunch(write, out)


def _torch_copy(p: Params, x: Any) -> Launch:
    import torch

    _require_one_pass(p)
    return partial(torch.empty_like(x).copy_, x)


def _torch_triad(p: Params, x: Any, y: Any) -> Launch:
    import torch

    _require_one_pass(p)
    return partial(torch.add, x, y, alpha=SCALAR, out=torch.empty_like(x))


def _require_one_pass(p: Params) -> None:
    if p["repeats"] != 1:
        raise Unsupported("torch cannot write the same memory several times in one call; numpy-cpu can")


COPY = Operator(
    name="copy",
    summary="y = x, into existing memory",
    category="memory",
    params=(*PARAMS[:2], dtype("float32", "float64", "float16", "bfloat16", "int8")),
    inputs=_inputs("x"),
    cost=_move_cost(reads=1, computes=False),
    reference=lambda p, x: x,
    presets=PRESETS,
    implementations=(Implementation("numpy", _numpy_copy), Implementation("torch", _torch_copy)),
    aliases=("device2device", "d2d", "memcpy"),
)

TRIAD = Operator(
    name="triad",
    summary="z = x + 3 y, into existing memory",
    category="memory",
    params=PARAMS,
    inputs=_inputs("x", "y"),
    cost=_move_cost(reads=2, computes=True),
    reference=lambda p, x, y: x + SCALAR * y,
    presets=PRESETS,
    implementations=(Implementation("numpy", _numpy_triad), Implementation("torch", _torch_triad)),
)


# Copies between a device and the memory of its host, alone and beside an all_reduce.

_PARAMS = (
    nbytes("size", "bytes"),
    DTYPE,
    integer("ranks", "devices at once, one process for each", 1, kind="rank"),
    PINNED,
)


def _of_host(p: Params) -> TensorSpec:
    return spec(p, elements(p, shared=False), place="pinned" if p["pinned"] else "host")


def _of_device(p: Params) -> TensorSpec:
    return spec(p, elements(p, shared=False))


def _nbytes(p: Params) -> int:
    return elements(p, shared=False) * sizeof(p["dtype"])


def _cost(p: Params) -> Cost:
    moved = _nbytes(p)
    return Cost(None, moved, moved, Traffic(moved, float(moved), p["ranks"], "host"))


def _host2device(p: Params, x: Any) -> Launch:
    """Copies from pinned memory are asynchronous; waiting for the device waits for them too."""
    import torch

    out, pinned = torch.empty(x.shape, dtype=x.dtype), p["pinned"]
    return lambda: out.copy_(x, non_blocking=pinned)


def _device2host(p: Params, x: Any) -> Launch:
    import torch

    pinned = p["pinned"]
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=pinned)
    return lambda: out.copy_(x, non_blocking=pinned)


def _transfer(name: str, summary: str, build: Any, place: Any, alias: str) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        category="communication",
        params=_PARAMS,
        inputs=lambda p: {"x": place(p)},
        cost=_cost,
        reference=lambda p, x: x,
        presets=_communication_PRESETS,
        rules=rules_of(_PARAMS),
        implementations=(Implementation("torch", build, path="torch.Tensor.copy_"),),
        device_only=True,
        aliases=(alias,),
    )


# A copy beside an all_reduce


def _both_cost(p: Params) -> Cost:
    """Count only the traffic of the all_reduce: the copy uses another link, and a sum would be the bandwidth of
    neither. The record's overlap says how much of one hides behind the other."""
    moved = _nbytes(p)
    return Cost(None, 2 * moved, 2 * moved, Traffic(moved, moved * all_reduce_factor(p["ranks"]), p["ranks"]))


def _both_reference(p: Params, rank: int, inputs: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    return reduce_arrays(p, by_rank(inputs)), inputs[rank]["host"]


def _all_reduce_h2d(p: Params, peers: Peers, x: Any, host: Any) -> Exchange:
    """Start the all_reduce first, in its own queue, while the copy goes through the usual one."""
    import torch
    import torch.distributed as dist

    before, out, pinned = x.clone(), torch.empty_like(x), p["pinned"]

    def communicate() -> Any:
        return dist.all_reduce(x, group=peers.group, async_op=True)

    def copy() -> None:
        out.copy_(host, non_blocking=pinned)

    def start() -> None:
        work = communicate()
        copy()
        work.wait()

    return Exchange(
        start,
        lambda: (x, out),
        restore=lambda: x.copy_(before),
        most_calls=finite_calls(p),
        parts={"all_reduce": lambda: communicate().wait(), "host2device": copy},
    )


OPERATORS = (
    COPY,
    TRIAD,
    _transfer("host2device", "copy from host memory to device memory", _host2device, _of_host, "h2d"),
    _transfer("device2host", "copy from device memory to host memory", _device2host, _of_device, "d2h"),
    communication(
        "all_reduce_h2d",
        "an all_reduce, and at the same time a copy of as many bytes from host to device",
        _all_reduce_h2d,
        params=(nbytes("size", "bytes of either buffer"), DTYPE, RANKS, PINNED),
        inputs=lambda p: {**reduced_buffer(p), "host": _of_host(p)},
        cost=_both_cost,
        reference=_both_reference,
        tolerance=ADDING_UP,
        device_only=True,
    ),
)
