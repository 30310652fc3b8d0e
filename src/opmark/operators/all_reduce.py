"""all_reduce: every rank gets what all ranks' buffers come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.interfaces import Exchange, Peers
from opmark.operators import _numpy as np
from opmark.operators._exchange import (
    ADDING_UP,
    COMMON,
    PRESETS,
    RULES,
    by_rank,
    cost,
    elements,
    finite_calls,
    spec,
    twice_others,
    whole,
)
from opmark.schema import Implementation, Operator, Params
from opmark.schema.param import choice, flag

REDUCTIONS = ("sum", "max", "min", "prod", "avg")


def _reference(p: Params, rank: int, inputs: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    reduce = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "avg": np.mean}[p["op"]]
    return (reduce(np.stack(by_rank(inputs)), axis=0),)


def _torch(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    op = getattr(dist.ReduceOp, p["op"].upper())
    before, out = (x.clone(), x) if p["in_place"] else (None, torch.empty_like(x))
    pending: list[Any] = []

    def start() -> None:
        if not p["in_place"]:
            out.copy_(x)
        work = dist.all_reduce(out, op=op, group=peers.group, async_op=p["asynchronous"])
        if work is not None:
            pending.append(work)

    def finish() -> None:
        while pending:
            pending.pop().wait()

    return Exchange(
        start,
        outputs=lambda: (out,),
        finish=finish if p["asynchronous"] else None,
        restore=(lambda: x.copy_(before)) if before is not None else None,
        most_calls=finite_calls(p) if before is not None else None,
    )


OPERATORS = [
    Operator(
        name="all_reduce",
        summary="every rank gets the sum (or maximum, ...) of all ranks' buffers",
        category="communication",
        params=(
            *COMMON,
            choice("op", "what the buffers come to", REDUCTIONS, "sum"),
            flag("in_place", "the result replaces the input; otherwise it is copied first", default=True),
            flag("asynchronous", "begun, then waited for: also tells what hides behind computation"),
        ),
        inputs=lambda p: {"x": spec(p, elements(p, shared=False))},
        cost=cost(twice_others, shared=False, holds=(whole, whole)),
        reference=_reference,
        tolerance=ADDING_UP,
        rules=RULES,
        presets=PRESETS,
        implementations=(Implementation("torch", _torch, path="torch.distributed.all_reduce"),),
        ranks=True,
        aliases=("allreduce",),
    )
]
