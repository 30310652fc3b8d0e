"""A torch device, as PARAM's `-d` takes it, as a backend of opmark."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opmark.compat.visible import only
from opmark.errors import UnknownName, UserError
from opmark.registry import backends


@dataclass(frozen=True)
class Device:
    backend: str
    kind: str
    """What the backend runs on: `cpu`, `cuda`."""
    environ: dict[str, str] = field(default_factory=dict)
    """What its processes start with, so that they see this one of several."""


def device_of(text: str) -> Device:
    """`cpu`, `cuda`, `cuda:1`, `xpu`, `mps`; or the name of any backend, as in `opmark list backends`."""
    known = backends()
    if text in known:
        return Device(text, known[text].device)
    kind, colon, number = text.partition(":")
    torch = {info.device: name for name, info in known.items() if info.framework == "torch"}
    if kind not in torch:
        raise UnknownName("device", text, [*torch, *known])
    if not colon:
        return Device(torch[kind], kind)
    if not re.fullmatch(r"\d+", number):
        raise UserError(f"--device {text}: expected a number behind the colon, got `{number}`", f"as in {kind}:0")
    return Device(torch[kind], kind, only(kind, int(number), f"--device {text}"))
