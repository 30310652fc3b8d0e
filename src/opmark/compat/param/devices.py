"""A torch device, as PARAM's `-d` takes it, as a backend of opmark."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opmark.compat.visible import select_device
from opmark.errors import UnknownName, UserError
from opmark.registry import backends


@dataclass(frozen=True)
class Device:
    backend: str
    kind: str
    """What the backend runs on: `cpu`, `cuda`."""
    environ: dict[str, str] = field(default_factory=dict)
    """What its processes start with, so that they see this one of several."""


def device_of(text: str, *, compiled: bool = False) -> Device:
    """`cpu`, `cuda`, `cuda:1`, `xpu`, `mps`; or the name of any backend, as in `opmark list backends`.

    `compiled`: the backend of the same device that torch.compile runs on.
    """
    known = backends()
    if text in known:
        info = known[text]
        kind = info.device if info.framework == "torch" else text  # another framework's has nothing to compile with
        return Device(_torch(kind, text) if compiled else text, info.device)
    kind, colon, number = text.partition(":")
    eager = _by_device(compiled=False)
    if kind not in eager:
        raise UnknownName("device", text, [*eager, *known])
    name = _torch(kind, text) if compiled else eager[kind]
    if not colon:
        return Device(name, kind)
    if not re.fullmatch(r"\d+", number):
        raise UserError(f"--device {text}: expected a number behind the colon, got `{number}`", f"as in {kind}:0")
    return Device(name, kind, select_device(kind, int(number), f"--device {text}"))


def _torch(kind: str, text: str) -> str:
    """The backend that compiles for a kind of device."""
    found = _by_device(compiled=True)
    if kind not in found:
        raise UserError(
            f"--pt2-model: no backend compiles with torch.compile for --device {text}",
            f"leave it out, or take one of {', '.join(sorted(found))}",
        )
    return found[kind]


def _by_device(*, compiled: bool) -> dict[str, str]:
    """Names of torch's backends."""
    torch = (info for info in backends().values() if info.framework == "torch")
    return {info.device: info.name for info in torch if info.compiles == compiled}
