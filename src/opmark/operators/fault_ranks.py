"""A drill for several processes: an all_reduce in which one rank fails in a chosen way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opmark.interfaces import Exchange, Peers
from opmark.operators._exchange import (
    ADDING_UP,
    COMMON,
    PRESETS,
    all_reduce_factor,
    communication,
    cost,
    full_buffer,
    reduced_buffer,
)
from opmark.operators.collectives import all_reduce, all_reduce_reference
from opmark.schema import Params, Rule
from opmark.schema.param import choice, integer

LATE = 0.005
"""Seconds, far more than the natural differences between ranks."""


def _raise() -> None:
    raise RuntimeError("raised on purpose")


def _hang() -> None:
    while True:
        time.sleep(3600)


BEFORE_A_CALL: dict[str, Callable[[], Any]] = {
    "raise": _raise,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": _hang,
    "late": lambda: time.sleep(LATE),
}
KINDS = ("none", "wrong", "oom", *BEFORE_A_CALL)


def _build(p: Params, peers: Peers, x: Any) -> Exchange:
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


OPERATORS = [
    communication(
        "fault_ranks",
        "an all_reduce in which one rank fails in the chosen way; a drill for opmark itself",
        _build,
        category="diagnostics",
        params=(
            choice("kind", "what fails: oom in the preparation, wrong in the result, the others in a call", KINDS),
            *COMMON,
            integer("rank", "the rank that fails, among all ranks", 0, kind="rank"),
            integer("after", "calls that succeed before it", 0, kind="rank"),
        ),
        rules=(Rule("rank", "be below the number of ranks (got {rank} of {ranks})", lambda p: p["rank"] < p["ranks"]),),
        inputs=reduced_buffer,
        cost=cost(all_reduce_factor, shared=False, holds=(full_buffer, full_buffer)),
        reference=all_reduce_reference,
        tolerance=ADDING_UP,
        presets={name: {"kind": "none", **sizes} for name, sizes in PRESETS.items()},
    )
]
