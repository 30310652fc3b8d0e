"""Workload: the content of a workload file. It holds axes, not cases: lists multiply, dotted keys zip."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from opmark.schema.case import Phase
from opmark.schema.machine import Peaks

VERSION = 1


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One operator with its axes."""

    op: str
    """Name of an operator; with `*` or `?`, every operator that matches."""
    params: dict[str, Any] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    """Presets to start from (`small`, `typical`, `large`); `params` override their values."""
    phases: list[Phase] = field(default_factory=lambda: ["forward"])
    tags: list[str] = field(default_factory=list)
    wrt: list[str] = field(default_factory=list)
    """Inputs whose gradients are computed; empty: all inputs that have a gradient."""
    elements: list[int] = field(default_factory=list)
    """Instead of `sizes`: approximate numbers of elements in and out, if the operator has such sizes."""
    args: list[Any] | None = None
    """Arguments of a callable (`torch.baddbmm`). `{name}` in them stands for a value of `params`."""
    kwargs: dict[str, Any] | None = None
    build: dict[str, Any] | list[Any] | None = None
    """Arguments of the constructor, if the callable is a class."""
    source: str = ""
    """Where these shapes come from."""
    written_as: str = ""
    """For a case of a foreign file: how that system writes it, as JSON with `op` and `arguments`."""
    count: Annotated[int, Meta(ge=1)] = 1
    """How often the program that the shapes come from runs each case of this entry."""
    duration: Annotated[float, Meta(gt=0)] | None = None
    """Seconds that one call takes in that program, where it was measured there."""


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    """Version of this format."""
    name: str
    cases: list[Entry]
    description: str = ""


# The result of an importer. Parts of a foreign file that cannot be imported are reported, never dropped.


class ImportProblem(Struct, frozen=True):
    """A part of a file that could not be imported, and why."""

    where: str
    """The file and the place in it: `gemm.json: $.cases[0].dtype[2]`."""
    message: str
    """What was expected and what was found."""
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"\n  hint: {self.hint}" if self.hint else "")


class Imported(Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    """One case per entry, in the order of the file; `source` is `FILE#NAME` with the foreign system's name of the
    case."""
    chips: tuple[Peaks, ...] = ()
    """Chips, if the file is a hardware file."""
    problems: tuple[ImportProblem, ...] = ()
    notes: tuple[str, ...] = ()
    """Settings that were interpreted differently or are not part of a workload."""
    asked: dict[str, Any] = {}
    """Options of `opmark.run` that the file asks for: `samples`, `warmup`."""
