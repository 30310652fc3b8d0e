"""What a PARAM command line asks for, in the words of `opmark.run`."""

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
    """PARAM's names and usual values."""

    warmup: int = 1
    iteration: int = 1
    backward: bool = False
    device: str = "cpu"
    exec_mode: str = "discrete"
    cuda_l2_cache: bool = True
    """False: a GPU's caches are overwritten before each call."""
    cuda_graph: bool = False
    pt2_model: bool = False
    """Compiled with torch.compile before it is timed."""
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
        """Whether anything is called at all: PARAM lists its cases with -w 0 -i 0."""
        return bool(self.warmup or self.iteration)

    @property
    def phases(self) -> list[str]:
        return ["forward", "backward"] if self.backward else ["forward"]

    def target(self) -> Device:
        return device_of(self.device, compiled=self.pt2_model)

    def asked(self, target: Device) -> dict[str, Any]:
        """Warm-up alone still needs a sample, which nobody is shown then."""
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
                raise UserError("--cuda-graph: a CPU captures no graph", "leave it out, or -d cuda")
            return found | {"quantity": ["device_span"], "timer": "graph"}
        return found | {"mode": self._mode(target)}

    def notes(self, target: Device) -> list[str]:
        """What has no meaning here, said instead of silently left out."""
        said = []
        if self.cuda_graph and self.exec_mode != "discrete":
            said.append(f"--exec-mode {self.exec_mode}: a captured graph is replayed in one way only")
        elif self._mode(target) != self.exec_mode:
            said.append(f"{self.exec_mode}: {target.backend} has no events; each call is timed by the host's clock")
        if not self.cuda_l2_cache and not self._flushes(target):
            said.append("--cuda-l2-cache off is about a GPU in discrete mode and changes nothing here")
        return said

    def _mode(self, target: Device) -> str:
        return "discrete" if self.exec_mode == "continuous_events" and target.kind == "cpu" else self.exec_mode

    def _flushes(self, target: Device) -> bool:
        return not (self.cuda_l2_cache or self.cuda_graph or target.kind == "cpu") and self.exec_mode == "discrete"

    def as_param(self) -> dict[str, Any]:
        """Those of PARAM's run options that are not as usual."""
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
    """Of a command line."""
    found: dict[str, Any] = {name: getattr(given, name) for name in Options.__dataclass_fields__}
    return Options(**found | {"cuda_l2_cache": given.cuda_l2_cache == "on"})
