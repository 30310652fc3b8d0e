"""A scheduled program: an operator, its parameters, and a configuration of its loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from opmark.frameworks.tvm.operators import SCHEDULE, SCHEDULED, Kind, space_of
from opmark.plugin import Configuration, Implementation, Params


@dataclass(frozen=True)
class ScheduledProgram:
    """What a scheduled implementation builds. TVM's backend makes the module and compiles it."""

    operator: str
    kind: Kind
    params: Params
    configuration: Configuration

    def module(self) -> Any:
        return SCHEDULED[self.operator].module(self.kind, self.params, self.configuration)


def scheduled_implementations(device: str, kind: Callable[[], Kind]) -> Mapping[str, Implementation]:
    """Return the implementations of all operators with a schedule on TVM's backend for this device."""

    def build(name: str, p: Params, configuration: Configuration, **inputs: Any) -> ScheduledProgram:
        return ScheduledProgram(name, kind(), p, configuration)

    return {
        name: Implementation(
            f"tvm-{device}", partial(build, name), SCHEDULE, space=partial(space_of, name, kind), on_request=True
        )
        for name in SCHEDULED
    }
