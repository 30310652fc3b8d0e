"""Exchange of Python objects between ranks: they are pickled, their lengths are sent, then their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from opmark.interfaces import Exchange, Peers
from opmark.operators import _numpy as np
from opmark.operators._exchange import (
    GROUP,
    RANKS,
    ROOT,
    SIZE,
    by_rank,
    communication,
    cost,
    exchange,
    full_buffer,
    once_factor,
    others_factor,
    own_part,
    rank_share,
    whole_buffer,
)
from opmark.schema import Params

Inputs = Sequence[dict[str, Any]]

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


OPERATORS = [
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
]
