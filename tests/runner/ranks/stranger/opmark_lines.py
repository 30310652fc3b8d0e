"""A stranger's backend whose ranks talk in lines over TCP: no framework to import, so that ranks start in a moment.

An all_reduce of `SLOW` bytes takes far longer than any test waits.
"""

from __future__ import annotations

import time
from typing import Any

from opmark.plugin import BackendInfo, Exchange, Implementation, Params, Peers

SLOW = 4096

INFO = BackendInfo(
    name="lines-cpu",
    framework="lines",
    device="cpu",
    summary="a stranger's",
    dtypes=frozenset({"float32"}),
    loads="opmark_lines_code:Backend",
    differentiates=False,
)


def _build(p: Params, peers: Peers, x: Any) -> Exchange:
    out = x.copy()

    def start() -> None:
        if p["size"] == SLOW:
            time.sleep(3600)
        rows = peers.group.gathered([float(value) for value in x.reshape(-1)])
        out.reshape(-1)[:] = [sum(column) for column in zip(*rows, strict=True)]

    return Exchange(start, outputs=lambda: (out,))


def _add(p: Params, x: Any, y: Any) -> Any:
    return lambda: x + y


def _matmul(p: Params, a: Any, b: Any) -> Any:
    return lambda: a @ b


IMPLEMENTATIONS = {
    "all_reduce": Implementation("lines", _build),
    "add": Implementation("lines", _add),
    "matmul": Implementation("lines", _matmul),
}
