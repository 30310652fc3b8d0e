"""Backends of opmark for the torch devices of PARAM's `-d`."""

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
    """The device of the backend, as in `cpu` or `cuda`."""
    environ: dict[str, str] = field(default_factory=dict)
    """Variables that let its processes see only this one of several devices."""


def device_of(text: str, *, compiled: bool = False) -> Device:
    """Return the device for `cpu`, `cuda`, `cuda:1`, `xpu`, `mps` or the name of a backend.

    With `compiled`, the backend is the one of the same device that uses torch.compile.
    """
    known = backends()
    if text in known:
        info = known[text]
        kind = info.device if info.framework == "torch" else text  # backends of other frameworks have no compiled twin
        return Device(_compiling_backend(kind, text) if compiled else text, info.device)
    kind, colon, number = text.partition(":")
    eager = _by_device(compiled=False)
    if kind not in eager:
        raise UnknownName("device", text, [*eager, *known])
    name = _compiling_backend(kind, text) if compiled else eager[kind]
    if not colon:
        return Device(name, kind)
    if not re.fullmatch(r"\d+", number):
        raise UserError(f"--device {text}: expected a number behind the colon, got `{number}`", f"as in {kind}:0")
    return Device(name, kind, select_device(kind, int(number), f"--device {text}"))


def _compiling_backend(kind: str, text: str) -> str:
    found = _by_device(compiled=True)
    if kind not in found:
        raise UserError(
            f"--pt2-model: no backend compiles with torch.compile for --device {text}",
            f"leave it out, or use one of {', '.join(sorted(found))}",
        )
    return found[kind]


def _by_device(*, compiled: bool) -> dict[str, str]:
    """Return the names of torch's backends by device."""
    torch = (info for info in backends().values() if info.framework == "torch")
    return {info.device: info.name for info in torch if info.compiles == compiled}
