"""A schedule as a callable in the process of a user. Only it imports this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opmark.errors import Unsupported, UserError
from opmark.models.family import source_of
from opmark.models.program import export_program, model_program
from opmark.models.scheduled import CapturedSchedule, ScheduleRunner
from opmark.plugin import Params
from opmark.schema import TensorSpec
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.schedule import Schedule


class CompiledSchedule:
    """A model that runs by a schedule: call it with the inputs of the model. `close` ends its threads, and so does the
    end of a `with` statement."""

    def __init__(self, call: Any, scheduled: ScheduleRunner, specs: dict[str, TensorSpec], device: str) -> None:
        self._call, self._scheduled, self._specs, self._device = call, scheduled, specs, torch.device(device)
        self._captured = isinstance(call, CapturedSchedule)

    @property
    def schedule(self) -> Schedule:
        return self._scheduled.schedule

    def __call__(self, *inputs: torch.Tensor) -> Any:
        self._check(inputs)
        outputs = self._call(*inputs)
        # A graph writes its outputs to the same memory again and again.
        return torch.utils._pytree.tree_map(torch.clone, outputs) if self._captured else outputs

    def _check(self, inputs: Sequence[Any]) -> None:
        """Raise UserError for inputs that the schedule was not made for: their sizes are a part of its graph."""
        if len(inputs) != len(self._specs):
            raise UserError(f"expected {len(self._specs)} inputs ({', '.join(self._specs)}), got {len(inputs)}")
        for (name, spec), given in zip(self._specs.items(), inputs, strict=True):
            if not isinstance(given, torch.Tensor):
                raise UserError(f"input `{name}`: expected a tensor of torch, got {type(given).__name__}")
            dtype = str(given.dtype).removeprefix("torch.")
            if tuple(given.shape) != spec.shape or dtype != spec.dtype or given.device.type != self._device.type:
                raise UserError(
                    f"input `{name}`: expected {list(spec.shape)} {spec.dtype} on {self._device.type}, got "
                    f"{list(given.shape)} {dtype} on {given.device.type}",
                    "a schedule is made for one batch and one size: make another one with -p batch=N",
                )

    def close(self) -> None:
        self._scheduled.close()

    def __enter__(self) -> CompiledSchedule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def compile_schedule(
    name: str, params: Params, device: str, schedule: Schedule, module: Any = None
) -> CompiledSchedule:
    """Return a schedule of a model as a callable; UserError where the model is not the one that it was made for."""
    if not name.startswith(MODEL_PREFIX):
        raise UserError(f"`{name}` has no inputs to call it with: only a model becomes a callable",
                        "`opmark schedule` runs and measures traces")  # fmt: skip
    source = source_of(name.removeprefix(MODEL_PREFIX))
    assert source is not None
    specs = source.inputs(params)
    given = tuple(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device) for spec in specs.values())
    try:
        if module is not None:
            program = export_program(module.eval(), given, type(module).__name__)
        else:
            program = model_program(source, params, torch.device(device))
    except Unsupported as error:
        raise UserError(error.message, error.hint) from None
    scheduled = ScheduleRunner(program, schedule, device)
    call: Any = scheduled
    if not scheduled.on_threads:
        call = CapturedSchedule(scheduled, given)
    return CompiledSchedule(call, scheduled, dict(specs), device)
