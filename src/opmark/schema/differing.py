"""Format the facts in which two environments differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opmark.units import count_bytes

_BYTES = ("memory", "gpu_memory", "gpu_l2")
_LONGEST = 60


def told(found: Mapping[str, tuple[Any, Any]], facts: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Return (fact, `a -> b`) for the given facts, or for all of them."""
    return [
        (fact, " -> ".join(_format_fact(fact, value) for value in found[fact]))
        for fact in (found if facts is None else facts)
    ]


def _format_fact(fact: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if fact in _BYTES and isinstance(value, int):
        return count_bytes(value)
    if isinstance(value, list):
        text = ", ".join(map(str, value)) or "none"
    elif isinstance(value, dict):
        text = " ".join(f"{name}={item}" for name, item in value.items()) or "none"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
