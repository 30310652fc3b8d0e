"""Finds the overload of an operator of torch that takes given arguments: profilers record names without overloads.

Only workers and child processes run it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from opmark.models.call_schema import parse_schema
from opmark.models.calls import OverloadQuestion

_ANY = ("Device", "Generator", "Layout", "Dimname", "str", "Storage", "Stream")
"""Types of arguments that a profiler does not record, so that anything may have been given."""
_FITS = {
    "bool": ("bool", "Scalar"), "int": ("int", "SymInt", "ScalarType", "MemoryFormat", "Layout", "Scalar", "float"),
    "float": ("float", "Scalar"), "str": ("str", "Device"),
}  # fmt: skip
"""Types of arguments that take a plain value, the likeliest first."""


def know_overloads(calls: list[dict[str, Any]]) -> list[str]:
    """Return the schema of each call, empty if no overload takes its arguments."""
    return [find_schema(msgspec.convert(call, OverloadQuestion)) for call in calls]


def find_schema(call: OverloadQuestion) -> str:
    """Return the schema of the overload that takes such arguments best; empty if none does."""
    space, _, own = call.name.partition("::")
    packet = getattr(getattr(torch.ops, space), own, None) if own else None
    if packet is None:
        return ""
    fits = []
    for number, overload in enumerate(packet.overloads()):
        text = str(getattr(packet, overload)._schema)
        schema = parse_schema(text)
        total = None if schema is None else _fit([one.kind for one in schema.arguments], call.kinds)
        if total is not None:
            fits.append((total, -number, text))
    return max(fits)[2] if fits else ""


def _fit(kinds: list[str], given: list[str]) -> int | None:
    """Return how well arguments fit; None if they do not."""
    if len(kinds) != len(given):
        return None
    total = 0
    for kind, value in zip(kinds, given, strict=True):
        is_list, is_tensor = "[" in kind, kind.startswith("Tensor")
        if value == "":
            continue
        if value == "None":
            if not (kind.endswith("?") or kind.startswith(_ANY) or (is_tensor and is_list)):
                return None
            total += kind.endswith("?")
        elif value.startswith("Tensor"):
            if not is_tensor or is_list != value.endswith("[]"):
                return None
            total += 2
        elif is_tensor:
            return None
        else:
            plain = value.removesuffix("[]")
            rank = next((i for i, one in enumerate(_FITS.get(plain, ())) if kind.startswith(one)), None)
            if rank is None or (value.endswith("[]") and not is_list):
                return None
            total += 3 if rank == 0 else 2 if rank < len(_FITS[plain]) - 1 else 1
    return total
