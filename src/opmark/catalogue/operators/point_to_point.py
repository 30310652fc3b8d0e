"""Messages between ranks by send and recv: a pair, all to one, one to all; and exchange of Python objects.

All messages of a call start together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._communication import (
    ASYNCHRONOUS,
    COMMON,
    DTYPE,
    GROUP,
    OTHERS,
    RANKS,
    ROOT,
    SIZE,
    by_rank,
    communication,
    cost,
    elements,
    exchange,
    full_buffer,
    group_size,
    once_factor,
    others_factor,
    own_part,
    point_to_point,
    rank_share,
    spec,
    whole_buffer,
)
from opmark.plugin import Exchange, ParamRule, Params, Peers
from opmark.plugin.param import choice, integer, nbytes, size
from opmark.schema import Cost, TensorSpec, Traffic
from opmark.schema.tensor import sizeof

Inputs = Sequence[dict[str, Any]]
PATTERNS = ("one_way", "both_ways", "ping_pong")

# A pair: p2p

_PAIR = (
    nbytes("size", "bytes of one message"),
    DTYPE,
    RANKS,
    integer("src", "the rank that sends", 0, kind="rank"),
    integer("dst", "the rank that receives; if it is src, the message is a copy", 1, kind="rank"),
    choice("pattern", "both_ways: each to the other at once; ping_pong: there and back", PATTERNS, "one_way"),
    size("window", "messages in flight", 1),
    ASYNCHRONOUS,
)

_PAIR_RULES = (
    ParamRule("src", "be below the number of ranks (got {src} of {ranks})", lambda p: p["src"] < p["ranks"]),
    ParamRule("dst", "be below the number of ranks (got {dst} of {ranks})", lambda p: p["dst"] < p["ranks"]),
    ParamRule(
        "pattern",
        "be one_way if src is dst (got {pattern})",
        lambda p: p["src"] != p["dst"] or p["pattern"] == "one_way",
    ),
    ParamRule(
        "asynchronous",
        "be false for a ping_pong, which waits for its own messages",
        lambda p: not (p["asynchronous"] and p["pattern"] == "ping_pong"),
    ),
)


def _messages(p: Params) -> dict[str, TensorSpec]:
    return {"x": spec(p, p["window"] * elements(p, shared=False))}


def _pair_cost(p: Params) -> Cost:
    """Count one direction for both_ways, as nccl-tests does, and both for a ping_pong, whose messages are
    successive."""
    moved = p["window"] * elements(p, shared=False) * sizeof(p["dtype"])
    counted = 2 * moved if p["pattern"] == "ping_pong" else moved
    return Cost(None, moved, moved, Traffic(counted, float(counted), len({p["src"], p["dst"]})))


def _p2p_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    if rank == p["dst"]:
        return (inputs[p["src"]]["x"],)
    if rank != p["src"] or p["pattern"] == "one_way":
        return ()
    return (inputs[p["dst"] if p["pattern"] == "both_ways" else rank]["x"],)


def _p2p(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch

    if peers.rank not in (p["src"], p["dst"]):
        return exchange(p, lambda later: None)
    out = torch.empty_like(x)
    if p["src"] == p["dst"]:

        def copy(later: bool) -> None:
            out.copy_(x)

        return exchange(p, copy, lambda: (out,))
    first, *second = _steps(p, peers, x, out)

    def begin(later: bool) -> Any:
        begun = first()
        for step in second:
            for work in begun:
                work.wait()
            begun = step()
        return begun

    only_sends = peers.rank == p["src"] and p["pattern"] == "one_way"
    return exchange(p, begin, tuple if only_sends else lambda: (out,))


def _steps(p: Params, peers: Peers, x: Any, out: Any) -> list[Callable[[], Any]]:
    """Return the steps of this rank, each of which waits for the one before."""
    sends, one = peers.rank == p["src"], elements(p, shared=False)
    other = p["dst"] if sends else p["src"]

    def messages(buffer: Any) -> list[tuple[int, Any]]:
        return [(other, message) for message in buffer.split(one)]

    if p["pattern"] == "both_ways":
        return [point_to_point(peers, messages(x), messages(out))]
    receive = point_to_point(peers, [], messages(out))
    if p["pattern"] == "one_way":
        return [point_to_point(peers, messages(x), []) if sends else receive]
    if sends:
        return [point_to_point(peers, messages(x), []), receive]
    return [receive, point_to_point(peers, messages(out), [])]


# All to one, one to all


def _senders_share(p: Params) -> int:
    """Return the elements that each rank but the root sends: the whole buffer is what the root receives."""
    senders = max(1, group_size(p) - 1)
    return -(-int(p["size"]) // (sizeof(p["dtype"]) * senders))


def _incast_cost(p: Params) -> Cost:
    senders, each = max(1, group_size(p) - 1), _senders_share(p) * sizeof(p["dtype"])
    return Cost(None, each, senders * each, Traffic(senders * each, float(senders * each), group_size(p)))


def _others(p: Params) -> list[int]:
    return [rank for rank in range(group_size(p)) if rank != p["root"]]


def _incast_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    brought = by_rank(inputs)
    return (np.concatenate([brought[other] for other in _others(p)]),) if rank == p["root"] else ()


def _incast(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch

    if peers.rank != p["root"]:
        send = point_to_point(peers, [(p["root"], x)], [])
        return exchange(p, lambda later: send())
    full = torch.empty(len(_others(p)) * len(x), dtype=x.dtype, device=x.device)
    receive = point_to_point(peers, [], list(zip(_others(p), full.split(len(x)), strict=True)))
    return exchange(p, lambda later: receive(), lambda: (full,))


def _multicast_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return () if rank == p["root"] else (inputs[p["root"]]["x"],)


def _multicast(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch

    if peers.rank == p["root"]:
        send = point_to_point(peers, [(other, x) for other in _others(p)], [])
        return exchange(p, lambda later: send())
    out = torch.empty_like(x)
    receive = point_to_point(peers, [], [(p["root"], out)])
    return exchange(p, lambda later: receive(), lambda: (out,))


# Exchange of Python objects between ranks: they are pickled, their lengths are sent, then their bytes.

_ITS_BYTES = {"dtype": "uint8"}
"""An object has no element type; the object here is an array of bytes in host memory."""


def _in_bytes(of: Any) -> Any:
    """Wrap a function of parameters so that it also takes parameters without an element type."""
    return lambda p: of({**p, **_ITS_BYTES})


def _on_host(of: Any) -> Any:
    return lambda p: {name: replace(spec, place="host") for name, spec in of({**p, **_ITS_BYTES}).items()}


def _tensor(objects: Sequence[Any]) -> Any:
    import torch

    return torch.from_numpy(np.concatenate(objects))


def _gather_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    return (np.concatenate(by_rank(inputs)),)


def _all_gather_object(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch.distributed as dist

    mine, found = x.numpy(), [x.numpy()] * peers.size

    def begin(later: bool) -> None:
        dist.all_gather_object(found, mine, group=peers.group)

    return exchange(p, begin, lambda: (_tensor(found),))


def _broadcast_object(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch.distributed as dist

    root, mine, found = peers.world_rank(p["root"]), x.numpy(), [x.numpy()]

    def begin(later: bool) -> None:
        found[0] = mine if peers.rank == p["root"] else None
        dist.broadcast_object_list(found, src=root, group=peers.group)

    return exchange(p, begin, lambda: (_tensor(found),))


OPERATORS = (
    communication(
        "p2p",
        "one rank sends, another receives; the others are idle",
        _p2p,
        "torch.distributed.batch_isend_irecv",
        params=_PAIR,
        rules=_PAIR_RULES,
        inputs=_messages,
        cost=_pair_cost,
        reference=_p2p_reference,
        aliases=("sendrecv", "send_recv"),
    ),
    communication(
        "incast",
        "all others send to the root at once; the size is what the root receives",
        _incast,
        params=(*COMMON, ROOT),
        rules=(OTHERS,),
        inputs=lambda p: {"x": spec(p, _senders_share(p))},
        cost=_incast_cost,
        reference=_incast_reference,
    ),
    communication(
        "multicast",
        "the root sends its buffer to each of the others, one message for each",
        _multicast,
        params=(*COMMON, ROOT),
        rules=(OTHERS,),
        inputs=whole_buffer,
        cost=cost(once_factor, shared=False, holds=(full_buffer, full_buffer)),
        reference=_multicast_reference,
    ),
    communication(
        "all_gather_object",
        "every rank gets the objects of all ranks, pickled on the way",
        _all_gather_object,
        "torch.distributed.all_gather_object",
        params=(SIZE, RANKS, GROUP),
        inputs=_on_host(own_part),
        cost=_in_bytes(cost(others_factor, shared=True, holds=(rank_share, full_buffer))),
        reference=_gather_reference,
        result_dtype=lambda p: "uint8",
    ),
    communication(
        "broadcast_object",
        "every rank gets the root's object, pickled on the way",
        _broadcast_object,
        "torch.distributed.broadcast_object_list",
        params=(SIZE, RANKS, GROUP, ROOT),
        inputs=_on_host(whole_buffer),
        cost=_in_bytes(cost(once_factor, shared=False, holds=(full_buffer, full_buffer))),
        reference=lambda p, rank, inputs: (inputs[p["root"]]["x"],),
        result_dtype=lambda p: "uint8",
        aliases=("broadcast_object_list",),
    ),
)
