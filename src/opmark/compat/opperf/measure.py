"""Measures entries in one run, with as many calls as opperf would make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from opmark import api
from opmark.compat.opperf.context import backend_of, device_of, select_context
from opmark.errors import UserError, nearest
from opmark.result import Result
from opmark.schema import Entry, Workload
from opmark.schema.workload import VERSION

TIMEOUT = 600.0
"""Seconds per task; generous, because a hundred large products take long on a CPU."""

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
    """Measure entries; `more` are options of `opmark.run` such as `threads`, `db`, `timeout` and `on_record`."""
    options: dict[str, Any] = {"timeout": TIMEOUT, "label": "opperf"}
    options |= {key: value for key, value in more.items() if value is not None}
    with select_context(ctx):
        return api.run(
            workload=Workload(VERSION, "opperf", list(entries)),
            backend=backend_of(ctx, framework),
            warmup=warmup,
            samples=runs,
            processes=1,
            effort="quick",
            **_quantity(ctx, profiler),
            **options,
        )


def _quantity(ctx: Any, profiler: Profiler) -> dict[str, Any]:
    """Choose the quantity: MXNet's profiler measures the device, Python's clock the caller; on a CPU both agree."""
    if device_of(ctx)[0] == "cpu":
        return {}
    return {"quantity": ["latency"]} if profiler == "python" else {"quantity": ["device_time"], "cache": ["warm"]}
