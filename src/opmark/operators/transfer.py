"""Copies between a device and the memory of its host, alone and beside an all_reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.interfaces import Exchange, Peers
from opmark.operators._exchange import (
    ADDING_UP,
    DTYPE,
    PINNED,
    PRESETS,
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
from opmark.schema import Cost, Implementation, Launch, Operator, Params, TensorSpec, Traffic
from opmark.schema.dtype import sizeof
from opmark.schema.param import integer, nbytes

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
        presets=PRESETS,
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


OPERATORS = [
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
]
