"""Form: one way to write an operator of ByteMicroPerf, and the operator of opmark that it means."""

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
    """ByteMicroPerf's operator."""
    op: str
    """opmark's operator."""
    fields: tuple[Field, ...]
    when: Callable[[Arguments], bool] = lambda _: True
    """Whether arguments are in this form; the first form that matches is used."""
    arg_type: str = "default"
    exported: bool = True
    """Whether any case of the operator is written in this form."""
    tagged: bool = False
    """Whether cases imported in this form are tagged with it, so that they are exported in it again."""
    note: str = ""
    """How opmark measures this differently from ByteMicroPerf."""

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for field in self.fields for name in field.names) | {"arg_type"}

    @property
    def tag(self) -> str:
        """The tag of cases that were imported in this form, as in `gemm llm`."""
        return f"{self.task} {self.arg_type}" if self.tagged else ""

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """Parameters that no field sets: a case can be exported only if they have their defaults."""
        decided = {name for field in self.fields for name in field.ours}
        return {param.name: param.default for param in operator(self.op).params if param.name not in decided}

    def notes(self, given: Arguments) -> Iterator[str]:
        """Say how opmark measures a point differently from ByteMicroPerf."""
        if self.note:
            yield self.note
        for field in self.fields:
            remark = field.remark(given)
            if remark:
                yield f"`{self.task}`: {remark}"

    def params(self, given: Arguments) -> dict[str, Any]:
        """Return opmark's parameters of a point; raise Refused for values that opmark cannot measure."""
        found: dict[str, Any] = {}
        for field in self.fields:
            found.update(field.read(given, self.op))
        return found

    def arguments(self, params: Arguments) -> dict[str, Any] | None:
        """Return ByteMicroPerf's arguments; None where it cannot express the parameters."""
        if any(params[name] != value for name, value in self._defaults.items()):
            return None
        found: dict[str, Any] = {"arg_type": self.arg_type}
        for field in self.fields:
            written = field.write(params)
            if written is None:
                return None
            found.update(written)
        return found
