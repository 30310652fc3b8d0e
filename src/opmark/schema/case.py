"""Case: one point of a workload. Its id is a hash of its content, so a renamed workload still matches."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

Phase = Literal["forward", "backward", "both"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "both")
"""`both`: forward and backward in one step, as in training."""


class Case(Struct, frozen=True):
    id: str
    op: str
    params: dict[str, Any]
    """All parameters: defaults are written out, so that a changed default is a different case."""
    phase: Phase
    tags: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed; empty: all inputs that have a gradient."""
    sources: tuple[str, ...] = ()
    """Where the case comes from: `source` texts of the workload; for a foreign file `FILE#NAME`, its name over
    there."""
    written_as: tuple[str, ...] = ()
    """How foreign files write the case, each as JSON with `op` and `arguments`, so that a report can repeat it."""

    @classmethod
    def of(
        cls,
        op: str,
        params: dict[str, Any],
        phase: Phase,
        tags: tuple[str, ...] = (),
        wrt: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
        written_as: tuple[str, ...] = (),
    ) -> Case:
        content: dict[str, Any] = {"op": op, "params": params, "phase": phase}
        if wrt:
            content["wrt"] = wrt
        if _PLAIN("".join((op, *params, *wrt))) and all(map(_encodes_alike, params.values())):
            key = digest(msgspec.json.encode(content, order="sorted"))
            return cls(key, op, params, phase, tags, wrt, sources, written_as)
        return cls(content_id(content), op, params, phase, tags, wrt, sources, written_as)


def _encodes_alike(value: Any) -> bool:
    """Whether msgspec and json encode the value alike; msgspec's speed matters in sweeps of 100,000 cases."""
    kind = type(value)
    if kind is str:
        return bool(_PLAIN(value))
    return kind is int or kind is bool or (kind is list and all(type(item) is int for item in value))


_PLAIN = re.compile(r"[\w.:+-]*", re.ASCII).fullmatch


def content_id(content: object) -> str:
    """Return 16 hex digits that depend on the content alone."""
    return digest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
