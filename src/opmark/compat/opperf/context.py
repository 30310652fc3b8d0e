"""The backend for a context of MXNet and the name of a framework."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opmark.compat.visible import select_device, set_variables
from opmark.errors import UserError
from opmark.registry import backends

CPU = "cpu"
_DEVICES = {"cpu": ("-cpu", ""), "gpu": ("-cuda", "-gpu")}


def device_of(ctx: Any) -> tuple[str, int]:
    """Return cpu or gpu and its number, from `cpu`, `gpu`, `gpu(1)` or MXNet's object for it."""
    text = f"{ctx.device_type}({getattr(ctx, 'device_id', 0)})" if hasattr(ctx, "device_type") else ctx
    found = re.fullmatch(r"(cpu|gpu)(?:\((\d{1,3})\))?", text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        raise UserError(f"ctx: expected cpu, gpu or gpu(N), got `{ctx}`", "as in --ctx gpu(0)")
    return found[1], int(found[2] or 0)


def backend_of(ctx: Any, framework: str) -> str:
    device, known = device_of(ctx)[0], backends()
    for ending in _DEVICES[device]:
        if framework + ending in known:
            return framework + ending
    missing = f"no backend runs {framework} on a {device}"
    if framework == "mxnet":
        raise UserError(
            missing, "it runs on a CPU only, with --ctx cpu; `--framework torch` runs the same operators on a GPU"
        )
    frameworks = sorted({info.framework for info in known.values()})
    raise UserError(missing, f"`opmark list backends` lists all; the frameworks are {', '.join(frameworks)}")


@contextmanager
def select_context(ctx: Any) -> Iterator[None]:
    """Make workers see the GPU of a context as their first one."""
    device, number = device_of(ctx)
    if device == "cpu" or number == 0:
        yield
        return
    with set_variables(select_device("cuda", number, f"ctx gpu({number})")):
        yield
