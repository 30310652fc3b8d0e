"""The options of PARAM's command line as arguments of `opmark.run`."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import Any

from opmark.compat.param.devices import Device, device_of
from opmark.compat.param.parser import MODES
from opmark.errors import UnknownName, UserError
from opmark.exporters import param_header


@dataclass(frozen=True)
class Options:
    """Options with PARAM's names and defaults."""

    warmup: int = 1
    iteration: int = 1
    backward: bool = False
    device: str = "cpu"
    exec_mode: str = "discrete"
    cuda_l2_cache: bool = True
    """If false, a GPU's caches are overwritten before each call."""
    cuda_graph: bool = False
    pt2_model: bool = False
    """Whether operators are compiled with torch.compile before they are timed."""
    resume_id: str | None = None
    stop_id: str | None = None
    threads: int = 1
    seed: int = 0
    strict: bool = False
    timeout: float = 600.0
    db: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("warmup", "iteration"):
            count = getattr(self, name)
            if count < 0:
                raise UserError(f"--{name}: expected a whole number of at least 0, got {count}", f"as in --{name} 10")
        if self.exec_mode not in MODES:
            raise UnknownName("execution mode", self.exec_mode, MODES)

    @property
    def times(self) -> bool:
        """Whether operators are called at all: with -w 0 -i 0, PARAM only lists its cases."""
        return bool(self.warmup or self.iteration)

    @property
    def phases(self) -> list[str]:
        return ["forward", "backward"] if self.backward else ["forward"]

    def target(self) -> Device:
        return device_of(self.device, compiled=self.pt2_model)

    def run_arguments(self, target: Device) -> dict[str, Any]:
        """Return arguments of `opmark.run`; with warm-up alone, one sample is taken and left out of the results."""
        found: dict[str, Any] = {
            "backend": target.backend,
            "threads": self.threads,
            "processes": 1,
            "warmup": self.warmup,
            "samples": max(1, self.iteration),
            "seed": self.seed,
            "timeout": self.timeout,
            "db": self.db,
            "cache": ["cold" if self._flushes(target) else "warm"],
        }
        if self.cuda_graph:
            if target.kind == "cpu":
                raise UserError("--cuda-graph: a CPU captures no graph", "leave it out, or add -d cuda")
            return found | {"quantity": ["device_span"], "timer": "graph"}
        return found | {"mode": self._mode(target)}

    def notes(self, target: Device) -> list[str]:
        """Return a line for each option that has no effect with this target."""
        lines = []
        if self.cuda_graph and self.exec_mode != "discrete":
            lines.append(f"--exec-mode {self.exec_mode}: a captured graph is replayed in one way only")
        elif self._mode(target) != self.exec_mode:
            lines.append(f"{self.exec_mode}: {target.backend} has no events; each call is timed by the host's clock")
        if not self.cuda_l2_cache and not self._flushes(target):
            lines.append("--cuda-l2-cache off has an effect only on a GPU in discrete mode")
        return lines

    def _mode(self, target: Device) -> str:
        return "discrete" if self.exec_mode == "continuous_events" and target.kind == "cpu" else self.exec_mode

    def _flushes(self, target: Device) -> bool:
        return not (self.cuda_l2_cache or self.cuda_graph or target.kind == "cpu") and self.exec_mode == "discrete"

    def as_param(self) -> dict[str, Any]:
        """Return the run options under PARAM's names, without those that always have defaults."""
        return {
            "device": self.device,
            "pass_type": param_header.PASSES[self.backward],
            "warmup": self.warmup,
            "iteration": self.iteration,
            "op_exec_mode": param_header.MODES[self.exec_mode],
            "cuda_l2_cache": self.cuda_l2_cache,
            "resume_op_run_id": self.resume_id,
            "stop_op_run_id": self.stop_id,
            "pt2_model": self.pt2_model,
            "cuda_graph": self.cuda_graph,
        }


def options_of(given: argparse.Namespace) -> Options:
    found: dict[str, Any] = {name: getattr(given, name) for name in Options.__dataclass_fields__}
    return Options(**found | {"cuda_l2_cache": given.cuda_l2_cache == "on"})
