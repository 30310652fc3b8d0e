"""A torch device, as PARAM's `-d` takes it, as a backend of opmark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opmark.errors import UnknownName, UserError
from opmark.registry import backends

# By these a process sees only some of the devices of a kind.
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}


@dataclass(frozen=True)
class Device:
    backend: str
    kind: str
    """What the backend runs on: `cpu`, `cuda`."""
    environ: dict[str, str] = field(default_factory=dict)
    """What its processes start with, so that they see this one of several."""

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Processes that are started meanwhile use it."""
        before = {name: os.environ.get(name) for name in self.environ}
        os.environ.update(self.environ)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


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
    return Device(torch[kind], kind, _only(kind, int(number)))


def only_cuda(number: int) -> dict[str, str]:
    return _only("cuda", number)


def _only(kind: str, number: int) -> dict[str, str]:
    if kind not in _VISIBLE:
        if number == 0:
            return {}
        raise UserError(f"--device {kind}:{number}: opmark cannot tell one {kind} from another", f"leave out :{number}")
    variable = _VISIBLE[kind]
    seen = [name for name in os.environ.get(variable, "").split(",") if name]
    if not seen:
        return {variable: str(number)}
    if number >= len(seen):
        said = f"{variable}={os.environ[variable]}"
        raise UserError(f"{kind}:{number}: only {len(seen)} can be seen ({said})", f"up to {kind}:{len(seen) - 1}")
    return {variable: seen[number]}
