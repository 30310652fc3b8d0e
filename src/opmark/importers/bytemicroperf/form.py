"""Form: one way to ask for an operator of theirs, and what that is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opmark.importers.bytemicroperf.fields import Field
from opmark.importers.bytemicroperf.values import Arguments
from opmark.registry import operator


@dataclass(frozen=True)
class Form:
    task: str
    """Their operator."""
    op: str
    """Ours."""
    fields: tuple[Field, ...]
    when: Callable[[Arguments], bool] = lambda _: True
    """Whether arguments are meant in this form; the first that says so is taken."""
    arg_type: str = "default"
    back: bool = True
    """Whether a case of ours is written in this form."""
    asked: bool = False
    """Where not `back`: whether a case that was asked for in this form is still written in it."""
    note: str = ""
    """How what is measured here differs from what is measured there."""

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for field in self.fields for name in field.names) | {"arg_type"}

    @property
    def tag(self) -> str:
        """Of a case that was asked for in this form, where its parameters do not tell: `gemm llm`."""
        return f"{self.task} {self.arg_type}" if self.asked else ""

    @cached_property
    def _rest(self) -> dict[str, Any]:
        """Parameters that no field decides, with the value that they have to have."""
        decided = {name for field in self.fields for name in field.ours}
        return {param.name: param.default for param in operator(self.op).params if param.name not in decided}

    @cached_property
    def _remarking(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if type(field).remark is not Field.remark)

    def notes(self, given: Arguments) -> Iterator[str]:
        """What to know of a point that is measured in this form."""
        if self.note:
            yield self.note
        for field in self._remarking:
            remark = field.remark(given)
            if remark:
                yield f"`{self.task}`: {remark}"

    def params(self, given: Arguments) -> dict[str, Any]:
        """Ours; raises Refused."""
        found: dict[str, Any] = {}
        for field in self.fields:
            found.update(field.read(given, self.op))
        return found

    def arguments(self, params: Arguments) -> dict[str, Any] | None:
        """Theirs; None where they cannot say it."""
        if any(params[name] != value for name, value in self._rest.items()):
            return None
        found: dict[str, Any] = {"arg_type": self.arg_type}
        for field in self.fields:
            written = field.write(params)
            if written is None:
                return None
            found.update(written)
        return found
