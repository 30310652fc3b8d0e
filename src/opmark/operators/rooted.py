"""Collectives with a root: broadcast, reduce, gather, scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.interfaces import Exchange, Peers
from opmark.operators import _numpy as np
from opmark.operators._exchange import (
    ADDING_UP,
    ASYNCHRONOUS,
    COMMON,
    OP,
    OVERWRITES,
    ROOT,
    by_rank,
    communication,
    cost,
    exchange,
    finite_calls,
    full_buffer,
    once_factor,
    others_factor,
    own_part,
    parts,
    prepare_output,
    rank_share,
    reduce_arrays,
    shared_buffer,
    spans,
    torch_op,
    whole_buffer,
)
from opmark.schema import Params

Inputs = Sequence[dict[str, Any]]


def roots_buffer(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (inputs[p["root"]]["x"],)


def _broadcast(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch.distributed as dist

    root, group = peers.world_rank(p["root"]), peers.group
    out, restore = prepare_output(p, x)
    copies = out is not x and peers.rank == p["root"]

    def begin(later: bool) -> Any:
        if copies:
            out.copy_(x)
        return dist.broadcast(out, src=root, group=group, async_op=later)

    return exchange(p, begin, lambda: (out,), restore)


def _reduce_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (reduce_arrays(p, by_rank(inputs)),) if rank == p["root"] else ()


def _reduce(p: Params, peers: Peers, x: Any) -> Exchange:
    """Restore the buffers of all ranks: other ranks' may hold anything afterwards (gloo leaves partial sums)."""
    import torch.distributed as dist

    root, group, op = peers.world_rank(p["root"]), peers.group, torch_op(p)
    out, restore = prepare_output(p, x)

    def begin(later: bool) -> Any:
        if out is not x:
            out.copy_(x)
        return dist.reduce(out, dst=root, op=op, group=group, async_op=later)

    outputs = (out,) if peers.rank == p["root"] else ()
    return exchange(p, begin, lambda: outputs, restore, finite_calls(p))


def _gather_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (np.concatenate(by_rank(inputs)),) if rank == p["root"] else ()


def _gather(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    root, group, here = peers.world_rank(p["root"]), peers.group, peers.rank == p["root"]
    full = torch.empty(sum(parts(p)) if here else 0, dtype=x.dtype, device=x.device)
    pieces = list(full.split(parts(p))) if here else None

    def begin(later: bool) -> Any:
        return dist.gather(x, pieces, dst=root, group=group, async_op=later)

    return exchange(p, begin, lambda: (full,) if here else ())


def _scatter_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (inputs[p["root"]]["x"][spans(parts(p))[rank]],)


def _scatter(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    root, group = peers.world_rank(p["root"]), peers.group
    out = torch.empty(parts(p)[peers.rank], dtype=x.dtype, device=x.device)
    pieces = list(x.split(parts(p))) if peers.rank == p["root"] else None

    def begin(later: bool) -> Any:
        return dist.scatter(out, pieces, src=root, group=group, async_op=later)

    return exchange(p, begin, lambda: (out,))


OPERATORS = [
    communication(
        "broadcast",
        "every rank gets the root's buffer",
        _broadcast,
        "torch.distributed.broadcast",
        params=(*COMMON, ROOT, OVERWRITES, ASYNCHRONOUS),
        inputs=whole_buffer,
        cost=cost(once_factor, shared=False, holds=(full_buffer, full_buffer)),
        reference=roots_buffer,
    ),
    communication(
        "reduce",
        "the root gets the sum (or maximum, ...) of all ranks' buffers",
        _reduce,
        "torch.distributed.reduce",
        params=(*COMMON, ROOT, OP, OVERWRITES, ASYNCHRONOUS),
        inputs=whole_buffer,
        cost=cost(once_factor, shared=False, holds=(full_buffer, full_buffer)),
        reference=_reduce_reference,
        tolerance=ADDING_UP,
    ),
    communication(
        "gather_ranks",
        "the root gets the parts of all ranks, one after the other (torch.distributed.gather)",
        _gather,
        "torch.distributed.gather",
        params=(*COMMON, ROOT, ASYNCHRONOUS),
        inputs=own_part,
        cost=cost(others_factor, shared=True, holds=(rank_share, full_buffer)),
        reference=_gather_reference,
    ),
    communication(
        "scatter_ranks",
        "every rank gets its part of the root's buffer (torch.distributed.scatter)",
        _scatter,
        "torch.distributed.scatter",
        params=(*COMMON, ROOT, ASYNCHRONOUS),
        inputs=shared_buffer,
        cost=cost(others_factor, shared=True, holds=(full_buffer, rank_share)),
        reference=_scatter_reference,
    ),
]
