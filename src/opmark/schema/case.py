"""Case: one point of a workload. Its id is a hash of its content, so a renamed workload still matches."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec import Struct

from opmark.schema.operator import Phase


class Case(Struct, frozen=True):
    id: str
    op: str
    params: dict[str, Any]
    """Complete: defaults are written out, so that a changed default is a different case."""
    phase: Phase
    tags: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed, where not those of all that have one."""

    @classmethod
    def of(
        cls,
        op: str,
        params: dict[str, Any],
        phase: Phase,
        tags: tuple[str, ...] = (),
        wrt: tuple[str, ...] = (),
    ) -> Case:
        content: dict[str, Any] = {"op": op, "params": params, "phase": phase}
        if wrt:
            content["wrt"] = wrt
        return cls(content_id(content), op, params, phase, tags, wrt)


def content_id(content: object) -> str:
    """16 hex digits that depend on the content alone."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
