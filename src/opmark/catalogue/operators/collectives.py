"""Collectives without a root (all_reduce, reduce_scatter, all_gather, all_to_all) and with one (broadcast, reduce,
gather, scatter)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._communication import (
    ADDING_UP,
    ASYNCHRONOUS,
    COMMON,
    GROUP,
    IMBALANCE,
    LISTS,
    OP,
    OVERWRITES,
    RANKS,
    ROOT,
    WITHIN,
    all_reduce_factor,
    by_rank,
    communication,
    cost,
    exchange,
    exchange_sizes,
    finite_calls,
    full_buffer,
    once_factor,
    others_factor,
    own_part,
    parts,
    point_to_point,
    prepare_output,
    rank_share,
    reduce_arrays,
    shared_buffer,
    spans,
    torch_op,
    whole_buffer,
)
from opmark.plugin import Exchange, Params, Peers
from opmark.plugin.operator import SIZES
from opmark.schema import Cost

Inputs = Sequence[dict[str, Any]]

# all_reduce


def all_reduce_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (reduce_arrays(p, by_rank(inputs)),)


def all_reduce(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch.distributed as dist

    op, group = torch_op(p), peers.group
    out, restore = prepare_output(p, x)

    def begin(later: bool) -> Any:
        if out is not x:
            out.copy_(x)
        return dist.all_reduce(out, op=op, group=group, async_op=later)

    return exchange(p, begin, lambda: (out,), restore, finite_calls(p))


# reduce_scatter


def _reduce_scatter_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (reduce_arrays(p, by_rank(inputs))[spans(parts(p))[rank]],)


def _reduce_scatter(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    op, group, sizes = torch_op(p), peers.group, parts(p)
    pieces = list(x.split(sizes))
    out, before = torch.empty_like(pieces[peers.rank]), x.clone() if p["in_place"] else None
    if p["in_place"]:
        out = pieces[peers.rank]
    single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def begin_single(later: bool) -> Any:
        return single(out, x, op=op, group=group, async_op=later)

    def begin_list(later: bool) -> Any:
        return dist.reduce_scatter(out, pieces, op=op, group=group, async_op=later)

    return exchange(
        p,
        begin_list if p["lists"] or _uneven(sizes) else begin_single,
        lambda: (out,),
        (lambda: x.copy_(before)) if p["in_place"] else None,
        finite_calls(p),
    )


# all_gather


def _own_slice(p: Params, rank: int) -> slice:
    """Return the part of a rank's input that it contributes: in place, the input is the whole buffer."""
    return spans(parts(p))[rank] if p["in_place"] else slice(parts(p)[rank])


def _all_gather_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    brought = [x[_own_slice(p, sender)] for sender, x in enumerate(by_rank(inputs))]
    return tuple(brought) if p["lists"] else (np.concatenate(brought),)


def _all_gather(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch

    sizes, mine = parts(p), x[_own_slice(p, peers.rank)]
    full = x if p["in_place"] else torch.empty(sum(sizes), dtype=x.dtype, device=x.device)
    pieces = [torch.empty_like(part) if p["lists"] else part for part in full.split(sizes)]
    return exchange(p, _choose_gather(p, peers, full, pieces, mine), lambda: pieces if p["lists"] else (full,))


def _choose_gather(p: Params, peers: Peers, full: Any, pieces: list[Any], mine: Any) -> Callable[[bool], Any]:
    import torch.distributed as dist

    group, place = peers.group, pieces[peers.rank]
    single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def begin_single(later: bool) -> Any:
        return single(full, mine, group=group, async_op=later)

    def begin_list(later: bool) -> Any:
        return dist.all_gather(pieces, mine, group=group, async_op=later)

    def begin_each(later: bool) -> Any:
        """Broadcast part by part, as NCCL does with unequal parts; gloo refuses them in one call."""
        if not p["in_place"]:
            place.copy_(mine)
        roots = [(peers.world_rank(rank), piece) for rank, piece in enumerate(pieces)]
        return [dist.broadcast(piece, src=root, group=group, async_op=True) for root, piece in roots]

    if not _uneven(parts(p)):
        return begin_list if p["lists"] else begin_single
    return begin_each if dist.get_backend(group) == "gloo" else begin_list


# all_to_all


def _all_to_all_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    got = [x[spans(sent)[rank]] for x, sent in zip(by_rank(inputs), exchange_sizes(p), strict=True)]
    return tuple(got) if p["lists"] else (np.concatenate(got),)


def _all_to_all(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    table, group = exchange_sizes(p), peers.group
    sent, due = list(table[peers.rank]), [row[peers.rank] for row in table]
    if p["lists"]:
        return _all_to_all_lists(p, peers, list(x.split(sent)), due)
    out = torch.empty(sum(due), dtype=x.dtype, device=x.device)
    splits = {"output_split_sizes": due, "input_split_sizes": sent} if p["imbalance"] else {}

    def begin(later: bool) -> Any:
        return dist.all_to_all_single(out, x, group=group, async_op=later, **splits)

    return exchange(p, begin, lambda: (out,))


def _all_to_all_lists(p: Params, peers: Peers, pieces: list[Any], due: list[int]) -> Exchange:
    import torch.distributed as dist

    got = [pieces[0].new_empty(size) for size in due]
    begin_each = point_to_point(peers, list(enumerate(pieces)), list(enumerate(got)))

    def begin(later: bool) -> Any:
        return dist.all_to_all(got, pieces, group=peers.group, async_op=later)

    def begin_messages(later: bool) -> Any:
        """Send messages, as NCCL does internally; gloo refuses unequal parts in one call."""
        got[peers.rank].copy_(pieces[peers.rank])
        return begin_each()

    refused = p["imbalance"] and dist.get_backend(peers.group) == "gloo"
    return exchange(p, begin_messages if refused else begin, lambda: got)


def _uneven(sizes: Sequence[int]) -> bool:
    return len(set(sizes)) > 1


# barrier: every rank waits for all others. It moves no data, so its time is the latency of the group.


def _barrier(p: Params, peers: Peers) -> Exchange:
    import torch.distributed as dist

    def begin(later: bool) -> Any:
        return dist.barrier(peers.group)

    return exchange(p, begin)


# Collectives with a root: broadcast, reduce, gather, scatter.


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


OPERATORS = (
    communication(
        "all_reduce",
        "every rank gets the sum (or maximum, ...) of all ranks' buffers",
        all_reduce,
        "torch.distributed.all_reduce",
        params=(*COMMON, OP, OVERWRITES, ASYNCHRONOUS),
        inputs=whole_buffer,
        cost=cost(all_reduce_factor, shared=False, holds=(full_buffer, full_buffer)),
        reference=all_reduce_reference,
        tolerance=ADDING_UP,
        aliases=("allreduce",),
    ),
    communication(
        "reduce_scatter",
        "every rank gets its part of the sum (or maximum, ...) of all ranks' buffers",
        _reduce_scatter,
        "torch.distributed.reduce_scatter_tensor",
        params=(*COMMON, OP, WITHIN, LISTS, IMBALANCE, ASYNCHRONOUS),
        inputs=shared_buffer,
        cost=cost(others_factor, shared=True, holds=(full_buffer, rank_share)),
        reference=_reduce_scatter_reference,
        tolerance=ADDING_UP,
        aliases=("reducescatter", "reduce_scatter_base", "reduce_scatter_tensor"),
    ),
    communication(
        "all_gather",
        "every rank gets the parts of all ranks, one after the other",
        _all_gather,
        "torch.distributed.all_gather_into_tensor",
        params=(*COMMON, WITHIN, LISTS, IMBALANCE, ASYNCHRONOUS),
        inputs=lambda p: shared_buffer(p) if p["in_place"] else own_part(p),
        cost=cost(others_factor, shared=True, holds=(rank_share, full_buffer)),
        reference=_all_gather_reference,
        aliases=("allgather", "all_gather_base", "all_gather_into_tensor"),
    ),
    communication(
        "all_to_all",
        "every rank sends each rank another part of its buffer",
        _all_to_all,
        "torch.distributed.all_to_all_single",
        params=(*COMMON, LISTS, IMBALANCE, ASYNCHRONOUS),
        inputs=shared_buffer,
        cost=cost(others_factor, shared=True, holds=(full_buffer, full_buffer)),
        reference=_all_to_all_reference,
        aliases=("alltoall", "all_to_all_single"),
    ),
    communication(
        "barrier",
        "every rank waits until all have arrived",
        _barrier,
        "torch.distributed.barrier",
        params=(RANKS, GROUP),
        inputs=lambda p: {},
        cost=lambda p: Cost(None, 0, 0),
        reference=lambda p, rank, inputs: (),
        presets={name: {} for name in SIZES},
        result="constant",
        result_dtype=lambda p: "uint8",
    ),
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
)
