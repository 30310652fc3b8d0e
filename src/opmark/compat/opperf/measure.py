"""Entries to records: one run, in a worker of its own, with as many calls as opperf would make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from opmark import api
from opmark.compat.opperf.context import backend_of, device_of, visible
from opmark.errors import UserError, nearest
from opmark.result import Result
from opmark.schema import Entry, Workload
from opmark.schema.workload import VERSION

TIMEOUT = 600.0
"""Seconds that a task may take: a hundred runs of a large product are long on a CPU."""

Profiler = Literal["native", "python"]


def check_profiler(name: Any) -> None:
    known = get_args(Profiler)
    if name not in known:
        near = nearest(str(name), known)
        raise UserError(
            f"profiler: expected {' or '.join(known)}, got {name!r}", f"did you mean `{near}`?" if near else None
        )


def measure(
    entries: Sequence[Entry], *, ctx: Any, framework: str, warmup: int, runs: int, profiler: Profiler = "native",
    **more: Any,
) -> Result:  # fmt: skip
    """`more` is what `opmark.run` takes: `threads`, `db`, `timeout`, `on_record`."""
    asked: dict[str, Any] = {"timeout": TIMEOUT, "label": "opperf"}
    asked |= {key: value for key, value in more.items() if value is not None}
    with visible(ctx):
        return api.run(
            workload=Workload(VERSION, "opperf", list(entries)),
            backend=backend_of(ctx, framework),
            warmup=warmup,
            samples=runs,
            processes=1,
            effort="quick",
            **_quantity(ctx, profiler),
            **asked,
        )


def _quantity(ctx: Any, profiler: Profiler) -> dict[str, Any]:
    """MXNet's profiler says what a device did, Python's clock how long a caller waits: on a CPU the same."""
    if device_of(ctx)[0] == "cpu":
        return {}
    return {"quantity": ["latency"]} if profiler == "python" else {"quantity": ["device_time"], "cache": ["warm"]}
