"""Workload: what a file asks for. Axes, not cases: lists multiply, dotted keys zip."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from opmark.schema.operator import Phase

VERSION = 1


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One operator with its axes."""

    op: str
    """A name; with `*` or `?`, every operator that it matches."""
    params: dict[str, Any] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    """Presets to start from (`small`, `typical`, `large`); `params` go on top."""
    phases: list[Phase] = field(default_factory=lambda: ["forward"])
    tags: list[str] = field(default_factory=list)
    wrt: list[str] = field(default_factory=list)
    """Inputs whose gradients are computed backwards; none: all that have one."""
    elements: list[int] = field(default_factory=list)
    """Instead of sizes: about so many elements in and out, where the operator comes in that size."""
    args: list[Any] | None = None
    """Of a callable (`torch.baddbmm`): its arguments. `{name}` in them stands for a value of `params`."""
    kwargs: dict[str, Any] | None = None
    build: dict[str, Any] | list[Any] | None = None
    """Of a class: what it is built with before it is called."""
    source: str = ""
    """Where these shapes come from."""


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    """Version of this format."""
    name: str
    cases: list[Entry]
    description: str = ""
