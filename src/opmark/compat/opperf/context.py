"""MXNet's contexts and the name of a framework: which backend that is."""

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
    """(cpu or gpu, its number) of `cpu`, `gpu`, `gpu(1)`, or of an object that MXNet makes of them."""
    text = f"{ctx.device_type}({getattr(ctx, 'device_id', 0)})" if hasattr(ctx, "device_type") else ctx
    found = re.fullmatch(r"(cpu|gpu)(?:\((\d{1,3})\))?", text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        raise UserError(f"ctx: expected cpu, gpu or gpu(N), got `{ctx}`", "as in --ctx gpu(0)")
    return found[1], int(found[2] or 0)


def backend_of(ctx: Any, framework: str) -> str:
    """The backend of a framework on the device of a context."""
    device, known = device_of(ctx)[0], backends()
    for ending in _DEVICES[device]:
        if framework + ending in known:
            return framework + ending
    missing = f"no backend runs {framework} on a {device}"
    if framework == "mxnet":
        raise UserError(
            missing, "it runs on a CPU only: --ctx cpu; `--framework torch` runs the same operators on a GPU"
        )
    frameworks = sorted({info.framework for info in known.values()})
    raise UserError(missing, f"`opmark list backends` lists what there is: {', '.join(frameworks)}")


@contextmanager
def visible(ctx: Any) -> Iterator[None]:
    """A worker sees the GPU of a context as its first one."""
    device, number = device_of(ctx)
    if device == "cpu" or number == 0:
        yield
        return
    with set_variables(select_device("cuda", number, f"ctx gpu({number})")):
        yield
