"""barrier: every rank waits for all others. It moves no data, so its time is the latency of the group."""

from __future__ import annotations

from typing import Any

from opmark.interfaces import Exchange, Peers
from opmark.operators._exchange import GROUP, RANKS, communication, exchange
from opmark.schema import Cost, Params
from opmark.schema.operator import SIZES


def _barrier(p: Params, peers: Peers) -> Exchange:
    import torch.distributed as dist

    def begin(later: bool) -> Any:
        return dist.barrier(peers.group)

    return exchange(p, begin)


OPERATORS = [
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
    )
]
